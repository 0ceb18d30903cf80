// How fast the gradient of one micro-batch is, as a share of the machine's best matrix product measured in
// turn with it, and where the time goes. Usage: bench_update [threads] [layers] [tokens] [samples]
// [vocabulary]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/adamw.hpp"
#include "kernels/attention.hpp"
#include "kernels/exact_sum.hpp"
#include "kernels/product.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"
#include "src/base/clock.hpp"
#include "src/base/random.hpp"
#include "src/cli/init_model_command.hpp"
#include "src/model/transformer.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

double seconds_of(const std::function<void()>& work) {
  const double start = now_s();
  work();
  return now_s() - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

std::vector<float> filled(std::int64_t n, const char* name) {
  const RandomStream stream(3, name);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    values[static_cast<std::size_t>(i)] =
        static_cast<float>(stream.unit(static_cast<std::uint64_t>(i)) - 0.5);
  return values;
}

struct Sizes {
  int threads = 2;
  std::int64_t layers = 4, tokens = 2048, samples = 4, vocab = 151936;
};

// Multiplications and additions of the products that the update needs, none of them avoidable.
double product_flops(const ModelConfig& c, const Sizes& s, std::int64_t rank, std::int64_t scored) {
  const LayerShape shape(c);
  const auto t = static_cast<double>(s.tokens);
  double frozen = 0.0, adapter = 0.0;
  for (std::size_t g = 0; g < kGroups; ++g) frozen += static_cast<double>(shape.in[g] * shape.out[g]);
  for (const Module& m : shape.modules) adapter += static_cast<double>(rank * (shape.in[m.group] + m.out()));
  const auto layers = static_cast<double>(c.n_layers);
  // Forward and input gradient through frozen weights (none below the first layer's), thrice through
  // adapters.
  double flops = layers * 2.0 * t * (2.0 * frozen + 3.0 * adapter) -
                 2.0 * t * static_cast<double>(shape.in[kQkv] * shape.out[kQkv]);
  // Attention: 2 products forward, 4 backward, half of the square. (Backward forms the scores again: not
  // counted.)
  const double length = t / static_cast<double>(s.samples);
  flops += layers * 6.0 * 2.0 * t * length / 2.0 * static_cast<double>(c.heads.q_cols());
  flops += 4.0 * static_cast<double>(scored) * static_cast<double>(c.vocab_size * c.hidden);
  return flops;
}

int run(const Sizes& s) {
  const support::TempFolder folder;
  InitModelOptions options;
  options.preset = "qwen3-0.6b";
  options.out = folder.path() / "model";
  options.layers = s.layers, options.vocab = s.vocab, options.dtype = "BF16";
  std::ostringstream said;
  init_model_command(options, said);
  const ModelConfig config = read_model_config(options.out);
  Arena memory(Weights::bytes(config), "weights");
  Weights weights(config, memory.block());
  weights.load(ModelTensors(options.out));
  const CpuContext ctx(s.threads);
  const LoraLayout lora(config, 16, 2.0, {"q", "k", "v", "o", "gate", "up", "down"});

  SampleSet samples;
  std::vector<std::int64_t> indices;
  const std::int64_t length = s.tokens / s.samples;
  for (std::int64_t i = 0; i < s.samples; ++i) {
    std::vector<std::int32_t> ids;
    std::vector<std::uint8_t> marks;
    for (std::int64_t p = 0; p < length; ++p) {
      ids.push_back(static_cast<std::int32_t>((p * 7919 + i) % s.vocab));
      marks.push_back(p >= length * 4 / 5);  // an answer a fifth of the sample, as in the clinical rows
    }
    samples.add(ids, marks, i + 1);
    indices.push_back(i);
  }
  MicroBatch batch;
  batch.pack(samples, indices);
  const BatchLimits limits{batch.n_tokens(), batch.n_scored(), 0, 0, length};
  Transformer model(ctx, config, weights.views(), lora, limits);
  model.allocate();
  std::vector<float> adapter(static_cast<std::size_t>(lora.size())), grad(adapter.size()),
      nll(static_cast<std::size_t>(batch.n_scored()));
  lora.initialise(adapter, 0);
  const std::vector<float> b = filled(lora.size(), "b");
  for (std::size_t i = 0; i < adapter.size(); ++i) adapter[i] += 0.01f * b[i];

  // The machine's best: large products of the same kind, by one call of the same function.
  const std::int64_t m = 2048, n = 6144, k = 1024;
  const std::vector<float> x = filled(m * k, "x"), w = filled(n * k, "w");
  std::vector<float> y(static_cast<std::size_t>(m * n));
  const auto best_product = [&] {
    product(ctx, {y.data(), m, n}, {}, {{{x.data(), m, k}, Op::kPlain, {w.data(), n, k}, Op::kTransposed}});
  };
  const double best_flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);

  std::vector<double> update_rate, best_rate, share;
  const double flops = product_flops(config, s, 16, batch.n_scored());
  model.gradient(adapter, batch, nll, grad);
  best_product();
  for (int i = 0; i < 7; ++i) {
    const double before = seconds_of([&] {
      for (int r = 0; r < 4; ++r) best_product();
    });
    const double update = seconds_of([&] { model.gradient(adapter, batch, nll, grad); });
    const double after = seconds_of([&] {
      for (int r = 0; r < 4; ++r) best_product();
    });
    update_rate.push_back(flops / update * 1e-9);
    best_rate.push_back(best_flops * 8.0 / (before + after) * 1e-9);
    share.push_back(update_rate.back() / best_rate.back());
  }
  std::printf(
      "%lld layers of Qwen3-0.6B, %lld tokens in %lld samples (%lld scored), vocabulary %lld, %d threads\n",
      static_cast<long long>(s.layers), static_cast<long long>(s.tokens), static_cast<long long>(s.samples),
      static_cast<long long>(batch.n_scored()), static_cast<long long>(s.vocab), s.threads);
  std::printf(
      "gradient: %.0f GFLOP of products at %.0f GFLOP/s; best product %.0f GFLOP/s; share %.1f %% (median of "
      "7 pairs)\n",
      flops * 1e-9, median(update_rate), median(best_rate), 100.0 * median(share));

  // One layer's parts that are no large product, in ms.
  const auto ms = [&](const char* name, double times, const std::function<void()>& work) {
    work();
    std::vector<double> seconds;
    for (int i = 0; i < 7; ++i) seconds.push_back(seconds_of(work));
    std::printf("  %-34s %8.2f ms a layer\n", name, times * median(seconds) * 1e3);
  };
  const HeadShape& heads = config.heads;
  const std::int64_t t = s.tokens;
  std::vector<float> qkv = filled(t * heads.qkv_cols(), "qkv"),
                     q(static_cast<std::size_t>(t * heads.q_cols())),
                     kk(static_cast<std::size_t>(t * heads.kv_cols())), o(q), dq(q), dk(kk), dv(kk),
                     lse(static_cast<std::size_t>(heads.n_heads * t));
  std::vector<float> gu = filled(t * 2 * config.intermediate, "gu"),
                     h(static_cast<std::size_t>(t * config.intermediate)),
                     xs = filled(t * config.hidden, "xs"), ys(xs);
  std::vector<float> cos(static_cast<std::size_t>(length * heads.head_dim / 2)), sin(cos);
  fill_rope_table({cos.data(), length, heads.head_dim / 2}, {sin.data(), length, heads.head_dim / 2},
                  rope_frequencies(config));
  const LayerWeights& layer = weights.layer(0);
  const RopeInputs rope{layer.q_norm,
                        layer.k_norm,
                        1e-6f,
                        batch.position,
                        {cos.data(), length, heads.head_dim / 2},
                        {sin.data(), length, heads.head_dim / 2},
                        heads};
  const Matrix mqkv(qkv.data(), t, heads.qkv_cols()), mq(q.data(), t, heads.q_cols()),
      mk(kk.data(), t, heads.kv_cols()), mo(o.data(), t, heads.q_cols()), mlse(lse.data(), heads.n_heads, t);
  const ConstMatrix mv = mqkv.col_range(heads.q_cols() + heads.kv_cols(), heads.qkv_cols());
  ms("attention forward", 1, [&] {
    rope_forward(ctx, mq, mk, mqkv, rope);
    attention_forward(ctx, mo, mlse, mq, mk, mv, batch.sample_begin, heads);
  });
  ms("attention backward", 1, [&] {
    attention_backward(ctx, {dq.data(), t, heads.q_cols()}, {dk.data(), t, heads.kv_cols()},
                       {dv.data(), t, heads.kv_cols()}, mo, mo, mlse, mq, mk, mv, batch.sample_begin, heads);
  });
  ms("rope forward (2) and backward", 1, [&] {
    rope_forward(ctx, mq, mk, mqkv, rope);
    rope_forward(ctx, mq, mk, mqkv, rope);
    rope_backward(ctx, mqkv, mq, mk, mqkv, rope);
  });
  const Matrix mx(xs.data(), t, config.hidden), my(ys.data(), t, config.hidden),
      mgu(gu.data(), t, 2 * config.intermediate), mh(h.data(), t, config.intermediate);
  ms("RMSNorm forward (4), backward (2)", 1, [&] {
    for (int i = 0; i < 4; ++i) rms_norm_forward(ctx, my, mx, layer.input_norm, 1e-6f);
    for (int i = 0; i < 2; ++i) rms_norm_backward(ctx, my, mx, mx, layer.input_norm, 1e-6f, false);
  });
  ms("SwiGLU forward (2), backward", 1, [&] {
    swiglu_forward(ctx, mh, mgu);
    swiglu_forward(ctx, mh, mgu);
    swiglu_backward(ctx, mgu, mh, mgu);
  });
  std::vector<std::int64_t> limbs(static_cast<std::size_t>(ExactSumView::n_limbs(lora.size())));
  const ExactSumView sum{limbs.data(), lora.size()};
  ms("exact sum of the gradient", 1.0 / static_cast<double>(s.layers),
     [&] { (void)exact_sum_add(sum, 0, grad, s.threads); });
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::Sizes sizes;
  if (argc > 1) sizes.threads = std::atoi(argv[1]);
  if (argc > 2) sizes.layers = std::atoll(argv[2]);
  if (argc > 3) sizes.tokens = std::atoll(argv[3]);
  if (argc > 4) sizes.samples = std::atoll(argv[4]);
  if (argc > 5) sizes.vocab = std::atoll(argv[5]);
  return tandem::run(sizes);
}
