#include "src/cli/check_command.hpp"

#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/signal_thread.hpp"
#include "src/base/text.hpp"
#include "src/check/check.hpp"
#include "src/cli/process_setup.hpp"
#include "src/cli/rendered_text.hpp"
#include "src/cli/version.hpp"
#include "src/train/format_numbers.hpp"
#include "src/train/run_log.hpp"

namespace tandem {

namespace {

using nlohmann::ordered_json;

const char* word(Verdict verdict) { return verdict == Verdict::kSkipped ? "NOT CHECKED" : name_of(verdict); }

std::map<std::string, std::string> facts(const Version& v) {
  return {{"version", v.version},   {"git", v.git},
          {"compiler", v.compiler}, {"build", build_text(v)},
          {"onednn", v.onednn},     {"hdf5", v.hdf5},
          {"mpi", v.mpi},           {"instruction_set", v.instruction_set}};
}

void show_samples(const CheckReport& report, const Tokenizer* tokenizer, bool colour, std::ostream& out) {
  for (std::int64_t i = 0; i < report.shown.size(); ++i) {
    const std::string text = sample_text(report.shown, i, tokenizer, colour);
    out << sample_heading(i, report.shown, i) << '\n' << text << (text.ends_with('\n') ? "\n" : "\n\n");
  }
}

void show_lines(const CheckReport& report, double seconds, std::ostream& out) {
  for (const CheckLine& line : report.lines)
    out << formatted("level %d  %-15s %-12s", line.level, line.name.c_str(), word(line.verdict))
        << line.summary << '\n';
  for (const CheckLine& line : report.lines)
    for (const std::string& what : line.left_out) out << line.name << ": NOT CHECKED: " << what << '\n';
  for (const CheckLine& line : report.lines)
    for (const std::string& what : line.findings) out << line.name << ": " << what << '\n';
  out << word(report.verdict()) << formatted(", %.1f s, spec ", seconds) << report.spec_digest << '\n';
}

ordered_json loss_json(const CheckedLoss& loss) {
  return {{"native", loss.native},
          {"mirror", loss.mirror},
          {"difference", loss.difference()},
          {"limit", loss.limit}};
}

ordered_json to_json(const CheckReport& report, const Tokenizer* tokenizer, double seconds) {
  ordered_json object = {
      {"verdict", word(report.verdict())}, {"spec", report.spec_digest}, {"seconds", seconds}};
  object["lines"] = ordered_json::array();
  for (const CheckLine& line : report.lines)
    object["lines"].push_back({{"level", line.level},
                               {"name", line.name},
                               {"verdict", word(line.verdict)},
                               {"summary", line.summary},
                               {"findings", line.findings},
                               {"not_checked", line.left_out}});
  object["operations"] = ordered_json::array();
  for (const OperationCheck& operation : report.operations)
    object["operations"].push_back({{"name", operation.name},
                                    {"error", operation.error},
                                    {"alarm", operation.alarm},
                                    {"bound", operation.bound},
                                    {"where", operation.where},
                                    {"verdict", word(operation.verdict())}});
  if (report.update) {
    ordered_json tensors = ordered_json::array();
    for (std::size_t p = 0; p < report.update->relative_error.size(); ++p)
      tensors.push_back({{"name", report.adapter_tensors[p]},
                         {"relative_error", report.update->relative_error[p]},
                         {"projection", report.update->projection[p]},
                         {"threshold", report.update->bound[p]}});
    object["gradient"] = {{"loss_error", report.update->loss_error}, {"tensors", tensors}};
  }
  for (const auto& [name, loss] :
       {std::pair("untrained", &report.untrained), {"adapted", &report.adapted}, {"merged", &report.merged}})
    if (*loss) object["loss"][name] = loss_json(**loss);
  object["samples"] = ordered_json::array();
  for (std::int64_t i = 0; i < report.shown.size(); ++i)
    object["samples"].push_back(
        {{"line", report.shown.line(i)}, {"text", sample_text(report.shown, i, tokenizer, false)}});
  return object;
}

}  // namespace

int check_command(Config config, const CheckView& view, std::ostream& out) {
  const double begin = now_s();
  handle_signals_apart({SIGINT, SIGTERM, SIGHUP});  // of its temporary folder
  RunLog log(true);
  const Version v = version();
  config.execution.build = build_text(v);
  config.execution.instruction_set = v.instruction_set;
  const CpuContext ctx = unbound_context(static_cast<int>(config.execution.threads));
  CheckOptions options;
  options.out = view.out;
  options.facts = facts(v);
  options.seconds = view.seconds;
  options.progress = [&](const std::string& what) { log.progress(what); };
  options.warning = [&](const std::string& what) { log.warning(what); };
  const std::string model = config.spec.model.path;
  const CheckReport report = run_check(std::move(config), ctx, options);
  const std::optional<Tokenizer> tokenizer = tokenizer_of(model);
  const Tokenizer* known = tokenizer ? &*tokenizer : nullptr;
  const double seconds = now_s() - begin;
  if (view.json) {
    out << to_json(report, known, seconds).dump() << '\n';
  } else {
    show_samples(report, known, view.colour, out);
    show_lines(report, seconds, out);
  }
  out.flush();
  if (!out) throw Error(ErrorKind::kInput, "standard output cannot be written to its end");
  return report.verdict() == Verdict::kPass ? 0 : static_cast<int>(ErrorKind::kDisagreement);
}

}  // namespace tandem
