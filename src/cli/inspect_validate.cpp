#include "src/cli/inspect_validate.hpp"

#include <charconv>
#include <nlohmann/json.hpp>
#include <ostream>

#include "src/base/text.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

namespace {

std::optional<std::int64_t> integer(const std::map<std::string, std::string>& values, const char* key) {
  const auto found = values.find(key);
  if (found == values.end()) return std::nullopt;
  std::int64_t value = 0;
  const char* const end = found->second.data() + found->second.size();
  const auto [last, error] = std::from_chars(found->second.data(), end, value);
  if (error != std::errc() || last != end) return std::nullopt;
  return value;
}

format::RunPlan plan_of(const std::string& spec_text, const std::string& execution_text) {
  const auto spec = canonical_values(spec_text), execution = canonical_values(execution_text);
  return {integer(spec, "train.updates"), integer(spec, "eval.every"), integer(spec, "batch.global"),
          integer(execution, "observe.every"), integer(execution, "snapshot.every")};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

Validity validate_file(const std::filesystem::path& file) { return validate_trajectory(file, plan_of); }

void write_validity(std::ostream& out, const std::filesystem::path& file, const Validity& validity) {
  const std::string name = printable_line(file.string());
  for (const format::Problem& problem : validity.problems) out << name << ": " << problem.line() << "\n";
  out << name << ": "
      << (validity.valid() ? "valid" : "INVALID: " + counted(validity.problems.size(), "problem")) << "\n";
  const auto list = [&](const char* what, const std::vector<std::string>& words) {
    if (!words.empty()) out << "  " << what << printable_line(joined(words)) << "\n";
  };
  list("present  ", validity.present);
  list("absent   ", validity.absent);
  list("ignored  ", validity.ignored);
}

nlohmann::ordered_json validity_json(const std::filesystem::path& file, const Validity& validity) {
  nlohmann::ordered_json json = {{"file", file.string()},
                                 {"valid", validity.valid()},
                                 {"problems", nlohmann::ordered_json::array()},
                                 {"present", validity.present},
                                 {"absent", validity.absent},
                                 {"ignored", validity.ignored}};
  for (const format::Problem& problem : validity.problems) {
    nlohmann::ordered_json one = {{"where", problem.where}, {"row", nullptr},
                                  {"found", problem.found}, {"expected", problem.expected},
                                  {"more", problem.more},   {"line", problem.line()}};
    if (problem.row >= 0) one["row"] = problem.row;
    json["problems"].push_back(one);
  }
  return json;
}

}  // namespace tandem
