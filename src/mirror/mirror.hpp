// The mirror: a second training stack in float64, written from SPEC.md and the models' papers, that
// recomputes what a run computes. It reads the model's and the data's files itself and shares nothing with
// native but the error type, text helpers and SHA-256. README.md of this folder: what rests on what, in
// reading order.
//
// Values that belong to the adapter travel as `Tensors`: one row-major vector of doubles per adapter tensor,
// in digest order (byte order of `<module>.lora_A.weight`, `<module>.lora_B.weight`). Sample ids are 0-based
// indices into the rendered training set, as SPEC.md counts them. Updates t count from 1.
//
// Threads: a Mirror is used by one thread at a time; const functions work with up to `threads` threads, the
// caller's and others that end before the call returns. Their number changes no bit of any result. Nothing
// here uses OpenMP or MPI. Every function may throw tandem::Error: kUsage for a spec that contradicts itself,
// kInput for files.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tandem::mirror {

using Tensors = std::vector<std::vector<double>>;

struct Inputs {
  std::string spec_text;                           // canonical text (SPEC.md)
  std::filesystem::path model;                     // folder
  std::filesystem::path train;                     // JSON Lines
  std::optional<std::filesystem::path> held_out;   // given exactly where the spec has data.held_out
  std::optional<std::filesystem::path> lora_init;  // likewise lora.init
  int threads = 1;                                 // at least 1
  std::int64_t probe = 512;                        // observe.probe: at most so many tokens
  const std::atomic<bool>* cancelled = nullptr;    // once true, what is being computed ends with an exception
};

// Level 2: a base tensor as the model's file has it. The values' mean and rms are taken in double.
struct LoadedTensor {
  std::string name, digest, dtype;  // SHA-256 of its bytes in the file; "F32", "BF16" or "F16"
  std::vector<std::int64_t> shape;
  double mean, rms;
};

// Level 3: a rendered sample.
struct RenderedSample {
  std::string digest;             // SHA-256 of ids as int32, then marks as bytes
  std::int64_t n_ids, n_targets;  // n_targets: scored tokens, position >= 1
  std::int64_t last_target_id;    // of the scored ones; -1: none
  std::int64_t line;              // of the file, from 1
};

struct AdapterTensor {
  std::string name;  // model.layers.0.self_attn.q_proj.lora_A.weight
  std::int64_t rows, columns;
};

struct AdapterState {
  Tensors adapter, m, v;
  std::int64_t steps = 0;  // optimiser steps made, SPEC.md's k
};

// Of the samples asked for: sums, not means.
struct BatchGradient {
  double nll_sum = 0;
  std::int64_t n_scored = 0;
  Tensors gradient;
  // Of each tensor: its gradient is a sum of one outer product a token; this, of their squared norms. Where
  // they cancel, it is large beside the gradient's own.
  std::vector<double> term_squares;
};

struct UpdateResult {
  double loss;  // nll_sum / n_scored; NaN where nothing was scored
  std::int64_t n_scored;
  double norm;  // of the mean gradient, before clipping
  double clip, lr;
};

struct Evaluation {
  double nll_sum = 0;
  std::int64_t n_tokens = 0;
};

struct ProbeToken {
  std::int64_t sample;    // 0-based in the rendered held-out set
  std::int64_t position;  // of the scored token in its sample, >= 1
  std::int64_t target;    // its id
};

// io/FORMAT.md, "The probe", says at which positions activations are taken.
struct Probe {
  static constexpr int kTop = 8;
  std::vector<double> nll, target_logit;  // [K]
  std::vector<std::int64_t> top_id;       // [K, 8] by falling logit, then rising id; -1 beyond the vocabulary
  std::vector<double> top_logit;          // [K, 8] NaN beyond the vocabulary
  std::vector<double> activation_rms, activation_absmax;  // [L] residual stream after each layer
  std::vector<double> ba_norm;                            // [modules] s * |B A|_F, in digest order
};

// For thresholds (the reference's own rounding, Monte Carlo): the output of every operation, forward and
// backward, is multiplied element by element by 1 + unit * U(-1, 1); a product's gets besides the error of
// its sums (Perturbation::apply_to_product). Drawn from `seed` anew for each call.
struct Rounding {
  double unit;  // 2^-24 for f32
  std::uint64_t seed;
};

class Mirror {
 public:
  // Reads and renders everything; weights stay mapped. Refuses inputs whose digests are not the spec's.
  explicit Mirror(Inputs inputs);
  ~Mirror();
  Mirror(Mirror&&) noexcept;
  Mirror& operator=(Mirror&&) noexcept;

  // -- What there is --
  const std::vector<AdapterTensor>& adapter_tensors() const;    // digest order
  const std::vector<std::string>& modules() const;              // with an adapter, in byte order
  const std::vector<RenderedSample>& training_samples() const;  // [S]
  const std::vector<RenderedSample>& held_out_samples() const;
  const std::string& template_digest()
      const;                        // SHA-256 of the model's own chat template; "" where none was used
  std::string config_echo() const;  // the model's configuration as read, JSON with sorted keys
  std::int64_t updates() const;     // T
  std::int64_t eval_every() const;
  std::int64_t layers() const;
  const std::vector<std::string>& warnings() const;  // of loading and rendering, a line each
  // Reads every weight: seconds for a large model. Sorted by name. The second form: one tensor.
  std::vector<LoadedTensor> load() const;
  std::vector<std::string> tensor_names() const;
  LoadedTensor load(const std::string& name) const;
  // SHA-256 of a tensor's values as float32 in the file's order: what another stack's memory must hold
  // (/load/memory).
  std::string memory_digest(const std::string& name) const;
  std::string model_digest() const;  // the spec's, of the model's folder

  // -- Order and schedule --
  std::vector<std::int64_t> batch(std::int64_t t) const;  // sample ids of update t, in order
  double lr(std::int64_t t) const;

  // -- Training --
  AdapterState initial() const;
  // Sum over the samples of nll and of its gradient, each sample alone. t: for dropout.
  BatchGradient gradient(const Tensors& adapter, std::span<const std::int64_t> sample_ids, std::int64_t t,
                         const std::optional<Rounding>& rounding = std::nullopt) const;
  // Divides by the count, clips, makes update t's AdamW step. Non-finite loss or norm: kInput, state
  // unchanged. Count 0: no step.
  UpdateResult step(AdapterState& state, const BatchGradient& batch, std::int64_t t) const;
  // The optimiser alone: one AdamW step with a gradient already divided; clip multiplies it.
  void adamw(AdapterState& state, const Tensors& gradient, double clip, double learning_rate) const;
  double clip_factor(double norm) const;
  // 2-norm of each tensor (/observed/tensor_grad_norm), and of each tensor's change
  // (/activation/update_norm).
  std::vector<double> tensor_norms(const Tensors& tensors) const;
  std::vector<double> update_norms(const Tensors& after, const Tensors& before) const;

  // -- Evaluation; adapter nullptr: off --
  // Over the held-out set in file order. `each`, if given, is called with every scored token in order.
  Evaluation evaluate(const Tensors* adapter,
                      const std::function<void(const ProbeToken&, double nll)>& each = nullptr) const;
  // Over its first samples only, every operation rounded where that is asked for.
  Evaluation evaluate_first(std::int64_t samples, const Tensors* adapter,
                            const std::optional<Rounding>& rounding = std::nullopt) const;
  const std::vector<ProbeToken>& probe_tokens() const;  // [K] the first scored held-out tokens
  Probe probe(const Tensors& adapter) const;

  // -- Digests (SPEC.md); values are rounded to float32 --
  std::string adapter_digest(const Tensors& adapter) const;
  std::uint64_t adapter_checksum(const Tensors& adapter) const;

  // -- Expected cost, in floating-point operations --
  double gradient_flops(std::int64_t n_ids, std::int64_t n_scored) const;  // one sample
  double update_flops(std::int64_t t) const;                               // batch(t)
  double evaluation_flops() const;                                         // the held-out set once
  double evaluation_flops(std::int64_t samples) const;                     // its first samples
  // Measured now: what one thread makes of the first layer and the head on one sample, in those operations a
  // second, with all that is no product. Takes 0.2 s or one such gradient.
  double flops_per_second() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::mirror
