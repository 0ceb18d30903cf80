// What is computed row by row. Each limit counts the roundings of the operation as kernels/cpu does it; the
// counts are upper ones: fused multiply-adds round less.
#include <algorithm>
#include <cmath>

#include "kernels/bias.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"
#include "src/check/operation_bench.hpp"
#include "src/mirror/transformer.hpp"

namespace tandem::operations {

namespace {

// 1/sqrt(mean of squares + eps) is formed in double and rounded once; eps has been rounded to float32.
constexpr int kRstd = 2;

// |r w g| + |x| r^3 mean |w g x|: the terms of the norm's derivative, g given by its size.
mirror::Matrix norm_gradient_size(const mirror::Matrix& g, const mirror::Matrix& x, const mirror::Row& w,
                                  double eps) {
  const double n = static_cast<double>(x.cols());
  const mirror::Column r = 1 / (x.rowwise().squaredNorm().array() / n + eps).sqrt();
  const mirror::Matrix gw = (g.array().rowwise() * w.array().abs()).matrix();
  const mirror::Column mean = gw.cwiseProduct(x.cwiseAbs()).rowwise().sum() / n;
  const mirror::Column along = (r.array().cube() * mean.array()).matrix();
  return ((gw.array().colwise() * r.array()) + (x.array().abs().colwise() * along.array())).matrix();
}

void check_rms_norm(Bench& bench) {
  const std::span<const float> w = bench.weights().layer(0).input_norm;
  const double eps = bench.config().rms_eps;
  const auto c = static_cast<std::int64_t>(w.size());
  const Matrix x = bench.draw("norm.x", kTokens, c), dy = bench.draw("norm.dy", kTokens, c);
  const Matrix before = bench.draw("norm.dx", kTokens, c);
  const Matrix y = bench.blank(kTokens, c), dx = bench.copy(before);
  rms_norm_forward(bench.ctx(), y, x, w, static_cast<float>(eps));
  rms_norm_backward(bench.ctx(), dx, dy, x, w, static_cast<float>(eps), true);
  mirror::Tape tape;
  const mirror::Var in = tape.variable(wide(ConstMatrix(x)));
  const mirror::Var out = mirror::rms_norm(in, wide(w), eps);
  tape.backward(out, wide(ConstMatrix(dy)));
  bench.compare("rms_norm", y, out.value(), out.value().cwiseAbs(), rounded(kRstd + 2));
  // The projection holds rstd three times; then its own rounding, a product, two additions.
  const mirror::Matrix old = wide(ConstMatrix(before));
  bench.compare("rms_norm.dx", dx, old + tape.gradient(in),
                old.cwiseAbs() +
                    norm_gradient_size(wide(ConstMatrix(dy)).cwiseAbs(), wide(ConstMatrix(x)), wide(w), eps),
                rounded(3 * kRstd + 4));
}

// |x_i cos| + |x_(i+d/2) sin| and the other half's.
mirror::Matrix rotated_size(const mirror::Matrix& x, const mirror::RopeTable& table) {
  const mirror::Matrix size = x.cwiseAbs();
  const mirror::RopeTable sum{table.cos.cwiseAbs(), table.sin.cwiseAbs()};
  return mirror::rope(size, sum).cwiseMax(mirror::rope(size, sum, true));
}

struct HeadSide {
  const char* name;
  std::int64_t first, cols;  // its columns of the fused product
  std::span<const float> norm;
};

void check_rope(Bench& bench) {
  const ModelConfig& config = bench.config();
  const HeadShape& heads = config.heads;
  const LayerWeights& w = bench.weights().layer(0);
  const std::int64_t d = heads.head_dim;
  std::vector<std::int32_t> position;
  for (std::size_t s = 0; s + 1 < kSampleBegin.size(); ++s)
    for (std::int32_t p = 0; p < kSampleBegin[s + 1] - kSampleBegin[s]; ++p) position.push_back(p);
  const Matrix cos = bench.blank(kTokens, d / 2), sin = bench.blank(kTokens, d / 2);
  fill_rope_table(cos, sin, rope_frequencies(config));
  const RopeInputs in{w.q_norm, w.k_norm, static_cast<float>(config.rms_eps), position, cos, sin, heads};

  const Matrix qkv = bench.draw("rope.qkv", kTokens, heads.qkv_cols());
  const Matrix dq = bench.draw("rope.dq", kTokens, heads.q_cols()),
               dk = bench.draw("rope.dk", kTokens, heads.kv_cols());
  const Matrix q = bench.blank(kTokens, heads.q_cols()), k = bench.blank(kTokens, heads.kv_cols()),
               dqkv = bench.blank(kTokens, heads.qkv_cols());
  rope_forward(bench.ctx(), q, k, qkv, in);
  rope_backward(bench.ctx(), dqkv, dq, dk, qkv, in);

  const auto scaling =
      config.llama3_rope ? std::optional<mirror::RopeScaling>(
                               {config.llama3_rope->factor, config.llama3_rope->low_freq_factor,
                                config.llama3_rope->high_freq_factor, config.llama3_rope->original_positions})
                         : std::nullopt;
  const auto frequencies = mirror::rope_frequencies(d, config.rope_theta, scaling ? &*scaling : nullptr);
  const HeadSide sides[] = {{"q", 0, heads.q_cols(), w.q_norm},
                            {"k", heads.q_cols(), heads.kv_cols(), w.k_norm}};
  for (const HeadSide& side : sides) {
    const Matrix native = side.first == 0 ? q : k, gradient = side.first == 0 ? dq : dk;
    mirror::Matrix y(kTokens, side.cols), size(kTokens, side.cols), dx(kTokens, side.cols),
        dx_size(kTokens, side.cols);
    // The mirror takes one sample at a time, each from position 0.
    for (std::size_t s = 0; s + 1 < kSampleBegin.size(); ++s) {
      const std::int64_t begin = kSampleBegin[s], n = kSampleBegin[s + 1] - begin, rows = n * side.cols / d;
      const mirror::RopeTable table = mirror::rope_table(frequencies, n);
      mirror::Tape tape;
      const mirror::Var x = tape.variable(
          wide(ConstMatrix(qkv).row_range(begin, begin + n).col_range(side.first, side.first + side.cols)));
      mirror::Var normed = x;
      if (!side.norm.empty())
        normed = mirror::reshape(
            mirror::rms_norm(mirror::reshape(x, rows, d), wide(side.norm), config.rms_eps), n, side.cols);
      const mirror::Var out = mirror::rope(normed, table);
      const mirror::Matrix g = wide(ConstMatrix(gradient).row_range(begin, begin + n));
      tape.backward(out, g);
      y.middleRows(begin, n) = out.value();
      size.middleRows(begin, n) = rotated_size(normed.value(), table);
      dx.middleRows(begin, n) = tape.gradient(x);
      mirror::Matrix back = rotated_size(g, table);
      if (!side.norm.empty()) {
        back.resize(rows, d);  // the same elements
        mirror::Matrix heads_of_x = x.value();
        heads_of_x.resize(rows, d);
        back = norm_gradient_size(back, heads_of_x, wide(side.norm), config.rms_eps);
        back.resize(n, side.cols);
      }
      dx_size.middleRows(begin, n) = back;
    }
    // cos or sin, a product, an addition; before them the norm, or behind them its derivative.
    const bool norm = !side.norm.empty();
    bench.compare(std::string("rope.") + side.name, native, y, size, rounded(3 + (norm ? kRstd + 2 : 0)));
    bench.compare(std::string("rope.d") + side.name, dqkv.col_range(side.first, side.first + side.cols), dx,
                  dx_size, rounded(3 + (norm ? 3 * kRstd + 3 : 0)));
  }
}

void check_swiglu(Bench& bench) {
  const std::int64_t n = bench.config().intermediate;
  const Matrix gu = bench.draw("swiglu.gu", kTokens, 2 * n, 4.0), dh = bench.draw("swiglu.dh", kTokens, n);
  const Matrix h = bench.blank(kTokens, n), dgu = bench.blank(kTokens, 2 * n);
  swiglu_forward(bench.ctx(), h, gu);
  swiglu_backward(bench.ctx(), dgu, dh, gu);
  mirror::Tape tape;
  const mirror::Var gate = tape.variable(wide(ConstMatrix(gu).col_range(0, n))),
                    up = tape.variable(wide(ConstMatrix(gu).col_range(n, 2 * n)));
  const mirror::Var out = multiply(mirror::silu(gate), up);
  tape.backward(out, wide(ConstMatrix(dh)));
  // exp has two (kernels/cpu/vector_math.hpp), then an addition, a quotient, a product.
  bench.compare("swiglu", h, out.value(), out.value().cwiseAbs(), rounded(5));
  // sigma (1 + g (1 - sigma)) times d up, where 1 - sigma is as wrong as sigma is: sigma has 4 roundings,
  // the terms |g| sigma and |g| (1 - sigma) have no more than 7, and three products follow.
  const auto g = gate.value().array();
  const mirror::Matrix d = wide(ConstMatrix(dh)), s = (1 / (1 + (-g).exp())).matrix();
  bench.compare("swiglu.dgate", dgu.col_range(0, n), tape.gradient(gate),
                (d.array() * up.value().array() * s.array()).abs() * (1 + g.abs()), rounded(14));
  bench.compare("swiglu.dup", dgu.col_range(n, 2 * n), tape.gradient(up), tape.gradient(up).cwiseAbs(),
                rounded(6));
}

void check_cross_entropy(Bench& bench) {
  constexpr std::int64_t kScored = 8;
  const std::int64_t v = bench.config().vocab_size;
  const Matrix logits = bench.draw("loss.logits", kScored, v, 8.0), p = bench.copy(logits);
  const std::vector<std::int32_t> target = bench.draw_ids("loss.target", kScored, v);
  const Matrix nll = bench.blank(kScored, 1);
  cross_entropy(bench.ctx(), {nll.data, static_cast<std::size_t>(kScored)}, p, target, p);
  const mirror::Matrix x = wide(ConstMatrix(logits));
  const mirror::Matrix reference =
      mirror::cross_entropy(x, std::vector<std::int64_t>(target.begin(), target.end()));
  mirror::Matrix size(kScored, 1), gradient(kScored, v), gradient_size(kScored, v);
  for (std::int64_t n = 0; n < kScored; ++n) {
    const std::int64_t right = target[static_cast<std::size_t>(n)];
    const mirror::Row row = x.row(n);
    const double denominator = reference(n, 0) + row(right);  // log of the sum of exponentials
    gradient.row(n) = (row.array() - denominator).exp();
    // An exponential errs by two units and by the rounding of its argument, l - max; so does their sum.
    const mirror::Row errs = (2 + (row.array() - row.maxCoeff()).abs()).matrix();
    const double of_sum = errs.dot(gradient.row(n));
    size(n, 0) = of_sum + std::abs(reference(n, 0));
    gradient_size.row(n) = gradient.row(n).array() * (errs.array() + of_sum + 2);
    gradient(n, right) -= 1;
    gradient_size(n, right) += std::abs(gradient(n, right));
  }
  bench.compare("cross_entropy", nll, reference, size, rounded(2));
  bench.compare("cross_entropy.dlogits", p, gradient, gradient_size, rounded(2));
}

void check_embedding(Bench& bench) {
  const ConstMatrix table = bench.weights().embedding();
  const std::vector<std::int32_t> ids = bench.draw_ids("embedding.ids", kTokens, table.rows);
  const Matrix y = bench.blank(kTokens, table.cols);
  gather_rows(bench.ctx(), y, table, ids);
  mirror::Matrix rows(kTokens, table.cols);
  for (std::int64_t t = 0; t < kTokens; ++t)
    rows.row(t) = FloatWeight(table).widen(ids[static_cast<std::size_t>(t)], 1);
  bench.compare_exact("embedding", y, rows);

  const std::vector<std::int32_t> scored = {3, 7, 28, 30, 46};
  const auto n = static_cast<std::int64_t>(scored.size());
  const Matrix dy = bench.draw("embedding.dy", n, table.cols), dx = bench.blank(kTokens, table.cols);
  scatter_rows(bench.ctx(), dx, dy, scored);
  mirror::Tape tape;
  const mirror::Var x = tape.variable(mirror::Matrix::Zero(kTokens, table.cols));
  const mirror::Var picked = mirror::rows(x, std::vector<mirror::Index>(scored.begin(), scored.end()));
  tape.backward(picked, wide(ConstMatrix(dy)));
  bench.compare_exact("scored_rows.dx", dx, tape.gradient(x));
}

void check_bias(Bench& bench) {
  const std::span<const float> b = bench.weights().layer(0).qkv_bias;
  if (b.empty()) return;
  const Matrix x = bench.draw("bias.x", kTokens, static_cast<std::int64_t>(b.size())), y = bench.copy(x);
  add_bias(bench.ctx(), y, b);
  mirror::Tape tape;
  const mirror::Var sum = mirror::add_to_rows(tape.constant(wide(ConstMatrix(x))), wide(b));
  bench.compare("bias", y, sum.value(), sum.value().cwiseAbs(), rounded(1));
}

// The mask to the bit, and what is kept. A run without dropout has none to check.
void check_dropout(Bench& bench) {
  const double p = bench.spec().lora_dropout;
  if (p == 0.0) return;
  const std::string module = "model.layers.0.self_attn.q_proj";
  const std::uint64_t seed = bench.spec().seed_dropout, update = 5;
  const std::int64_t c = bench.config().hidden;
  const Matrix x = bench.draw("dropout.x", kTokens, c), y = bench.blank(kTokens, c);
  const Matrix before = bench.draw("dropout.dx", kTokens, c), dx = bench.copy(before);
  std::vector<std::uint64_t> key;
  std::vector<std::int32_t> position;
  mirror::Matrix mask(kTokens, c);
  for (std::size_t s = 0; s + 1 < kSampleBegin.size(); ++s) {
    const std::uint64_t sample = 11 + s;
    const std::int32_t n = kSampleBegin[s + 1] - kSampleBegin[s];
    for (std::int32_t t = 0; t < n; ++t) {
      key.push_back(splitmix64(update << 32 | sample));
      position.push_back(t);
    }
    mask.middleRows(kSampleBegin[s], n) = mirror::Dropout{p, seed, update, sample}.mask(module, n, c);
  }
  const DropoutMask own{RandomStream(seed, "dropout." + module), p, key, position};
  dropout(bench.ctx(), y, x, own);
  dropout_backward(bench.ctx(), dx, x, own);
  const mirror::Matrix kept = wide(ConstMatrix(x)).cwiseProduct(mask), old = wide(ConstMatrix(before));
  // Where the mask is 0 so is the size. 1 - p is rounded, and the quotient.
  bench.compare("dropout", y, kept, kept.cwiseAbs(), rounded(2));
  bench.compare("dropout.dx", dx, old + kept, old.cwiseAbs() + kept.cwiseAbs(), rounded(3));
}

}  // namespace

void check_rows(Bench& bench) {
  check_rms_norm(bench);
  check_rope(bench);
  check_swiglu(bench);
  check_cross_entropy(bench);
  check_embedding(bench);
  check_bias(bench);
  check_dropout(bench);
}

}  // namespace tandem::operations
