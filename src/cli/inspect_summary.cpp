#include "src/cli/inspect_summary.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <vector>

#include "src/base/sha256.hpp"
#include "src/base/text.hpp"
#include "src/cli/inspect_figures.hpp"

namespace tandem {

namespace {

using nlohmann::ordered_json;

std::string digest_state(const std::string& text, const std::string& digest) {
  if (digest.empty()) return "absent";
  return sha256_hex(text) == digest ? "matches" : "DIFFERS";
}

std::int64_t updates_of(const Trajectory& t) { return t.updates ? t.updates->rows : 0; }

// What a level (1 to 4) has to look at, and what it lacks.
struct Level {
  int number;
  const char* name;
  std::vector<std::string> holds, lacks;
};

Level loading(const Trajectory& t) {
  Level level{2, "loading", {}, {}};
  if (!t.load) {
    level.lacks = {"load"};
    return level;
  }
  level.holds = {counted(t.load->name.size(), "base tensor")};
  if (t.load->memory)
    level.holds.push_back(counted(t.load->memory->step.size(), "reading") + " of them in memory");
  else
    level.lacks = {"load/memory"};
  return level;
}

Level rendering(const Trajectory& t) {
  Level level{3, "rendering", {}, {}};
  if (!t.render) {
    level.lacks = {"render"};
    return level;
  }
  const auto samples = static_cast<std::int64_t>(
      std::max({t.render->digest.size(), t.render->n_ids.size(), t.render->n_targets.size()}));
  level.holds = {cat(t.render->n_train, " training and ", samples - t.render->n_train, " held-out samples")};
  return level;
}

Level trajectory(const Trajectory& t) {
  Level level{4, "trajectory", {}, {}};
  const auto part = [&](bool there, std::int64_t count, const char* what, const char* group) {
    if (there)
      level.holds.push_back(counted(count, what));
    else
      level.lacks.emplace_back(group);
  };
  part(t.updates.has_value(), updates_of(t), "update", "update");
  part(t.evals.has_value(), t.evals ? t.evals->rows : 0, "evaluation", "eval");
  part(t.observed.has_value(), t.observed ? t.observed->rows : 0, "observation", "observed");
  part(t.probe.has_value(), t.probe ? t.probe->tokens.size() : 0, "probe token", "probe");
  if (!t.activations) level.lacks.emplace_back("activation");
  part(t.audits.has_value(), t.audits ? t.audits->rows : 0, "audit", "audit");
  part(!t.snapshots.empty(), static_cast<std::int64_t>(t.snapshots.size()), "snapshot", "snapshot");
  return level;
}

std::vector<Level> levels_of(const Trajectory& t) {
  Level operators{1, "operators", {}, {}};
  if (t.ops)
    operators.holds = {counted(t.ops->name.size(), "operation")};
  else
    operators.lacks = {"ops"};
  return {operators, loading(t), rendering(t), trajectory(t)};
}

ordered_json to_json(const LossAt& at) {
  return {{"step", at.step}, {"loss", at.loss}, {"perplexity", std::exp(at.loss)}};
}

ordered_json to_json(const HeldOut& losses) {
  return {{"first", to_json(losses.first)},
          {"best", to_json(losses.best)},
          {"last", to_json(losses.last)},
          {"perplexity_change", std::exp(losses.last.loss - losses.first.loss) - 1.0},
          {"after_first", losses.after_first},
          {"below_best", losses.below_best},
          {"below_previous", losses.below_previous}};
}

ordered_json to_json(const AuditFigures& audits) {
  ordered_json verdicts = ordered_json::object();
  for (std::size_t v = 0; v < audits.verdicts.size(); ++v) verdicts[kVerdictNames[v]] = audits.verdicts[v];
  ordered_json json = {{"count", audits.count}, {"verdicts", verdicts}, {"largest", nullptr}};
  if (audits.count_of_ratios > 0)
    json["largest"] = {{"relative_error_by_bound", audits.largest_ratio},
                       {"step", audits.largest_step},
                       {"tensor", audits.largest_tensor}};
  return json;
}

void write_line(std::ostream& out, const std::string& name, const std::string& value) {
  out << "  " << std::left << std::setw(15) << name << printable_line(value) << "\n";
}

std::string loss_text(const LossAt& at) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(6) << at.loss << " at update " << at.step;
  return text.str();
}

std::string percent(double share) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << 100.0 * share << " %";
  return text.str();
}

std::string perplexity_text(const HeldOut& losses) {
  std::ostringstream text;
  const double before = std::exp(losses.first.loss), after = std::exp(losses.last.loss);
  text << std::setprecision(5) << before << " -> " << after;
  if (std::isfinite(before) && before > 0)
    text << " (" << (after < before ? "" : "+") << percent(after / before - 1.0) << ")";
  return text.str();
}

std::string improved_text(const HeldOut& losses) {
  if (losses.after_first == 0) return "";
  const auto share = [&](std::int64_t count) {
    return cat(count, " of ", losses.after_first, " (",
               percent(static_cast<double>(count) / static_cast<double>(losses.after_first)), ")");
  };
  return cat("on the best so far ", share(losses.below_best), ", on the previous ",
             share(losses.below_previous));
}

std::string audits_text(const AuditFigures& audits) {
  std::vector<std::string> counts;
  for (std::size_t v = 0; v < audits.verdicts.size(); ++v)
    if (audits.verdicts[v] > 0) counts.push_back(cat(audits.verdicts[v], " ", kVerdictNames[v]));
  std::string text = counts.empty() ? cat(audits.count) : joined(counts);
  if (audits.count_of_ratios > 0) {
    text += cat("; largest d/bound ", std::setprecision(3), audits.largest_ratio, " at update ",
                audits.largest_step);
    if (!audits.largest_tensor.empty()) text += ", " + audits.largest_tensor;
  }
  return text;
}

std::string digest_text(const std::string& text, const std::string& digest) {
  const auto state = digest_state(text, digest);
  return state == "DIFFERS"  ? digest + " (NOT the digest of the text beside it)"
         : state == "absent" ? "absent"
                             : digest;
}

// Columns that a foreign file lacks are empty.
ordered_json to_json(const Trajectory::SlowPhases& slow) {
  ordered_json list = ordered_json::array();
  for (std::size_t i = 0; i < static_cast<std::size_t>(slow.rows); ++i) {
    ordered_json one;
    const auto add = [&](const char* name, const auto& column) {
      if (i < column.size()) one[name] = column[i];
    };
    add("step", slow.step);
    add("rank", slow.rank);
    add("phase", slow.phase);
    add("factor", slow.factor);
    add("host", slow.host);
    add("seen", slow.seen);
    list.push_back(one);
  }
  return list;
}

void write_slow(std::ostream& out, const Trajectory::SlowPhases& slow) {
  for (const auto& one : to_json(slow)) {
    const auto rank = one.value("rank", std::int64_t{-1});
    write_line(out, "slow",
               cat(one.value("phase", "?"), " of ", rank < 0 ? "all ranks" : cat("rank ", rank),
                   " at update ", one.value("step", std::int64_t{0}), ": ", std::setprecision(2),
                   one.value("factor", 0.0), " times as slow; ", one.value("seen", "")));
  }
}

void write_held_out(std::ostream& out, const Trajectory& t) {
  const auto losses = held_out(t);
  if (!losses) return write_line(out, "held-out loss", "not evaluated");
  write_line(out, "held-out loss", cat("first ", loss_text(losses->first)));
  write_line(out, "", cat("best  ", loss_text(losses->best)));
  write_line(out, "", cat("last  ", loss_text(losses->last)));
  write_line(out, "perplexity", perplexity_text(*losses));
  if (losses->after_first > 0) write_line(out, "improved", improved_text(*losses));
}

}  // namespace

void write_summary(std::ostream& out, const Trajectory& t) {
  out << printable_line(t.path.string()) << "\n";
  write_line(out, "stack", cat(t.stack, ", trajectory format ", t.format_version));
  write_line(
      out, "complete",
      cat(t.complete ? "yes" : "no: the run goes on or was broken off", ", written at ", t.written_at));
  write_line(out, "spec", digest_text(t.spec_text, t.spec_digest));
  write_line(out, "execution", digest_text(t.execution_text, t.execution_digest));
  for (const auto* key : {"ranks", "threads", "hosts", "devices"})
    if (const auto found = t.provenance.find(key); found != t.provenance.end())
      write_line(out, key, found->second);
  const auto planned = planned_updates(t);
  write_line(out, "updates", planned ? cat(updates_of(t), " of ", *planned) : cat(updates_of(t)));
  write_held_out(out, t);
  if (const auto audits = audit_figures(t)) write_line(out, "audits", audits_text(*audits));
  if (t.slow) write_slow(out, *t.slow);
  if (t.evals && !t.evals->adapter_digest.empty())
    write_line(out, "adapter",
               cat(t.evals->adapter_digest.back(),
                   t.evals->step.empty() ? "" : cat(" after update ", t.evals->step.back())));
  for (const Level& level : levels_of(t)) {
    std::string text = cat(level.name, ": ", level.holds.empty() ? "absent" : joined(level.holds));
    if (!level.lacks.empty() && !level.holds.empty()) text += "; absent: " + joined(level.lacks);
    write_line(out, cat("level ", level.number), text);
  }
}

ordered_json summary_json(const Trajectory& t) {
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
      {"audits", nullptr},
      {"slow", ordered_json::array()},
      {"adapter_digest", nullptr},
      {"levels", ordered_json::array()},
      {"parts", t.parts},
      {"snapshots", ordered_json::array()},
  };
  if (const auto planned = planned_updates(t)) json["updates_planned"] = *planned;
  if (const auto losses = held_out(t)) json["held_out"] = to_json(*losses);
  if (const auto audits = audit_figures(t)) json["audits"] = to_json(*audits);
  if (t.slow) json["slow"] = to_json(*t.slow);
  if (t.evals && !t.evals->adapter_digest.empty()) json["adapter_digest"] = t.evals->adapter_digest.back();
  for (const Level& level : levels_of(t))
    json["levels"].push_back(
        {{"level", level.number}, {"name", level.name}, {"holds", level.holds}, {"absent", level.lacks}});
  for (const auto& [step, file] : t.snapshots)
    json["snapshots"].push_back({{"step", step}, {"file", file.string()}});
  return json;
}

}  // namespace tandem
