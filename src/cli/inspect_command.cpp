#include "src/cli/inspect_command.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <sstream>
#include <vector>

#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::vector<fs::path> files_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.path().extension() == ".h5") files.push_back(entry.path());
  if (error) throw Error(ErrorKind::kInput, cat(path.string(), ": ", error.message()));
  if (files.empty())
    throw Error(ErrorKind::kInput,
                cat(path.string(), ": holds no trajectory (no *.h5 file); is it a run folder?"));
  std::sort(files.begin(), files.end());
  return files;
}

// The planned number of updates, from the canonical text.
std::optional<std::int64_t> planned_updates(const std::string& spec_text) {
  const auto values = canonical_values(spec_text);
  const auto found = values.find("train.updates");
  if (found == values.end()) return std::nullopt;
  std::int64_t value = 0;
  const char* const begin = found->second.data();
  if (std::from_chars(begin, begin + found->second.size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

struct LossAt {
  std::int64_t step = 0;
  double loss = 0.0;
};

struct HeldOut {
  LossAt first, best, last;
};

// Evaluations with a number for a loss.
std::optional<HeldOut> held_out(const Trajectory& t) {
  if (!t.evals || t.evals->loss.size() != t.evals->step.size()) return std::nullopt;
  std::optional<HeldOut> found;
  for (std::size_t i = 0; i < t.evals->loss.size(); ++i) {
    const LossAt at{t.evals->step[i], t.evals->loss[i]};
    if (std::isnan(at.loss)) continue;
    if (!found) found = HeldOut{at, at, at};
    if (at.loss < found->best.loss) found->best = at;
    found->last = at;
  }
  return found;
}

std::string digest_state(const std::string& text, const std::string& digest) {
  if (digest.empty()) return "absent";
  return sha256_hex(text) == digest ? "matches" : "DIFFERS";
}

std::int64_t updates_of(const Trajectory& t) { return t.updates ? t.updates->rows : 0; }

ordered_json to_json(const LossAt& at) {
  return {{"step", at.step}, {"loss", at.loss}, {"perplexity", std::exp(at.loss)}};
}

ordered_json to_json(const Trajectory& t) {
  ordered_json json = {
      {"file", t.path.string()},
      {"stack", t.stack},
      {"format_version", t.format_version},
      {"complete", t.complete},
      {"written_at", t.written_at},
      {"spec",
       {{"digest", t.spec_digest},
        {"text", t.spec_text},
        {"digest_of_text", digest_state(t.spec_text, t.spec_digest)}}},
      {"execution",
       {{"digest", t.execution_digest},
        {"text", t.execution_text},
        {"digest_of_text", digest_state(t.execution_text, t.execution_digest)}}},
      {"provenance", t.provenance},
      {"updates", updates_of(t)},
      {"updates_planned", nullptr},
      {"evaluations", t.evals ? t.evals->rows : 0},
      {"held_out", nullptr},
      {"adapter_digest", nullptr},
      {"parts", t.parts},
      {"snapshots", ordered_json::array()},
  };
  if (const auto planned = planned_updates(t.spec_text)) json["updates_planned"] = *planned;
  if (const auto losses = held_out(t))
    json["held_out"] = {
        {"first", to_json(losses->first)}, {"best", to_json(losses->best)}, {"last", to_json(losses->last)}};
  if (t.evals && !t.evals->adapter_digest.empty()) json["adapter_digest"] = t.evals->adapter_digest.back();
  for (const auto& [step, file] : t.snapshots)
    json["snapshots"].push_back({{"step", step}, {"file", file.string()}});
  return json;
}

// One line in which text from a file cannot play tricks with the terminal.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  return line;
}

void write_line(std::ostream& out, const char* name, const std::string& value) {
  out << "  " << std::left << std::setw(15) << name << one_line(value) << "\n";
}

std::string loss_text(const LossAt& at) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(6) << at.loss << " at update " << at.step;
  return text.str();
}

std::string perplexity_text(const HeldOut& losses) {
  std::ostringstream text;
  const double before = std::exp(losses.first.loss), after = std::exp(losses.last.loss);
  text << std::setprecision(5) << before << " -> " << after;
  if (std::isfinite(before) && before > 0)
    text << " (" << std::showpos << std::fixed << std::setprecision(1) << 100.0 * (after / before - 1.0)
         << " %)";
  return text.str();
}

std::string digest_text(const std::string& text, const std::string& digest) {
  const auto state = digest_state(text, digest);
  return state == "DIFFERS"  ? digest + " (NOT the digest of the text beside it)"
         : state == "absent" ? "absent"
                             : digest;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void write_text(std::ostream& out, const Trajectory& t) {
  out << one_line(t.path.string()) << "\n";
  write_line(out, "stack", cat(t.stack, ", trajectory format ", t.format_version));
  write_line(
      out, "complete",
      cat(t.complete ? "yes" : "no: the run goes on or was broken off", ", written at ", t.written_at));
  write_line(out, "spec", digest_text(t.spec_text, t.spec_digest));
  write_line(out, "execution", digest_text(t.execution_text, t.execution_digest));
  for (const auto* key : {"ranks", "threads", "hosts", "devices"})
    if (const auto found = t.provenance.find(key); found != t.provenance.end())
      write_line(out, key, found->second);
  const auto planned = planned_updates(t.spec_text);
  write_line(out, "updates", planned ? cat(updates_of(t), " of ", *planned) : cat(updates_of(t)));
  if (const auto losses = held_out(t)) {
    write_line(out, "held-out loss", cat("first ", loss_text(losses->first)));
    write_line(out, "", cat("best  ", loss_text(losses->best)));
    write_line(out, "", cat("last  ", loss_text(losses->last)));
    write_line(out, "perplexity", perplexity_text(*losses));
  } else {
    write_line(out, "held-out loss", "not evaluated");
  }
  if (t.evals && !t.evals->adapter_digest.empty())
    write_line(out, "adapter",
               cat(t.evals->adapter_digest.back(),
                   t.evals->step.empty() ? "" : cat(" after update ", t.evals->step.back())));
  if (!t.snapshots.empty())
    write_line(out, "snapshots",
               cat(t.snapshots.size(), " in ", t.snapshots.front().second.parent_path().string()));
  write_line(out, "parts", joined(t.parts));
}

}  // namespace

int inspect_command(const InspectOptions& options, std::ostream& out) {
  std::vector<Trajectory> trajectories;
  for (const auto& file : files_of(options.path)) trajectories.push_back(read_untrusted_trajectory(file));
  if (options.json) {
    ordered_json all = {{"trajectories", ordered_json::array()}};
    for (const auto& t : trajectories) all["trajectories"].push_back(to_json(t));
    // Text of a foreign file may be no UTF-8.
    out << all.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
    return 0;
  }
  for (const auto& t : trajectories) write_text(out, t);
  return 0;
}

}  // namespace tandem
