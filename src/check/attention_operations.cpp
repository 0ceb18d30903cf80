// Attention forward and backward on two packed samples. Its sizes follow the errors through the operation, in
// units of u, with N = D + T + 8 roundings as the common factor:
//   a score is a product of D terms: it errs by (D + 2) S, S = scale |q| |k|, its scale's rounding included;
//   p = exp(s - shift) then errs, relatively, by c = (D + 2) S + |s - shift| + 2;
//   a sum over keys of p times something errs by (c + T) of the sum of magnitudes.
#include <cmath>

#include "kernels/attention.hpp"
#include "src/check/operation_bench.hpp"

namespace tandem::operations {

namespace {

using mirror::Column;
using mirror::Index;

// What of one head and sample both passes need.
struct Scores {
  mirror::Matrix s, p, size;  // scores where they are seen, probabilities, S
  Column lse;
};

Scores scores_of(const mirror::Matrix& q, const mirror::Matrix& k) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.cols()));
  Scores scores;
  scores.s = scale * mirror::product(q, k);
  scores.size = scale * mirror::product_bound(q, k);
  scores.p = mirror::causal_softmax(scores.s);
  scores.lse.resize(q.rows());
  // Of a row's own token, which is always seen: s - log p.
  for (Index t = 0; t < q.rows(); ++t) scores.lse(t) = scores.s(t, t) - std::log(scores.p(t, t));
  return scores;
}

class AttentionCheck {
 public:
  explicit AttentionCheck(Bench& bench)
      : bench_(bench),
        heads_(bench.config().heads),
        d_(heads_.head_dim),
        q_(bench.draw("attention.q", kTokens, heads_.q_cols())),
        k_(bench.draw("attention.k", kTokens, heads_.kv_cols())),
        v_(bench.draw("attention.v", kTokens, heads_.kv_cols())),
        do_(bench.draw("attention.do", kTokens, heads_.q_cols())),
        factor_(static_cast<double>(d_ + kTokens + 8)) {
    const auto zero = [](std::int64_t rows, std::int64_t cols) { return mirror::Matrix::Zero(rows, cols); };
    o_ = o_size_ = dq_ = dq_size_ = zero(kTokens, heads_.q_cols());
    lse_ = lse_size_ = zero(heads_.n_heads, kTokens);
    dk_ = dk_size_ = dv_ = dv_size_ = zero(kTokens, heads_.kv_cols());
  }

  void run() {
    for (std::size_t s = 0; s + 1 < kSampleBegin.size(); ++s) {
      record(kSampleBegin[s], kSampleBegin[s + 1] - kSampleBegin[s]);
      for (std::int64_t h = 0; h < heads_.n_heads; ++h)
        head(kSampleBegin[s], kSampleBegin[s + 1] - kSampleBegin[s], h);
    }
    const Limits limits = sum_of(d_ + kTokens, 8);
    const Matrix o = bench_.blank(kTokens, heads_.q_cols()), lse = bench_.blank(heads_.n_heads, kTokens);
    attention_forward(bench_.ctx(), o, lse, q_, k_, v_, kSampleBegin, heads_);
    bench_.compare("attention", o, o_, o_size_ / factor_, limits);
    bench_.compare("attention.log_sum", lse, lse_, lse_size_ / factor_, limits);

    // Backward by itself: from the mirror's results, rounded.
    const Matrix dq = bench_.blank(kTokens, heads_.q_cols()), dk = bench_.blank(kTokens, heads_.kv_cols()),
                 dv = bench_.blank(kTokens, heads_.kv_cols());
    attention_backward(bench_.ctx(), dq, dk, dv, do_, narrow(o_), narrow(lse_), q_, k_, v_, kSampleBegin,
                       heads_);
    bench_.compare("attention.dq", dq, dq_, dq_size_ / factor_, limits);
    bench_.compare("attention.dk", dk, dk_, dk_size_ / factor_, limits);
    bench_.compare("attention.dv", dv, dv_, dv_size_ / factor_, limits);
  }

 private:
  Matrix narrow(const mirror::Matrix& m) {
    const Matrix result = bench_.blank(m.rows(), m.cols());
    for (Index i = 0; i < m.size(); ++i) result.data[i] = static_cast<float>(m.data()[i]);
    return result;
  }
  static mirror::Matrix part(ConstMatrix m, std::int64_t begin, std::int64_t n) {
    return wide(m.row_range(begin, begin + n));
  }

  // The mirror's own values and gradients of a sample.
  void record(std::int64_t begin, std::int64_t n) {
    mirror::Tape tape;
    const mirror::Var q = tape.variable(part(q_, begin, n)), k = tape.variable(part(k_, begin, n)),
                      v = tape.variable(part(v_, begin, n));
    const mirror::Var o = mirror::attention(q, k, v, heads_.n_heads, heads_.n_kv_heads);
    tape.backward(o, part(do_, begin, n));
    o_.middleRows(begin, n) = o.value();
    dq_.middleRows(begin, n) = tape.gradient(q);
    dk_.middleRows(begin, n) = tape.gradient(k);
    dv_.middleRows(begin, n) = tape.gradient(v);
  }

  // Sizes of one head's results, in units of u.
  void head(std::int64_t begin, std::int64_t n, std::int64_t h) {
    const std::int64_t g = h * heads_.n_kv_heads / heads_.n_heads;
    const auto of = [&](ConstMatrix m, std::int64_t at) {
      return wide(m.row_range(begin, begin + n).col_range(at * d_, (at + 1) * d_));
    };
    const mirror::Matrix q = of(q_, h), k = of(k_, g), v = of(v_, g).cwiseAbs(), dout = of(do_, h).cwiseAbs();
    const Scores scores = scores_of(q, k);
    const mirror::Matrix& p = scores.p;
    const double terms = static_cast<double>(d_ + 2), keys = static_cast<double>(kTokens);
    lse_.block(h, begin, 1, n) = scores.lse.transpose();

    // Forward: the shift is the row's largest score that is seen.
    mirror::Matrix c = terms * scores.size;
    for (Index t = 0; t < n; ++t) {
      const double most = scores.s.row(t).head(t + 1).maxCoeff();
      c.row(t) = c.row(t).array() + (scores.s.row(t).array() - most).abs() + 2;
    }
    const Column of_sum = p.cwiseProduct(c).rowwise().sum().array() + keys;
    const mirror::Matrix pv = p * v;
    o_size_.block(begin, h * d_, n, d_) =
        p.cwiseProduct(c) * v + (pv.array().colwise() * (of_sum.array() + keys + 3)).matrix();
    // log's rounding, and the sum's of it and the shift, which is a score and less than all of them are
    // wrong.
    lse_size_.block(h, begin, 1, n) =
        (of_sum.array() + 2 * scores.lse.array().abs() + 2 * std::log(keys) + 2).matrix().transpose();

    // Backward: the shift is the log of the sum, rounded; o is rounded too.
    mirror::Matrix e = terms * scores.size;
    for (Index t = 0; t < n; ++t)
      e.row(t) =
          e.row(t).array() + (scores.s.row(t).array() - scores.lse(t)).abs() + std::abs(scores.lse(t)) + 2;
    const double scale = 1 / std::sqrt(static_cast<double>(d_));
    const double uses = keys * static_cast<double>(heads_.n_heads / heads_.n_kv_heads);
    dv_size_.block(begin, g * d_, n, d_) +=
        p.cwiseProduct(e).transpose() * dout + uses * (p.transpose() * dout);
    // ds = p (dp - delta), dp = do v, delta = do o: each a product of D terms.
    const mirror::Matrix dp = dout * v.transpose();
    const Column delta = dout.cwiseProduct(o_.block(begin, h * d_, n, d_).cwiseAbs()).rowwise().sum();
    const mirror::Matrix most = (dp.array().colwise() + delta.array()).matrix();
    const mirror::Matrix ds = p.cwiseProduct(most),
                         ds_error = ds.cwiseProduct((e.array() + terms + 3).matrix());
    dq_size_.block(begin, h * d_, n, d_) = scale * ((ds_error + (keys + 2) * ds) * k.cwiseAbs());
    dk_size_.block(begin, g * d_, n, d_) += scale * ((ds_error + (uses + 2) * ds).transpose() * q.cwiseAbs());
  }

  Bench& bench_;
  const HeadShape& heads_;
  std::int64_t d_;
  Matrix q_, k_, v_, do_;
  double factor_;
  mirror::Matrix o_, o_size_, lse_, lse_size_, dq_, dq_size_, dk_, dk_size_, dv_, dv_size_;
};

}  // namespace

void check_attention(Bench& bench) { AttentionCheck(bench).run(); }

}  // namespace tandem::operations
