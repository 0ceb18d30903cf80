#include "src/compare/pair.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "src/base/text.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

namespace {

// Sizes from /load/config (as Tandem echoes it, or a Hugging Face config.json), 0 where it does not say.
std::int64_t size_in(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

double rms_of(const Trajectory::Load& load, const char* name) {
  for (std::size_t i = 0; i < load.name.size() && i < load.rms.size(); ++i)
    if (load.name[i] == name) return load.rms[i];
  return 0.0;
}

// |h| |w| of a row of the head: after the last norm a channel's root mean square is that of its weights.
double logit_scale(const Trajectory& t, std::int64_t hidden) {
  if (!t.load) return 0.0;
  const double head = rms_of(*t.load, "lm_head.weight");
  return static_cast<double>(hidden) * (head > 0.0 ? head : rms_of(*t.load, "model.embed_tokens.weight")) *
         rms_of(*t.load, "model.norm.weight");
}

double largest_logit(const Trajectory& t) {
  double largest = 0.0;
  if (!t.probe || t.probe->rows == 0) return largest;
  const auto k = static_cast<std::size_t>(t.probe->tokens.size());
  for (std::size_t i = 0; i < k && i < t.probe->target_logit.size(); ++i)
    largest = std::fmax(largest, std::abs(t.probe->target_logit[i]));
  for (std::size_t i = 0; i < k * kTopLogits && i < t.probe->topk_logit.size(); ++i)
    largest = std::fmax(largest, std::abs(t.probe->topk_logit[i]));
  return largest;
}

std::optional<ModelSizes> sizes_of(const Trajectory& t) {
  if (!t.load || !t.adapter || !t.render) return std::nullopt;
  const auto config = nlohmann::json::parse(t.load->config, nullptr, false);
  if (!config.is_object()) return std::nullopt;
  ModelSizes m;
  m.layers = size_in(config, "num_hidden_layers");
  m.hidden = size_in(config, "hidden_size");
  m.intermediate = size_in(config, "intermediate_size");
  m.heads = size_in(config, "num_attention_heads");
  m.head_dim = size_in(config, "head_dim");
  if (m.head_dim == 0 && m.heads > 0) m.head_dim = m.hidden / m.heads;
  for (const std::int64_t n : t.render->n_ids) m.longest = std::max(m.longest, n);
  for (const auto& [rows, columns] : t.adapter->shapes) m.n_adapter += rows * columns;
  m.logit_scale = std::fmax(logit_scale(t, m.hidden), largest_logit(t));
  for (const std::int64_t size : {m.layers, m.hidden, m.intermediate, m.heads, m.head_dim, m.longest})
    if (size <= 0 || size > (1 << 24)) return std::nullopt;
  if (m.layers > 10'000 || !(m.logit_scale > 0.0) || !std::isfinite(m.logit_scale)) return std::nullopt;
  return m;
}

// SPEC.md, "execution": the same bits for equal spec, precision, batch.micro, build and CPU or GPU model. Of
// the CPU's model only the host can tell.
bool promised_equal(const Run& a, const Run& b) {
  if (a.spec.empty() || a.t.spec_text != b.t.spec_text || a.t.stack != b.t.stack) return false;
  for (const char* key : {"precision", "batch.micro", "build", "device", "instruction_set"}) {
    const auto x = a.execution.find(key), y = b.execution.find(key);
    if (x == a.execution.end() || y == b.execution.end() || x->second != y->second) return false;
  }
  for (const char* fact : {"arithmetic", "hosts"})
    if (a.of(fact).empty() || a.of(fact) != b.of(fact)) return false;
  return true;
}

}  // namespace

Run::Run(const Trajectory& trajectory)
    : t(trajectory),
      spec(canonical_values(trajectory.spec_text)),
      execution(canonical_values(trajectory.execution_text)) {}

std::string Run::of(const char* fact) const {
  const auto found = t.provenance.find(fact);
  return found == t.provenance.end() ? "" : found->second;
}

std::optional<std::int64_t> Run::planned() const { return integer_of(spec, "train.updates"); }

bool Run::held_out() const {
  const auto found = spec.find("data.held_out");
  return found != spec.end() && found->second != "none";
}

std::int64_t Run::n_held_out() const {
  return t.render ? static_cast<std::int64_t>(t.render->n_ids.size()) - t.render->n_train : 0;
}

CommonRows common_rows(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  CommonRows out;
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i] < b[j])) {
      if (out.only_a < 0) out.only_a = a[i];
      ++i;
    } else if (i == a.size() || b[j] < a[i]) {
      if (out.only_b < 0) out.only_b = b[j];
      ++j;
    } else {
      out.steps.push_back(a[i]);
      out.rows.emplace_back(i++, j++);
    }
  }
  return out;
}

Pair::Pair(const Trajectory& ta, const Trajectory& tb) : a(ta), b(tb) {
  if (ta.updates && tb.updates) updates = common_rows(ta.updates->step, tb.updates->step);
  if (ta.evals && tb.evals) evaluations = common_rows(ta.evals->step, tb.evals->step);
  same_bits = promised_equal(a, b);

  const auto precision = [](const Run& run) {
    const auto found = run.execution.find("precision");
    return found == run.execution.end() ? std::string() : found->second;
  };
  const auto u = roundoff_of(precision(a)), v = roundoff_of(precision(b));
  auto sizes = sizes_of(ta);
  if (!sizes) sizes = sizes_of(tb);
  if (!u || !v) {
    no_rounding =
        cat((u ? tb : ta).path.filename().string(), " does not say its precision (f32, f64, tf32, bf16)");
    return;
  }
  if (!sizes) {
    no_rounding = "neither file tells the model's sizes (/load/config, /load/rms, /render, /adapter)";
    return;
  }
  rounding.emplace(*sizes, *u, *v);
  std::vector<double> lr, norm;
  if (ta.updates && tb.updates && !tb.updates->lr.empty() && !tb.updates->grad_norm.empty())
    for (std::size_t i = 0; i < updates.rows.size(); ++i) {
      if (updates.steps[i] != static_cast<std::int64_t>(i) + 1) break;  // rounding is followed from the start
      lr.push_back(tb.updates->lr[updates.rows[i].second]);
      norm.push_back(tb.updates->grad_norm[updates.rows[i].second]);
    }
  rounding->follow(lr, norm);
}

std::int64_t Pair::samples_of(std::int64_t i) const {
  const auto& n = b.t.updates->n_samples;
  return n.empty() ? 1 : n[updates.rows[static_cast<std::size_t>(i)].second];
}

bool Presence::both(Stage stage, Step step, const std::string& name, const char* path, bool in_a, bool in_b,
                    bool required, const char* key) const {
  if (in_a && in_b) return true;
  const auto file = [](const Run& run) { return run.t.path.filename().string(); };
  // The value of `key` where a run with it records nothing: 0, or an interval longer than the run.
  const auto off = [&](const Run& run) -> std::optional<std::int64_t> {
    const auto value = key ? integer_of(run.execution, key) : std::nullopt;
    const bool interval = key && std::string_view(key).ends_with(".every");
    return value && (*value == 0 || (interval && *value > run.updates())) ? value : std::nullopt;
  };
  if (!in_a && !in_b) {
    const bool missed = required || (key && !(off(pair_.a) && off(pair_.b)));
    out_.push_back(not_checked(stage, step, name, cat("neither file has ", path), missed));
    return false;
  }
  const Run& lacking = in_a ? pair_.b : pair_.a;
  const std::string who = in_a ? "B" : "A";
  if (const auto value = off(lacking))
    out_.push_back(
        not_checked(stage, step, name, cat(who, " has no ", path, ": it ran with ", key, " = ", *value)));
  else
    out_.push_back(not_checked(stage, step, name, cat(who, " (", file(lacking), ") has no ", path), true));
  return false;
}

std::vector<std::string> differing_values(const Values& a, const Values& b) {
  std::vector<std::string> out;
  Values all = a;
  all.insert(b.begin(), b.end());
  for (const auto& [key, unused] : all) {
    const auto x = a.find(key), y = b.find(key);
    const std::string left = x == a.end() ? "(not there)" : x->second,
                      right = y == b.end() ? "(not there)" : y->second;
    if (left != right) out.push_back(cat(key, ": ", left, " / ", right));
  }
  return out;
}

}  // namespace tandem
