#include "src/mirror/operations.hpp"

#include <cmath>
#include <numbers>

#include "src/mirror/check.hpp"

namespace tandem::mirror {

Matrix product(const Matrix& x, const Matrix& w) {
  check(x.cols() == w.cols(), "product: ", x.cols(), " channels meet weights of ", w.cols());
  return x * w.transpose();
}

Matrix product_bound(const Matrix& x, const Matrix& w) { return product(x.cwiseAbs(), w.cwiseAbs()); }

Matrix rms_norm(const Matrix& x, const Row& w, double eps) {
  check(x.cols() == w.cols(), "rms_norm: ", x.cols(), " channels meet weights of ", w.cols());
  const Column rstd = 1 / (x.rowwise().squaredNorm().array() / static_cast<double>(x.cols()) + eps).sqrt();
  return ((x.array().colwise() * rstd.array()).rowwise() * w.array()).matrix();
}

Matrix silu(const Matrix& x) { return (x.array() / (1 + (-x.array()).exp())).matrix(); }

Matrix swiglu(const Matrix& gate, const Matrix& up) {
  check(gate.rows() == up.rows() && gate.cols() == up.cols(), "swiglu: gate and up differ in shape");
  return silu(gate).cwiseProduct(up);
}

std::vector<double> rope_frequencies(std::int64_t head_dim, double theta, const RopeScaling* scaling) {
  check(head_dim > 0 && head_dim % 2 == 0, "rope: head_dim ", head_dim, " is not even");
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (!scaling) {
      frequencies.push_back(f);
      continue;
    }
    // Turns that this frequency makes within the context the model was first trained on.
    const double turns = scaling->original_context * f / (2 * std::numbers::pi);
    const double low = scaling->low_freq_factor, high = scaling->high_freq_factor;
    const double k = (turns - low) / (high - low);
    frequencies.push_back(turns > high  ? f
                          : turns < low ? f / scaling->factor
                                        : (1 - k) * f / scaling->factor + k * f);
  }
  return frequencies;
}

RopeTable rope_table(const std::vector<double>& frequencies, std::int64_t n_tokens) {
  const Index half = static_cast<Index>(frequencies.size());
  RopeTable table{Matrix(n_tokens, half), Matrix(n_tokens, half)};
  for (Index t = 0; t < n_tokens; ++t)
    for (Index i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t) * frequencies[static_cast<std::size_t>(i)];
      table.cos(t, i) = std::cos(angle);
      table.sin(t, i) = std::sin(angle);
    }
  return table;
}

Matrix rope(const Matrix& x, const RopeTable& table, bool inverse) {
  const Index half = table.cos.cols(), d = 2 * half;
  check(x.rows() == table.cos.rows() && x.cols() % d == 0, "rope: ", x.rows(), " x ", x.cols(),
        " meets a table of ", table.cos.rows(), " positions and head_dim ", d);
  const Matrix sin = inverse ? Matrix(-table.sin) : table.sin;
  Matrix y(x.rows(), x.cols());
  for (Index head = 0; head < x.cols() / d; ++head) {
    const auto first = x.middleCols(head * d, half), second = x.middleCols(head * d + half, half);
    y.middleCols(head * d, half) = first.cwiseProduct(table.cos) - second.cwiseProduct(sin);
    y.middleCols(head * d + half, half) = second.cwiseProduct(table.cos) + first.cwiseProduct(sin);
  }
  return y;
}

Matrix causal_softmax(const Matrix& scores) {
  check(scores.rows() == scores.cols(), "causal_softmax: scores are not square");
  Matrix p = Matrix::Zero(scores.rows(), scores.cols());
  for (Index i = 0; i < scores.rows(); ++i) {
    const auto seen = scores.row(i).head(i + 1);
    auto row = p.row(i).head(i + 1);
    row = (seen.array() - seen.maxCoeff()).exp();
    row /= row.sum();
  }
  return p;
}

Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v, Index heads, Index kv_heads) {
  const Index d = q.cols() / heads;
  check(q.cols() == heads * d && k.cols() == kv_heads * d && v.cols() == kv_heads * d &&
            k.rows() == q.rows() && v.rows() == q.rows(),
        "attention: q, k and v do not fit ", heads, " and ", kv_heads, " heads");
  Matrix out(q.rows(), q.cols());
  for (Index j = 0; j < heads; ++j) {
    const Index shared = j * kv_heads / heads;
    const Matrix scores = q.middleCols(j * d, d) * k.middleCols(shared * d, d).transpose();
    out.middleCols(j * d, d) =
        causal_softmax(scores / std::sqrt(static_cast<double>(d))) * v.middleCols(shared * d, d);
  }
  return out;
}

Column cross_entropy(const Matrix& logits, const std::vector<std::int64_t>& targets) {
  check(logits.rows() == static_cast<Index>(targets.size()), "cross_entropy: ", logits.rows(), " rows, ",
        targets.size(), " targets");
  Column nll(logits.rows());
  for (Index t = 0; t < logits.rows(); ++t) {
    const std::int64_t target = targets[static_cast<std::size_t>(t)];
    check(target >= 0 && target < logits.cols(), "cross_entropy: target ", target, " is no column");
    const double largest = logits.row(t).maxCoeff();
    nll(t) = largest + std::log((logits.row(t).array() - largest).exp().sum()) - logits(t, target);
  }
  return nll;
}

}  // namespace tandem::mirror
