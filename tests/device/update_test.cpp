// An update of a small model on the device beside the CPU's, by the engines that training runs.
//
// Bounds. A rounding of a product's input, or of its result, changes what follows as the same relative change
// of the product's weights does. So the CPU computes the model again with every weight multiplied by 1 +- d,
// signs drawn: the change of a result, times (unit / d), is what one rounding of size `unit` at each product
// comes to. A result passes kRoundings of them at each product: the input as it is stored, the product's own
// sum, the result as it is stored, and what the row kernels between two products add. In float32 the unit is
// that of the longest sum: lambda sqrt(n) u, where roundings are independent (Higham and Mary 2019; 8 of
// lambda fails in 2 exp(-32) of all sums). Tensor cores may cut off instead, after every 8 terms, all in one
// direction: n/8 2^-23; and the rounding of their inputs to TF32 or bfloat16.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/device_reduction.hpp"
#include "src/base/text.hpp"
#include "src/train/cpu_engine.hpp"
#include "src/train/cuda/cuda_engine.hpp"
#include "tests/device/random_model.hpp"
#include "tests/emulation/device_matrix.hpp"

namespace tandem::testing {
namespace {

constexpr int kRoundings = 4;
constexpr int kDraws = 4;          // of signs; the largest change counts
constexpr double kShift = 0x1p-9;  // d
constexpr std::int64_t kRank = 4;
constexpr std::uint64_t kFree = std::uint64_t{1} << 32;  // bytes that the engine may plan with

struct Case {
  const char* name;
  ModelConfig config;
  std::vector<std::int64_t> lengths;  // of all samples; the first two thirds are micro-batch 0
};
const Case kCases[] = {
    {"tiny", qwen3_like(1, 64, 96, {1, 1, 64}, 61), {3, 1, 5}},
    {"two layers", qwen3_like(2, 96, 160, {3, 1, 64}, 101), {33, 1, 2, 31, 7, 9}},
#ifndef TANDEM_EMULATED
    {"two layers of Qwen3-0.6B", qwen3_like(2, 1024, 3072, {16, 8, 128}, 151936), {70, 1, 33, 31, 17, 2}},
#endif
};

struct Gradients {
  std::vector<std::vector<float>> nll, gradient;  // by micro-batch
};

struct Setting {
  explicit Setting(const Case& c)
      : lora(c.config, kRank, 2.0, kAllModules),
        adapter(random_adapter(lora)),
        samples(random_samples(c.lengths, c.config.vocab_size, false)) {
    const auto n = static_cast<std::int64_t>(c.lengths.size()), cut = n * 2 / 3;
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, {cut, n}}) {
      std::vector<std::int64_t> indices;
      for (std::int64_t i = begin; i < end; ++i) indices.push_back(i);
      batches.emplace_back().pack(samples, indices, 1);
      limits.train_tokens = std::max(limits.train_tokens, batches.back().n_tokens());
      limits.train_scored = std::max(limits.train_scored, batches.back().n_scored());
    }
    limits.longest_sample = *std::max_element(c.lengths.begin(), c.lengths.end());
    for (const MicroBatch& batch : batches) n_scored += batch.n_scored();
    // Of all sums on the way of a gradient, and the softmax's.
    longest_sum = std::max(
        {c.config.vocab_size, c.config.intermediate, c.config.heads.qkv_cols(), limits.train_tokens});
  }
  LoraLayout lora;
  std::vector<float> adapter;
  SampleSet samples;
  std::vector<MicroBatch> batches;
  BatchLimits limits;
  std::int64_t n_scored = 0, longest_sum = 0;
};

Gradients gradients(Engine& engine, const Setting& s) {
  Gradients all;
  std::copy(s.adapter.begin(), s.adapter.end(), engine.write(StateArray::kAdapter).begin());
  engine.begin_update(static_cast<std::int64_t>(s.batches.size()), 1);
  for (const MicroBatch& batch : s.batches) {
    const std::span<const float> nll = engine.gradient(batch);
    all.nll.emplace_back(nll.begin(), nll.end());
    EXPECT_EQ(engine.add_gradient(), -1);
    double sum = 0.0;
    for (const float value : nll) sum += static_cast<double>(value);
    EXPECT_TRUE(engine.add_nll(sum));
    const std::span<const float> g = engine.read(StateArray::kGradient);
    all.gradient.emplace_back(g.begin(), g.end());
  }
  engine.end_gradients();
  return all;
}

// The rest of the update: mean, then AdamW. Returns mean gradient, adapter, m and v.
std::vector<std::vector<float>> rest_of_update(Engine& engine, const Setting& s) {
  EXPECT_EQ(engine.carry(1).too_large, -1);
  engine.all_reduce("a test");
  engine.form_mean(static_cast<double>(s.n_scored));
  std::vector<std::vector<float>> arrays;
  const auto keep = [&](StateArray which) {
    const std::span<const float> values = engine.read(which);
    arrays.emplace_back(values.begin(), values.end());
  };
  keep(StateArray::kGradient);
  engine.keep_adapter();
  engine.step({1e-3, 0.9, 0.999, 1e-8, 0.01, 0.5, 1});
  for (const StateArray which : {StateArray::kAdapter, StateArray::kM, StateArray::kV}) keep(which);
  return arrays;
}

// The same from the device's own gradients, by the CPU's exact sum and AdamW.
std::vector<std::vector<float>> rest_on_cpu(const Setting& s, const Gradients& device) {
  const std::int64_t n = s.lora.size();
  std::vector<std::int64_t> limbs(static_cast<std::size_t>(ExactSumView::n_limbs(n)), 0);
  const ExactSumView sum{limbs.data(), n};
  for (const std::vector<float>& g : device.gradient) EXPECT_EQ(exact_sum_add(sum, 0, g, 1), -1);
  exact_sum_carry(sum, 1, 1);
  std::vector<float> mean(static_cast<std::size_t>(n)), p = s.adapter, m(mean), v(mean);
  exact_sum_mean(sum, 0, static_cast<double>(s.n_scored), mean, 1);
  adamw(CpuContext(1), p, m, v, mean, {1e-3, 0.9, 0.999, 1e-8, 0.01, 0.5, 1});
  return {mean, p, m, v};
}

// A case on the CPU, computed once for all formats.
struct Reference {
  explicit Reference(const Case& c) : s(c), model(c.config), cpu(run(model)) {
    for (int draw = 0; draw < kDraws; ++draw)
      shifted.push_back(run(RandomModel(c.config, kShift, static_cast<std::uint64_t>(draw))));
  }
  Gradients run(const RandomModel& weights) const {
    const CpuContext ctx(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
    SingleCommunicator alone;
    CpuEngine engine(ctx, alone, weights.config(), weights.weights(), s.lora, s.limits, {}, 0);
    return gradients(engine, s);
  }
  Setting s;
  RandomModel model;
  Gradients cpu;
  std::vector<Gradients> shifted;
};
const Reference& reference_of(const Case& c) {
  static std::map<std::string, std::unique_ptr<Reference>> made;
  std::unique_ptr<Reference>& one = made[c.name];
  if (!one) one = std::make_unique<Reference>(c);
  return *one;
}

// Of one rounding at each product, relative.
double unit_of(const std::string& precision, std::int64_t longest_sum) {
  const auto n = static_cast<double>(longest_sum);
  if (precision == "f32") return 8.0 * std::sqrt(n) * 0x1p-24;
  return n / 8.0 * 0x1p-23 + (precision == "tf32" ? 0x1p-10 : 0x1p-8);
}

template <class Real>
std::unique_ptr<CudaEngine<Real>> device_engine(const RandomModel& model, const Setting& s,
                                                const CpuContext& host, SingleCommunicator& alone,
                                                const Execution& execution, ProductMode mode) {
  return std::make_unique<CudaEngine<Real>>(
      EngineParts{host, alone, execution, model.config(), model.weights(), s.lora, s.limits, {}},
      std::make_unique<CudaContext>(0, mode), no_reduction(), kFree);
}

double norm_of(std::span<const float> x) {
  double squares = 0.0;
  for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}
double distance(std::span<const float> x, std::span<const float> y) {
  double squares = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    squares += d * d;
  }
  return std::sqrt(squares);
}

// How far the device is from the CPU, as a share of what the bound allows: the largest over losses and over
// the gradient's tensors.
struct Shares {
  double nll = 0.0, gradient = 0.0;
};

Shares compare(const Gradients& device, const Gradients& cpu, const std::vector<Gradients>& shifted,
               const Setting& s, double unit) {
  const double factor = kRoundings * unit / kShift;
  Shares most;
  for (std::size_t b = 0; b < cpu.nll.size(); ++b) {
    double moved = 0.0, away = 0.0;
    for (const Gradients& draw : shifted) moved = std::max(moved, distance(draw.nll[b], cpu.nll[b]));
    away = distance(device.nll[b], cpu.nll[b]);
    const double share = away / (factor * moved);
    EXPECT_LE(share, 1.0) << "losses of micro-batch " << b << ": " << away << " apart";
    most.nll = std::max(most.nll, share);
    const auto of = [&](const Gradients& g) { return s.lora.spans(g.gradient[b]); };
    const auto want = of(cpu), got = of(device);
    for (std::size_t i = 0; i < want.size(); ++i) {
      double change = 0.0;
      for (const Gradients& draw : shifted) change = std::max(change, distance(of(draw)[i], want[i]));
      const double bound = factor * change, error = distance(got[i], want[i]), size = norm_of(want[i]);
      EXPECT_GT(size, 0.0) << s.lora.tensors()[i].name;
      EXPECT_LE(bound, 0.5 * size) << s.lora.tensors()[i].name << ": a bound that says nothing";
      EXPECT_LE(error, bound) << s.lora.tensors()[i].name << " of norm " << size;
      most.gradient = std::max(most.gradient, error / bound);
    }
  }
  return most;
}

template <class Real>
void check_updates(const char* precision) {
  const ProductMode mode = std::string(precision) == "tf32" ? ProductMode::kTf32 : ProductMode::kF32;
  for (const Case& c : kCases) {
    if (c.config.hidden > 96 && std::getenv("TANDEM_SMALL_MODELS")) continue;  // compute-sanitizer is slow
    SCOPED_TRACE(cat(c.name, ", ", precision));
    const Reference& reference = reference_of(c);
    const Setting& s = reference.s;
    const CpuContext host(1);
    SingleCommunicator alone;
    Execution execution;
    execution.precision = precision;
    const auto engine = device_engine<Real>(reference.model, s, host, alone, execution, mode);
    const Gradients device = gradients(*engine, s);
    const auto update = rest_of_update(*engine, s);
    const Shares shares =
        compare(device, reference.cpu, reference.shifted, s, unit_of(precision, s.longest_sum));
    std::printf("       %s, %s: losses %.1f %%, gradients %.1f %% of their bounds from the CPU's\n", c.name,
                precision, 100.0 * shares.nll, 100.0 * shares.gradient);

    const auto wanted = rest_on_cpu(s, device);
    const char* const names[] = {"mean gradient", "adapter", "m", "v"};
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(same_bytes(update[i], wanted[i])) << names[i] << " is not the CPU's bit by bit";

    // Again, by an engine of its own: the same bits.
    const auto second = device_engine<Real>(reference.model, s, host, alone, execution, mode);
    const Gradients again = gradients(*second, s);
    for (std::size_t b = 0; b < again.nll.size(); ++b)
      EXPECT_TRUE(same_bytes(again.nll[b], device.nll[b]) &&
                  same_bytes(again.gradient[b], device.gradient[b]))
          << "micro-batch " << b << " has other bits the second time";
  }
}

TEST(Update, Float32IsTheCpusWithinItsBounds) { check_updates<float>("f32"); }
TEST(Update, Tf32IsTheCpusWithinItsBounds) { check_updates<float>("tf32"); }
TEST(Update, Bf16IsTheCpusWithinItsBounds) { check_updates<Bf16>("bf16"); }

}  // namespace
}  // namespace tandem::testing
