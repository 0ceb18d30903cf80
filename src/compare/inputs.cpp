// Levels 1 (/ops), 2 and 3: what was read and made before any training.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/contained.hpp"
#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/compare/checks.hpp"
#include "src/compare/numbers.hpp"

namespace tandem {

namespace {

using Load = Trajectory::Load;
using Render = Trajectory::Render;
using nlohmann::json;

std::string shape_text(const std::vector<std::int64_t>& shape) { return cat("[", joined(shape), "]"); }

// Rows of A and B with the same name; the others are failures.
std::vector<std::pair<std::size_t, std::size_t>> same_names(const std::vector<std::string>& a,
                                                            const std::vector<std::string>& b, Check& check) {
  std::map<std::string, std::size_t> rows;
  for (std::size_t i = 0; i < b.size(); ++i) rows[b[i]] = i;
  std::vector<std::pair<std::size_t, std::size_t>> out;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto found = rows.find(a[i]);
    check.equal(found != rows.end(), -1, [&] { return cat(a[i], " is in A alone"); });
    if (found == rows.end()) continue;
    out.emplace_back(i, found->second);
    rows.erase(found);
  }
  for (const auto& [name, unused] : rows)
    check.equal(false, -1, [&name = name] { return cat(name, " is in B alone"); });
  return out;
}

void base_tensors(const Presence& presence, const Load& a, const Load& b, Observations& out) {
  constexpr const char* kName = "base tensors";
  if (!presence.both(Stage::kLoading, Step::kState, kName, "/load/name", !a.name.empty(), !b.name.empty(),
                     true))
    return;
  Check check(Stage::kLoading, Step::kState, kName, Outcome::kExact);
  const auto rows = same_names(a.name, b.name, check);
  for (const auto& [i, j] : rows) {
    const auto place = [&, i = i, j = j](const char* what, const std::string& x, const std::string& y) {
      return [=, &a] { return cat(a.name[i], ": ", what, " ", x, " in A, ", y, " in B"); };
    };
    if (!a.digest.empty() && !b.digest.empty())
      check.equal(a.digest[i] == b.digest[j], -1, [&, i = i] { return cat(a.name[i], ": other bytes"); });
    if (!a.shape.empty() && !b.shape.empty())
      check.equal(a.shape[i] == b.shape[j], -1,
                  place("shape", shape_text(a.shape[i]), shape_text(b.shape[j])));
    if (!a.dtype.empty() && !b.dtype.empty())
      check.equal(a.dtype[i] == b.dtype[j], -1, place("dtype", a.dtype[i], b.dtype[j]));
  }
  check.say(cat(counted(rows.size(), "tensor"), ": names, shapes, dtypes, digests"));
  out.push_back(check.result());
  presence.both(Stage::kLoading, Step::kState, "digests of base tensors", "/load/digest", !a.digest.empty(),
                !b.digest.empty(), true) &&
      presence.both(Stage::kLoading, Step::kState, "shapes of base tensors", "/load/shape", !a.shape.empty(),
                    !b.shape.empty(), true) &&
      presence.both(Stage::kLoading, Step::kState, "dtypes of base tensors", "/load/dtype", !a.dtype.empty(),
                    !b.dtype.empty(), true);
}

// Means and root mean squares of equal values, summed in double in any order: n u of the sum of magnitudes,
// which is at most n rms.
void base_statistics(const Presence& presence, const Load& a, const Load& b, Observations& out) {
  constexpr const char* kName = "means and rms of base tensors";
  if (!presence.both(Stage::kLoading, Step::kState, kName, "/load/{mean, rms}",
                     !a.mean.empty() && !a.rms.empty(), !b.mean.empty() && !b.rms.empty(), true) ||
      a.name.empty() || b.name.empty())
    return;
  Check ignored(Stage::kLoading, Step::kState, kName, Outcome::kExact);
  Check check(Stage::kLoading, Step::kState, kName, Outcome::kBound, "of the rms");
  for (const auto& [i, j] : same_names(a.name, b.name, ignored)) {
    double n = 1.0;
    if (!a.shape.empty())
      for (const std::int64_t size : a.shape[i]) n *= static_cast<double>(size);
    const double difference = std::fmax(std::abs(a.mean[i] - b.mean[j]), std::abs(a.rms[i] - b.rms[j]));
    const bool bad = std::isnan(a.mean[i] - b.mean[j]) || std::isnan(a.rms[i] - b.rms[j]);
    const double scale = std::fmax(std::abs(b.rms[j]), 1e-300);
    check.within(bad ? std::nan("") : difference / scale, std::fmax(n, 16.0) * 0x1p-53, -1,
                 [&, i = i] { return a.name[i]; });
  }
  out.push_back(check.result());
}

// Keys that both echo. The longest text that the model was made for is no part of what is computed, and a
// stack may echo more than another.
void configuration(const Presence& presence, const Load& a, const Load& b, bool same_bits,
                   Observations& out) {
  constexpr const char* kName = "model configuration as read";
  if (!presence.both(Stage::kLoading, Step::kState, kName, "/load/config", !a.config.empty(),
                     !b.config.empty(), true))
    return;
  const json x = json::parse(a.config, nullptr, false), y = json::parse(b.config, nullptr, false);
  Check check(Stage::kLoading, Step::kState, kName, Outcome::kExact);
  if (!x.is_object() || !y.is_object()) {
    check.equal(false, -1,
                [&] { return cat("/load/config of ", x.is_object() ? "B" : "A", " is no JSON object"); });
  } else {
    std::vector<std::string> alone;
    for (const auto* both : {&x, &y})
      for (const auto& [key, value] : both->items())
        if (key != "max_position_embeddings" && !(both == &x ? y : x).contains(key)) {
          alone.push_back(cat(key, " is in ", both == &x ? "A" : "B", " alone"));
          if (same_bits) check.equal(false, -1, [&] { return alone.back(); });
        }
    if (!alone.empty() && !same_bits)
      out.push_back(not_checked(Stage::kLoading, Step::kState, cat(kName, ", other keys"), joined(alone)));
    for (const auto& [key, value] : x.items())
      if (key != "max_position_embeddings" && y.contains(key))
        check.equal(value == y[key], -1, [&, &key = key, &value = value] {
          return cat(key, " ", value.dump(), " in A, ", y[key].dump(), " in B");
        });
    if (check.checked() == 0) {
      out.push_back(not_checked(Stage::kLoading, Step::kState, kName, "the two echo no key in common", true));
      return;
    }
    check.say(counted(check.checked(), "key"));
  }
  out.push_back(check.result());
}

// Digests of weights in memory: those of float32 tensors are the files' own; others are compared where both
// files tell them.
void memory_of(const Load& load, const char* who, Check& check) {
  if (!load.memory) return;
  std::map<std::int64_t, std::size_t> first;
  for (std::size_t r = 0; r < load.memory->tensor.size() && r < load.memory->digest.size(); ++r) {
    const auto i = static_cast<std::size_t>(load.memory->tensor[r]);
    const std::int64_t step = r < load.memory->step.size() ? load.memory->step[r] : 0;
    const auto place = [&](const char* what) {
      return [=, &load] { return cat(who, ", ", load.name[i], " after update ", step, ": ", what); };
    };
    if (i < load.dtype.size() && i < load.digest.size() && load.dtype[i] == "F32")
      check.equal(load.memory->digest[r] == load.digest[i], step, place("not the file's values"));
    const auto [known, fresh] = first.try_emplace(load.memory->tensor[r], r);
    if (!fresh)
      check.equal(load.memory->digest[r] == load.memory->digest[known->second], step,
                  place("not what it was before"));
  }
}

void memory(const Load& a, const Load& b, Observations& out) {
  constexpr const char* kName = "base weights in memory";
  const auto has = [](const Load& load) { return load.memory && !load.memory->digest.empty(); };
  if (!has(a) && !has(b)) {
    out.push_back(not_checked(Stage::kLoading, Step::kState, kName,
                              "neither file has /load/memory (runs that audit record it)"));
    return;
  }
  Check check(Stage::kLoading, Step::kState, kName, Outcome::kExact);
  memory_of(a, "A", check);
  memory_of(b, "B", check);
  if (has(a) && has(b)) {
    std::map<std::string, std::string> digests;
    for (std::size_t r = 0; r < a.memory->digest.size() && r < a.memory->tensor.size(); ++r)
      digests.emplace(a.name[static_cast<std::size_t>(a.memory->tensor[r])], a.memory->digest[r]);
    for (std::size_t r = 0; r < b.memory->digest.size() && r < b.memory->tensor.size(); ++r) {
      const std::string& name = b.name[static_cast<std::size_t>(b.memory->tensor[r])];
      if (const auto found = digests.find(name); found != digests.end())
        check.equal(found->second == b.memory->digest[r], r < b.memory->step.size() ? b.memory->step[r] : 0,
                    [&] { return cat(name, ": other values in A and in B"); });
    }
  }
  if (check.checked() == 0) {
    out.push_back(
        not_checked(Stage::kLoading, Step::kState, kName,
                    "read once each, in a dtype whose digests in memory cannot be told from the file's"));
    return;
  }
  check.say(counted(check.checked(), "reading"));
  out.push_back(check.result());
}

// The first token that differs, where both files hold the samples.
std::string first_token(const Trajectory& a, const Trajectory& b, std::int64_t sample) {
  try {
    const auto read = [&](const Trajectory& t) {
      run_contained(t.path, [&] {
        read_rendered_sample(t.path, sample);
        return std::string();
      });
      return read_rendered_sample(t.path, sample);
    };
    const auto x = read(a), y = read(b);
    if (!x || !y)
      return "the files do not hold the token ids (`tandem render --digest --with-ids` writes them)";
    const std::size_t n = std::max(x->ids.size(), y->ids.size());
    const auto cell = [](const RenderedSample& s, std::size_t p) {
      if (p >= s.ids.size()) return std::string("nothing");
      return cat("id ", s.ids[p], p < s.targets.size() && s.targets[p] ? " (scored)" : "");
    };
    for (std::size_t p = 0; p < n; ++p)
      if (cell(*x, p) != cell(*y, p))
        return cat("first at token ", p, ": ", cell(*x, p), " in A, ", cell(*y, p), " in B");
    return "token by token they are equal: a digest is not that of its ids";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string sample_place(const Render& render, std::size_t i) {
  const auto row = static_cast<std::int64_t>(i);
  return row < render.n_train ? cat("training sample ", row) : cat("held-out sample ", row - render.n_train);
}

template <class T>
void samples_column(const Presence& presence, const Pair& pair, const char* name, const char* path,
                    const std::vector<T>& x, const std::vector<T>& y, bool tokens, Observations& out) {
  if (!presence.both(Stage::kRendering, Step::kState, name, path, !x.empty(), !y.empty(), true)) return;
  const Render& render = *pair.a.t.render;
  Check check(Stage::kRendering, Step::kState, name, Outcome::kExact);
  check.equal(x.size() == y.size(), -1, [&] { return cat(x.size(), " samples in A, ", y.size(), " in B"); });
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    check.equal(x[i] == y[i], -1, [&] {
      const std::string place = sample_place(render, i);
      return tokens ? cat(place, ": ", first_token(pair.a.t, pair.b.t, static_cast<std::int64_t>(i)))
                    : cat(place, ": ", x[i], " in A, ", y[i], " in B");
    });
  check.say(counted(x.size(), "sample"));
  out.push_back(check.result());
}

}  // namespace

void check_operators(const Pair& pair, Observations& out) {
  constexpr const char* kName = "operators one by one";
  if (!pair.a.t.ops && !pair.b.t.ops) {
    out.push_back(not_checked(Stage::kOperators, Step::kState, kName, "neither file has /ops"));
    return;
  }
  Check check(Stage::kOperators, Step::kState, kName, Outcome::kBound, "of the bound");
  for (const auto& [run, who] : {std::pair(&pair.a, "A"), std::pair(&pair.b, "B")}) {
    if (!run->t.ops) continue;
    const auto& ops = *run->t.ops;
    for (std::size_t i = 0; i < std::min({ops.name.size(), ops.error.size(), ops.bound.size()}); ++i)
      check.within(ops.error[i] == 0.0 ? 0.0 : ops.error[i] / ops.bound[i], 1.0, -1,
                   [&, who = who] { return cat(who, ", ", ops.name[i]); });
  }
  if (check.checked() == 0)
    out.push_back(not_checked(Stage::kOperators, Step::kState, kName, "/ops is empty", true));
  else
    out.push_back(check.result());
}

void check_loading(const Pair& pair, Observations& out) {
  const Presence presence(pair, out);
  if (!presence.both(Stage::kLoading, Step::kState, "loading", "/load", pair.a.t.load.has_value(),
                     pair.b.t.load.has_value(), true))
    return;
  const Load &a = *pair.a.t.load, &b = *pair.b.t.load;
  base_tensors(presence, a, b, out);
  configuration(presence, a, b, pair.same_bits, out);
  base_statistics(presence, a, b, out);
  memory(a, b, out);
}

void check_rendering(const Pair& pair, Observations& out) {
  const Presence presence(pair, out);
  if (!presence.both(Stage::kRendering, Step::kState, "rendering", "/render", pair.a.t.render.has_value(),
                     pair.b.t.render.has_value(), true))
    return;
  const Render &a = *pair.a.t.render, &b = *pair.b.t.render;
  Check counts(Stage::kRendering, Step::kState, "number of training samples", Outcome::kExact);
  counts.equal(a.n_train == b.n_train, -1, [&] { return cat(a.n_train, " in A, ", b.n_train, " in B"); });
  out.push_back(counts.result());
  samples_column(presence, pair, "samples", "/render/digest", a.digest, b.digest, true, out);
  samples_column(presence, pair, "tokens of each sample", "/render/n_ids", a.n_ids, b.n_ids, false, out);
  samples_column(presence, pair, "scored tokens of each sample", "/render/n_targets", a.n_targets,
                 b.n_targets, false, out);
  samples_column(presence, pair, "last scored token of each sample", "/render/last_target_id",
                 a.last_target_id, b.last_target_id, false, out);
  if (presence.both(Stage::kRendering, Step::kState, "template", "/render/template_digest",
                    !a.template_digest.empty(), !b.template_digest.empty(), true)) {
    Check check(Stage::kRendering, Step::kState, "template", Outcome::kExact);
    check.equal(a.template_digest == b.template_digest, -1,
                [&] { return cat(a.template_digest, " in A, ", b.template_digest, " in B"); });
    out.push_back(check.result());
  }
}

}  // namespace tandem
