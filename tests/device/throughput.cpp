// Tokens a second of whole updates at the shape of Qwen3-0.6B with random weights, and where the time goes.
//
//   device_throughput [--precision f32|tf32|bf16] [--updates N] [--floor TOKENS_A_SECOND] [--tiny]
//
// An update: 4 micro-batches of 2 samples of 2,048 tokens, all scored, rank 16 on all seven projections,
// forward, backward, exact sum, AdamW, on one GPU. The line that begins with "row: " is one of the table that
// check.sh makes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "comm/device_reduction.hpp"
#include "comm/gpu_system.hpp"
#include "src/base/clock.hpp"
#include "src/base/text.hpp"
#include "src/train/cuda/cuda_engine.hpp"
#include "tests/device/kernel_times.hpp"
#include "tests/device/random_model.hpp"

namespace tandem::testing {
namespace {

struct Options {
  std::string precision = "bf16";
  int updates = 4;
  double floor = 0.0;  // tokens a second
  bool tiny = false;
};

constexpr int kMicroBatches = 4;
constexpr double kMeasured_s = 25.0;  // of a slow device, fewer updates
constexpr std::int64_t kSamples = 2;  // of a micro-batch

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds of an update's parts.
struct Parts {
  double gradients = 0.0, sum = 0.0, step = 0.0;
  double whole() const { return gradients + sum + step; }
};

Parts update(Engine& engine, const CudaContext& ctx, const std::vector<MicroBatch>& batches,
             std::vector<double>& squares, std::int64_t number) {
  Parts parts;
  double start = now_s(), nll = 0.0;
  std::int64_t n = 0;
  const auto lap = [&] {
    ctx.synchronize();
    const double end = now_s();
    return end - std::exchange(start, end);
  };
  engine.begin_update(static_cast<std::int64_t>(batches.size()), 1);
  for (const MicroBatch& batch : batches) {
    for (const float value : engine.gradient(batch)) nll += static_cast<double>(value);
    n += batch.n_scored();
    if (engine.add_gradient() >= 0) throw Error(ErrorKind::kInternal, "a gradient that is not finite");
  }
  parts.gradients = lap();
  if (!engine.add_nll(nll)) throw Error(ErrorKind::kInternal, "a loss that is not finite");
  engine.end_gradients();
  if (engine.carry(1).too_large >= 0) throw Error(ErrorKind::kInternal, "a gradient too large to be summed");
  engine.all_reduce("an update");
  engine.form_mean(static_cast<double>(n));
  engine.gradient_squares(squares);
  parts.sum = lap();
  const double norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  engine.step({2e-4, 0.9, 0.999, 1e-8, 0.0, std::min(1.0, 1.0 / norm), number});
  parts.step = lap();
  if (number == 1)
    std::printf("first update: loss %.4f, gradient's norm %.4g\n", nll / static_cast<double>(n), norm);
  return parts;
}

// Of one product by its name, "product [4096, 1024] x [3072, 1024]^T"; 0 for other kernels.
double flops_of(const std::string& name) {
  long long dims[4] = {};
  if (std::sscanf(name.c_str(), "product [%lld, %lld]", &dims[0], &dims[1]) != 2) return 0.0;
  const std::size_t by = name.find(" x [");
  if (by == std::string::npos || std::sscanf(name.c_str() + by, " x [%lld, %lld]", &dims[2], &dims[3]) != 2)
    return 0.0;
  const auto columns_of_b = static_cast<double>(name.ends_with("^T") ? dims[2] : dims[3]);
  return 2.0 * static_cast<double>(dims[0]) * static_cast<double>(dims[1]) * columns_of_b;
}

template <class Real>
void measure(const Options& options) {
  const ModelConfig config =
      options.tiny ? qwen3_like(1, 64, 96, {2, 1, 64}, 97) : qwen3_like(28, 1024, 3072, {16, 8, 128}, 151936);
  const std::int64_t length = options.tiny ? 9 : 2048;
  double start = now_s();
  const RandomModel model(config);
  const LoraLayout lora(config, options.tiny ? 2 : 16, 2.0, kAllModules);
  const SampleSet samples =
      random_samples(std::vector<std::int64_t>(kMicroBatches * kSamples, length), config.vocab_size, true);
  std::vector<MicroBatch> batches(kMicroBatches);
  for (std::int64_t b = 0; b < kMicroBatches; ++b) {
    const std::int64_t indices[] = {b * kSamples, b * kSamples + 1};
    batches[static_cast<std::size_t>(b)].pack(samples, indices, 1);
  }
  const BatchLimits limits{batches[0].n_tokens(), batches[0].n_scored(), batches[0].n_tokens(),
                           batches[0].n_scored(), length};
  const CpuContext host(1);
  SingleCommunicator alone;
  Execution execution;
  execution.precision = options.precision;
  const std::unique_ptr<GpuSystem> system = cuda_system();
  auto owned =
      std::make_unique<CudaContext>(0, options.precision == "tf32" ? ProductMode::kTf32 : ProductMode::kF32);
  const CudaContext& ctx = *owned;
  const std::uint64_t free = system->free_bytes(0);
  CudaEngine<Real> engine(EngineParts{host, alone, execution, config, model.weights(), lora, limits, {}},
                          std::move(owned), no_reduction(), free);
  lora.initialise(engine.write(StateArray::kAdapter), 1);
  for (const std::string& line : engine.lines()) std::printf("%s\n", line.c_str());
  std::printf("model and engine made in %.1f s\n", now_s() - start);

  std::vector<double> squares(lora.tensors().size());
  std::vector<Parts> parts;
  const double first = update(engine, ctx, batches, squares, 1).whole();  // chooses algorithms, too
  const int updates = std::clamp(static_cast<int>(kMeasured_s / first), 1, options.updates);
  for (int k = 0; k < updates; ++k) parts.push_back(update(engine, ctx, batches, squares, k + 2));
  const double used_gib = static_cast<double>(free - system->free_bytes(0)) / 0x1p30;
  const auto middle = [&](double (*of)(const Parts&)) {
    std::vector<double> all;
    for (const Parts& p : parts) all.push_back(of(p));
    return median(all);
  };
  const double seconds = middle([](const Parts& p) { return p.whole(); });
  std::vector<double> forward;
  for (int i = 0; i < std::min(updates, 3); ++i) {
    start = now_s();
    for (const MicroBatch& batch : batches) (void)engine.evaluate(batch, true, nullptr);
    forward.push_back(now_s() - start);
  }
  const double tokens = static_cast<double>(kMicroBatches * batches[0].n_tokens());
  std::printf(
      "an update: %.1f ms (median of %d): gradients %.1f (forward and loss alone %.1f), sum %.1f, step "
      "%.1f\n",
      1e3 * seconds, updates, 1e3 * middle([](const Parts& p) { return p.gradients; }), 1e3 * median(forward),
      1e3 * middle([](const Parts& p) { return p.sum; }),
      1e3 * middle([](const Parts& p) { return p.step; }));
  std::printf("row: | Tandem, %s | %.0f | %.1f | %.1f | %s |\n", options.precision.c_str(), tokens / seconds,
              1e3 * seconds, used_gib,
              options.floor > 0.0
                  ? cat(static_cast<int>(100.0 * tokens / seconds / options.floor + 0.5), " %").c_str()
                  : "-");

  start_kernel_times(ctx);
  start = now_s();
  (void)update(engine, ctx, batches, squares, updates + 2);
  const double timed = now_s() - start;
  const std::vector<KernelTime> times = stop_kernel_times(ctx);
  if (times.empty()) {
    std::printf("kernels are not timed: NVTX of this CUDA takes no ranges in from the program itself\n");
    return;
  }
  double known = 0.0;
  for (const KernelTime& t : times) known += t.seconds;
  std::printf("\n| kernel, %s | launches | ms an update | share | TFLOP/s |\n|---|--:|--:|--:|--:|\n",
              options.precision.c_str());
  for (const KernelTime& t : times) {
    const double flops = flops_of(t.name) * static_cast<double>(t.launches);
    std::printf(
        "| %s | %ld | %.2f | %.1f %% | %s |\n", t.name.c_str(), t.launches, 1e3 * t.seconds,
        100.0 * t.seconds / timed,
        flops > 0.0 && t.seconds > 0.0 ? cat(static_cast<int>(flops / t.seconds * 1e-12 + 0.5)).c_str() : "");
  }
  std::printf("| all of these | | %.2f | of %.2f, events included | |\n\n", 1e3 * known, 1e3 * timed);
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--tiny")
      options.tiny = true;
    else if (i + 1 < argc && word == "--precision")
      options.precision = argv[++i];
    else if (i + 1 < argc && word == "--updates")
      options.updates = std::max(1, std::atoi(argv[++i]));
    else if (i + 1 < argc && word == "--floor")
      options.floor = std::atof(argv[++i]);
    else
      throw Error(ErrorKind::kUsage, cat("unknown argument ", word));
  }
  if (cuda_system()->visible().empty()) {
    std::puts("no GPU: this process sees none, or there is no NVIDIA driver");
    return 4;
  }
  if (options.precision == "bf16")
    measure<Bf16>(options);
  else
    measure<float>(options);
  return 0;
}

}  // namespace
}  // namespace tandem::testing

int main(int argc, char** argv) {
  try {
    return tandem::testing::run(argc, argv);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
