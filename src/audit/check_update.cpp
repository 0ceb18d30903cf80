#include "src/audit/check_update.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "src/base/sha256.hpp"
#include "src/base/tensor_difference.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

constexpr double kU = 0x1p-24;     // of float32
constexpr double kDoubleUlps = 4;  // of a handful of operations in double
constexpr double kNotComputed = std::numeric_limits<double>::quiet_NaN();

// Faults in the order of their gravity, each with its words.
class Faults {
 public:
  void add(Verdict verdict, const std::string& text) {
    notes_[static_cast<int>(verdict)] += (notes_[static_cast<int>(verdict)].empty() ? "" : "; ") + text;
  }
  // One line for a kind of fault that many tensors may show: how many, and the worst.
  void add_worst(Verdict verdict, std::int64_t count, const std::string& worst) {
    if (count > 0) add(verdict, count == 1 ? worst : cat(worst, " (and ", count - 1, " more tensors)"));
  }
  Verdict verdict() const {
    for (const Verdict v : {Verdict::kExact, Verdict::kBound, Verdict::kCalibrated})
      if (!notes_[static_cast<int>(v)].empty()) return v;
    return Verdict::kPass;
  }
  std::string note() const {
    std::string all;
    for (const Verdict v : {Verdict::kExact, Verdict::kBound, Verdict::kCalibrated}) {
      const std::string& text = notes_[static_cast<int>(v)];
      if (!text.empty()) all += (all.empty() ? "" : "; ") + text;
    }
    return all;
  }

 private:
  std::string notes_[4];
};

// NaN is the worst of all.
bool worse(double error, double worst) { return std::isnan(error) || error > worst; }

bool within_ulps(double a, double b, double ulps) {
  return std::abs(a - b) <=
         ulps * std::numeric_limits<double>::epsilon() * std::max(std::abs(a), std::abs(b));
}

std::vector<std::size_t> sizes_of(const std::vector<mirror::AdapterTensor>& tensors) {
  std::vector<std::size_t> sizes;
  for (const auto& tensor : tensors) sizes.push_back(static_cast<std::size_t>(tensor.rows * tensor.columns));
  return sizes;
}

mirror::Tensors widened(const FlatTensors& flat, std::span<const std::size_t> sizes) {
  mirror::Tensors wide;
  for (const std::span<const float> tensor : cut(flat, sizes))
    wide.emplace_back(tensor.begin(), tensor.end());
  return wide;
}

std::string ids_text(std::span<const std::int64_t> ids) {
  std::string text;
  for (std::size_t i = 0; i < ids.size() && i < 8; ++i) text += cat(i ? " " : "", ids[i]);
  return ids.size() > 8 ? text + " ..." : text;
}

std::span<const std::int64_t> audited_samples(const UpdateJob& job) {
  const std::span<const std::int64_t> all = job.sample_ids;
  if (job.scope == AuditScope::kBatch) return all;
  return all.subspan(static_cast<std::size_t>(job.micro_begin),
                     static_cast<std::size_t>(job.micro_end - job.micro_begin));
}

struct Check {
  const mirror::Mirror& mirror;
  const UpdateJob& job;
  const Thresholds& thresholds;
  const std::vector<mirror::AdapterTensor>& tensors = mirror.adapter_tensors();
  const std::vector<std::size_t> sizes = sizes_of(tensors);
  AuditOutcome out = {};
  Faults faults = {};

  // False where the samples are none of the training set's: nothing can be computed of them.
  bool inputs() {
    const auto& samples = mirror.training_samples();
    const std::vector<std::int64_t> own = mirror.batch(job.step);
    if (own != job.sample_ids)
      faults.add(Verdict::kExact,
                 cat("the batch is samples ", ids_text(job.sample_ids), ", by the spec ", ids_text(own)));
    std::int64_t count = 0, differ = 0;
    std::string text;
    for (std::size_t i = 0; i < job.sample_ids.size(); ++i) {
      const std::int64_t id = job.sample_ids[i];
      if (id < 0 || id >= static_cast<std::int64_t>(samples.size())) return false;
      const mirror::RenderedSample& sample = samples[static_cast<std::size_t>(id)];
      count += sample.n_targets;
      if (i < job.sample_digests.size() && job.sample_digests[i] != sample.digest && differ++ == 0)
        text = cat("sample ", id, " (line ", sample.line,
                   ") has other token ids or target marks than by the mirror");
    }
    if (differ > 1) text += cat(" (and ", differ - 1, " more samples)");
    if (differ > 0) faults.add(Verdict::kExact, text);
    if (count != job.n_targets)
      faults.add(Verdict::kExact, cat(job.n_targets, " target tokens, by the spec ", count));
    const double lr = mirror.lr(job.step);
    if (!within_ulps(lr, job.lr, kDoubleUlps))
      faults.add(Verdict::kBound, cat("learning rate ", job.lr, ", by the spec ", lr));
    if (!job.config.empty())
      if (const std::string keys = differing_keys(job.config, mirror.config_echo()); !keys.empty())
        faults.add(Verdict::kExact, cat("the model's configuration was read otherwise: ", keys));
    if (job.base_tensor)
      if (const std::string weights = differing_weights(mirror, std::span(&*job.base_tensor, 1));
          !weights.empty())
        faults.add(Verdict::kExact, weights);
    return true;
  }

  // What an update starts from is what the one before left, and the first one's what the spec says.
  void state() {
    if (!job.state_kept)
      faults.add(Verdict::kExact, "adapter or moments are not what the update before left");
    const auto all_zero = [](const FlatTensors& flat) {
      return std::all_of(flat.begin(), flat.end(), [](float x) { return x == 0.0f; });
    };
    // Where every gradient was zero so far, this one is, too.
    if (job.steps_before > 0 && all_zero(job.m) && all_zero(job.v) && !all_zero(job.gradient))
      faults.add(Verdict::kExact, cat("all moments are zero after ", job.steps_before, " optimiser steps"));
    if (job.step > 1 || !job.starts_as_specified) return;
    if (!all_zero(job.m) || !all_zero(job.v))
      faults.add(Verdict::kExact, "moments are not zero before the first update");
    const mirror::AdapterState first = mirror.initial();
    const auto spans = cut(job.adapter, sizes);
    for (std::size_t p = 0; p < tensors.size(); ++p)
      for (std::size_t i = 0; i < spans[p].size(); ++i)
        if (spans[p][i] != static_cast<float>(first.adapter[p][i]))
          return faults.add(Verdict::kExact,
                            cat("the first adapter is not the spec's: ", tensors[p].name, " differs"));
  }

  void gradient() {
    const bool micro = job.scope == AuditScope::kMicroBatch;
    const std::span<const std::int64_t> ids = audited_samples(job);
    mirror::BatchGradient reference = mirror.gradient(widened(job.adapter, sizes), ids, job.step);
    const double count = micro ? 1.0 : static_cast<double>(reference.n_scored);
    const double nll = micro ? job.micro_nll : job.loss;
    if (reference.n_scored == 0) return nothing_scored();
    for (auto& tensor : reference.gradient)
      for (double& g : tensor) g /= count;
    for (double& square : reference.term_squares) square /= count * count;
    const double loss = reference.nll_sum / count;
    out.loss_error = std::abs(nll - loss) / loss;
    if (!(out.loss_error <= thresholds.loss))
      faults.add(Verdict::kCalibrated, cat("loss ", nll, ", by the mirror ", loss, ": relative error ",
                                           out.loss_error, " above ", thresholds.loss));
    compare_tensors(micro ? job.micro_gradient : job.gradient, reference);
  }

  void nothing_scored() {
    out.loss_error = out.norm_error = kNotComputed;
    out.relative_error.assign(tensors.size(), 0.0);
    out.projection.assign(tensors.size(), 1.0);
    const FlatTensors& found = job.scope == AuditScope::kMicroBatch ? job.micro_gradient : job.gradient;
    for (const float g : found)
      if (g != 0.0f) return faults.add(Verdict::kExact, "a gradient although nothing is scored");
  }

  double limit_of(std::size_t p, double norm, double square) const {
    const double by_terms = norm > 0.0 ? thresholds.term_error[p] * std::sqrt(square) / norm : 0.0;
    return std::max(thresholds.relative_error[p], by_terms);
  }

  void compare_tensors(const FlatTensors& found, const mirror::BatchGradient& batch) {
    const mirror::Tensors& reference = batch.gradient;
    const auto spans = cut(found, sizes);
    const TensorFloors floors(tensors, reference);
    double norm_square = 0.0, allowed_square = 0.0;
    std::int64_t zeros = 0, far = 0, scaled = 0;
    double worst_far = 0.0, worst_scaled = 0.0;
    std::string zero_text, far_text, scaled_text;
    for (std::size_t p = 0; p < tensors.size(); ++p) {
      const TensorDifference difference = tensor_difference(spans[p], reference[p], floors.of(p));
      const double limit = limit_of(p, difference.norm + floors.of(p), batch.term_squares[p]);
      out.bound[p] = limit;
      const double d = difference.relative_error, off = difference.bias(floors.of(p));
      out.relative_error.push_back(d);
      out.projection.push_back(difference.projection);
      norm_square += difference.norm * difference.norm;
      allowed_square += std::pow(limit * (difference.norm + floors.of(p)), 2);
      // Rounding, too, makes zero of next to nothing, or the reverse.
      if ((difference.norm == 0.0) != difference.all_zero && !(d <= limit)) {
        if (zeros++ == 0)
          zero_text =
              cat(tensors[p].name, ": its gradient is ", difference.all_zero ? "exactly zero" : "not zero",
                  ", by the mirror it is ", difference.all_zero ? "not" : "exactly zero");
        continue;
      }
      if (!(d <= limit) && ++far > 0 && worse(d / limit, worst_far)) {
        worst_far = d / limit;
        far_text = cat(tensors[p].name, ": gradient's relative error ", d, " above ", limit);
      }
      // Rounding errors are nearly orthogonal to the gradient: by chance s - 1 is about d / sqrt(n).
      // Errors that all elements share show here as far as d may show them: nothing of a gradient that rounding
      // left at zero, though others of its kind have a bias.
      const double shared =
          thresholds.relative_error[p] > 0.0 ? thresholds.bias[p] / thresholds.relative_error[p] : 0.0;
      const double chance = 6 * d / std::sqrt(static_cast<double>(spans[p].size())) + shared * limit;
      if (!(off <= chance) && ++scaled > 0 && worse(off / chance, worst_scaled)) {
        worst_scaled = off / chance;
        scaled_text = cat(tensors[p].name, ": gradient is the mirror's times ", difference.projection,
                          ", by chance within ", chance, " of 1");
      }
    }
    faults.add_worst(Verdict::kExact, zeros, zero_text);
    faults.add_worst(Verdict::kCalibrated, far, far_text);
    faults.add_worst(Verdict::kCalibrated, scaled, scaled_text);
    if (job.scope == AuditScope::kMicroBatch) {
      out.norm_error = kNotComputed;
      return;
    }
    const double norm = std::sqrt(norm_square);
    if (norm == 0.0 && job.norm == 0.0) return;
    out.norm_error = std::abs(job.norm - norm) / norm;
    const double limit = std::sqrt(allowed_square) / norm;
    if (!(out.norm_error <= limit))
      faults.add(Verdict::kCalibrated, cat("gradient norm ", job.norm, ", by the mirror ", norm,
                                           ": relative error ", out.norm_error, " above ", limit));
  }

  // What follows from native's own numbers.
  void norm_and_clip() {
    if (job.n_targets == 0) return;
    double square = 0.0;
    for (const float g : job.gradient) square += static_cast<double>(g) * static_cast<double>(g);
    // Sums of n squares in double, in any order: n u_double, and far less in practice.
    const double limit = static_cast<double>(job.gradient.size()) * 0x1p-53;
    if (!(std::abs(job.norm - std::sqrt(square)) <= limit * std::sqrt(square)))
      faults.add(Verdict::kBound,
                 cat("gradient norm ", job.norm, ", of its own gradient ", std::sqrt(square)));
    if (const double clip = mirror.clip_factor(job.norm); !within_ulps(job.clip, clip, kDoubleUlps))
      faults.add(Verdict::kBound, cat("clip factor ", job.clip, ", by the spec ", clip));
  }

  void optimiser() {
    mirror::AdapterState state{widened(job.adapter, sizes), widened(job.m, sizes), widened(job.v, sizes),
                               job.steps_before};
    if (job.n_targets > 0) mirror.adamw(state, widened(job.gradient, sizes), job.clip, job.lr);
    const auto p_before = cut(job.adapter, sizes), m_before = cut(job.m, sizes);
    const auto p = cut(job.adapter_after, sizes), m = cut(job.m_after, sizes), v = cut(job.v_after, sizes);
    std::int64_t count = 0;
    double worst = 0.0;
    std::string text;
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      double largest = 0.0;
      const auto look = [&](double found, double reference, double size) {
        // Beside it float32 has no normal numbers.
        const double error = std::abs(found - reference) / (size + 0x1p-126);
        if (worse(error, largest)) largest = error;
      };
      for (std::size_t i = 0; i < p[k].size(); ++i) {
        look(p[k][i], state.adapter[k][i],
             std::abs(p_before[k][i]) + std::abs(state.adapter[k][i] - p_before[k][i]));
        look(m[k][i], state.m[k][i], std::max<double>(std::abs(m_before[k][i]), std::abs(state.m[k][i])));
        look(v[k][i], state.v[k][i], state.v[k][i]);
      }
      out.optimizer_error.push_back(largest);
      if (!(largest <= kStepUnits * kU) && ++count > 0 && worse(largest, worst)) {
        worst = largest;
        text = cat(tensors[k].name, ": AdamW's step is off by ", largest, " of its size, at most ",
                   kStepUnits * kU);
      }
    }
    faults.add_worst(job.n_targets > 0 ? Verdict::kBound : Verdict::kExact, count, text);
  }
};

}  // namespace

AuditRow AuditOutcome::row() const {
  AuditRow row;
  row.step = step;
  row.scope = scope;
  row.micro_batch = micro_batch;
  row.loss_error = loss_error;
  row.norm_error = norm_error;
  row.relative_error = relative_error;
  row.projection = projection;
  row.bound = bound;
  row.optimizer_error = optimizer_error;
  row.verdict = verdict;
  row.note = note;
  return row;
}

std::string differing_keys(const std::string& native, const std::string& own) {
  const auto a = nlohmann::json::parse(native, nullptr, false), b = nlohmann::json::parse(own);
  if (!a.is_object()) return "native's is no JSON object";
  std::string keys;
  for (const auto& [key, value] : b.items())
    if (key != "max_position_embeddings" && (!a.contains(key) || a[key] != value))
      keys += cat(keys.empty() ? "" : ", ", key, " ", a.value(key, nlohmann::json()).dump(),
                  ", by the mirror ", value.dump());
  return keys;
}

std::string differing_weights(const mirror::Mirror& mirror, std::span<const BaseTensorInMemory> tensors) {
  std::int64_t differ = 0;
  std::string first;
  for (const BaseTensorInMemory& tensor : tensors)
    if (mirror.memory_digest(tensor.name) != tensor.digest && differ++ == 0)
      first = cat("base tensor ", tensor.name, " in memory is not the model's");
  return differ > 1 ? cat(first, " (and ", differ - 1, " more tensors)") : first;
}

AuditOutcome check_update(const mirror::Mirror& mirror, const UpdateJob& job, const Thresholds& thresholds) {
  Check check{mirror, job, thresholds};
  check.out.step = job.step;
  check.out.scope = job.scope;
  check.out.micro_batch = job.micro_batch;
  check.out.bound = thresholds.relative_error;
  if (check.inputs()) {
    check.state();
    check.gradient();
    check.norm_and_clip();
    if (!job.adapter_after.empty()) check.optimiser();
  } else {
    check.out.loss_error = check.out.norm_error = kNotComputed;
  }
  check.out.verdict = check.faults.verdict();
  check.out.note = check.faults.note();
  return std::move(check.out);
}

AuditOutcome audit_update(const mirror::Mirror& mirror, const UpdateJob& job, const std::string& precision,
                          Thresholds& thresholds, std::int64_t& measured) {
  const AuditOutcome first = check_update(mirror, job, thresholds);
  if (first.verdict != Verdict::kCalibrated) return first;
  thresholds.raise_to(measure_thresholds(mirror, precision,
                                         widened(job.adapter, sizes_of(mirror.adapter_tensors())),
                                         audited_samples(job), job.step));
  ++measured;
  return check_update(mirror, job, thresholds);
}

}  // namespace tandem
