#include "src/cli/prepare_command.hpp"

#include <charconv>
#include <ostream>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& value, const std::string& wanted) {
  throw Error(ErrorKind::kUsage, cat("prepare: --", option, " ", value, ": must be ", wanted));
}

PrepareOptions::Source source_of(const std::string& word) {
  const auto colon = word.find(':');
  const auto kind = source_kind(word.substr(0, colon));
  if (colon == std::string::npos || !kind || colon + 1 == word.size())
    refuse("from", word, "medmcqa:FILE, medqa:FILE or pubmedqa:FILE");
  return {*kind, word.substr(colon + 1)};
}

double share_of(const std::string& text) {
  double share = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), share);
  const bool number = result.ec == std::errc() && result.ptr == text.data() + text.size();
  if (!number || !(share >= 0 && share < 1)) refuse("held-out", text, "a number from 0 to below 1");
  return share;
}

}  // namespace

PrepareOptions prepare_options(const Arguments& arguments) {
  PrepareOptions options;
  for (const std::string& word : arguments.lists.at("from")) options.sources.push_back(source_of(word));
  options.out = arguments.get("out");
  if (arguments.has("held-out")) options.held_out_share = share_of(arguments.get("held-out"));
  const std::string target = arguments.get("data.target", "explanation_or_answer");
  if (target != "explanation" && target != "explanation_or_answer")
    refuse("data.target", target, "explanation or explanation_or_answer");
  options.answers = target == "explanation_or_answer";
  const std::string base = arguments.get("cop-base");
  if (!base.empty() && base != "0" && base != "1") refuse("cop-base", base, "0 or 1");
  if (!base.empty()) options.cop_base = base[0] - '0';
  options.prompts = arguments.get("prompts");
  options.overwrite = arguments.has("overwrite");
  return options;
}

int prepare_command(const PrepareOptions& options, bool json, std::ostream& out, std::ostream& notes) {
  const PrepareReport report = prepare_clinical(options);
  out << (json ? json_of(report) : table_of(report));
  const std::string deviation = study_deviation(report);
  (json ? notes : out) << (deviation.empty() || json ? "" : "\n") << deviation;
  if (options.held_out_share > 0 && report.total().held_out() == 0)
    notes << "warning: no row is held out: too few questions for a share of " << options.held_out_share
          << '\n';
  out.flush();
  if (!out) throw Error(ErrorKind::kInput, "standard output cannot be written to its end");
  return 0;
}

}  // namespace tandem
