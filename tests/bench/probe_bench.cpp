// What the observations of an evaluation cost beside it: the probe in the passes that it looks at, and the
// adapter's norms. Pairs of passes with and without the probe, in turn. Usage: bench_probe [preset] [layers]
// [tokens of a micro-batch] [threads]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "src/cli/init_model_command.hpp"
#include "src/model/transformer.hpp"
#include "src/train/adapter_norms.hpp"
#include "src/train/probe.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

// CPU time: what else runs on the machine counts less.
double seconds_of(const std::function<void()>& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(const std::string& preset, std::int64_t layers, std::int64_t tokens, int threads) {
  constexpr std::int64_t kSamples = 4;
  const support::TempFolder folder;
  InitModelOptions options;
  options.preset = preset;
  options.out = folder.path() / "model";
  options.layers = layers;
  std::ostringstream said;
  init_model_command(options, said);
  const ModelConfig config = read_model_config(options.out);
  Arena memory(Weights::bytes(config), "weights");
  Weights weights(config, memory.block());
  weights.load(ModelTensors(options.out));
  const CpuContext ctx(threads);
  const LoraLayout lora(config, 16, 2.0, {"q", "k", "v", "o", "gate", "up", "down"});
  std::vector<float> adapter(static_cast<std::size_t>(lora.size()));
  lora.initialise(adapter, 0);

  SampleSet samples;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    std::vector<std::int32_t> ids;
    std::vector<std::uint8_t> marks;
    const std::int64_t length = tokens / kSamples;
    for (std::int64_t p = 0; p < length; ++p) {
      ids.push_back(static_cast<std::int32_t>((p * 7919 + i) % config.vocab_size));
      marks.push_back(p >= length * 4 / 5);  // an answer a fifth of the sample, as in the clinical rows
    }
    samples.add(ids, marks, i + 1);
  }
  MicroBatch batch;
  batch.pack(samples, std::vector<std::int64_t>{0, 1, 2, 3});
  Transformer model(ctx, config, weights.views(), lora, {0, 0, tokens, batch.n_scored(), tokens / kSamples});
  model.allocate();
  std::vector<float> nll(static_cast<std::size_t>(batch.n_scored()));
  Probe probe(ctx, samples, kMostProbeTokens, kSamples, config.n_layers, config.hidden);

  std::vector<double> without, with, extra;
  const auto pass = [&](PassObserver* observer) {
    return seconds_of([&] { model.evaluate(adapter, batch, nll, observer); });
  };
  for (int i = 0; i < 16; ++i) {
    const bool first = i % 2 == 0;
    const double a = pass(first ? nullptr : probe.watch(0, batch));
    const double b = pass(first ? probe.watch(0, batch) : nullptr);
    if (i < 2) continue;
    without.push_back(first ? a : b);
    with.push_back(first ? b : a);
    extra.push_back(with.back() - without.back());
  }
  std::vector<double> ba(lora.tensors().size() / 2), change(lora.tensors().size());
  const std::vector<float> before = adapter;
  std::vector<double> ba_s, change_s;
  for (int i = 0; i < 7; ++i) {
    ba_s.push_back(seconds_of([&] { ba_norms(ctx, ba, lora, adapter); }));
    change_s.push_back(seconds_of([&] { change_norms(ctx, change, lora, adapter, before); }));
  }
  std::printf("%s, %lld layers, %lld tokens (%lld scored, %lld probed), vocabulary %lld, %d threads\n",
              preset.c_str(), static_cast<long long>(config.n_layers), static_cast<long long>(tokens),
              static_cast<long long>(batch.n_scored()), static_cast<long long>(probe.tokens().size()),
              static_cast<long long>(config.vocab_size), threads);
  std::printf("  micro-batch %.2f ms, with the probe %.2f ms: %+.2f ms, %+.2f %% (median of 14 pairs)\n",
              median(without) * 1e3, median(with) * 1e3, median(extra) * 1e3,
              100.0 * median(extra) / median(without));
  std::printf("  norms: B A %.2f ms, last change %.2f ms\n", median(ba_s) * 1e3, median(change_s) * 1e3);
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::run(argc > 1 ? argv[1] : "qwen3-0.6b", argc > 2 ? std::atoll(argv[2]) : 4,
                     argc > 3 ? std::atoll(argv[3]) : 2048, argc > 4 ? std::atoi(argv[4]) : 2);
}
