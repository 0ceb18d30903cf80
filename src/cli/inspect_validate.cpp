#include "src/cli/inspect_validate.hpp"

#include <nlohmann/json.hpp>
#include <ostream>

#include "src/base/text.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

namespace {

format::RunPlan plan_of(const std::string& spec_text, const std::string& execution_text) {
  const auto spec = canonical_values(spec_text), execution = canonical_values(execution_text);
  return {integer_of(spec, "train.updates"), integer_of(spec, "eval.every"), integer_of(spec, "batch.global"),
          integer_of(execution, "observe.every"), integer_of(execution, "snapshot.every")};
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
