// Attention and its gradients in float64, the plain way, each element with a bound of the error that a
// device's kernel may have: from the roundings it does, by gamma(n) = n u / (1 - n u) for sums of n numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/rope.hpp"

namespace tandem::testing {

struct AttentionCase {
  HeadShape heads;
  std::vector<std::int32_t> begin;
  std::int64_t n_tokens() const { return begin.back(); }
};

// Unit roundoffs. sum: of a sum's steps; 2^-23 where tensor cores sum, which may cut off instead of rounding.
// stored: of outputs; weight: of the probabilities and score gradients that products take.
struct Roundoffs {
  double sum, stored, weight;
};
inline constexpr Roundoffs kF32Roundoffs{0x1p-24, 0x1p-24, 0.0};
inline constexpr Roundoffs kBf16Roundoffs{0x1p-23, 0x1p-8, 0x1p-8};

struct Bounded {
  std::vector<double> value, bound;
  explicit Bounded(std::int64_t n) : value(static_cast<std::size_t>(n)), bound(value) {}
};

struct AttentionReference {
  Bounded o, lse, dq, dk, dv;  // lse [H,T]
  double least_score = 0.0, greatest_score = 0.0;

  // All row by row: q, d [T,H*D], k, v [T,K*D].
  AttentionReference(const AttentionCase& c, const Roundoffs& u, const std::vector<double>& q,
                     const std::vector<double>& k, const std::vector<double>& v,
                     const std::vector<double>& d);
};

// |x[from..]| . |y[..]| and x . y over `n`.
struct Dots {
  double value = 0.0, magnitude = 0.0;
};
inline Dots dots(const double* x, const double* y, std::int64_t n) {
  Dots sum;
  for (std::int64_t i = 0; i < n; ++i) {
    sum.value += x[i] * y[i];
    sum.magnitude += std::abs(x[i] * y[i]);
  }
  return sum;
}

inline AttentionReference::AttentionReference(const AttentionCase& c, const Roundoffs& u,
                                              const std::vector<double>& q, const std::vector<double>& k,
                                              const std::vector<double>& v, const std::vector<double>& d)
    : o(c.n_tokens() * c.heads.q_cols()),
      lse(c.n_tokens() * c.heads.n_heads),
      dq(c.n_tokens() * c.heads.q_cols()),
      dk(c.n_tokens() * c.heads.kv_cols()),
      dv(c.n_tokens() * c.heads.kv_cols()) {
  const std::int64_t dim = c.heads.head_dim, group = c.heads.n_heads / c.heads.n_kv_heads;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  const auto gamma = [&](std::int64_t n) {
    const double x = static_cast<double>(n) * u.sum;
    return x / (1.0 - x);
  };
  // Errors relative to a number, one after the other.
  const auto both = [](double a, double b) { return a + b + a * b; };
  for (std::size_t s = 0; s + 1 < c.begin.size(); ++s)
    for (std::int64_t h = 0; h < c.heads.n_heads; ++h)
      for (std::int64_t t = c.begin[s]; t < c.begin[s + 1]; ++t) {
        const std::int64_t first = c.begin[s], n = t - first + 1, length = c.begin[s + 1] - first;
        const auto at_q = static_cast<std::size_t>(t * c.heads.q_cols() + h * dim);
        const auto at_k = [&](std::int64_t key) {
          return static_cast<std::size_t>((first + key) * c.heads.kv_cols() + h / group * dim);
        };
        const auto size = static_cast<std::size_t>(n);
        std::vector<double> p(size), dp(size), dp_error(size);
        double score_error = 0.0, largest = 0.0, top = -HUGE_VAL;
        for (std::int64_t key = 0; key < n; ++key) {
          const Dots score = dots(&q[at_q], &k[at_k(key)], dim), grad = dots(&d[at_q], &v[at_k(key)], dim);
          const auto i = static_cast<std::size_t>(key);
          p[i] = scale * score.value;
          top = std::max(top, p[i]);
          largest = std::max(largest, std::abs(p[i]));
          least_score = std::min(least_score, p[i]), greatest_score = std::max(greatest_score, p[i]);
          // The sum, the factor's own rounding and its product's.
          score_error = std::max(score_error, gamma(dim + 3) * scale * score.magnitude);
          dp[i] = grad.value, dp_error[i] = gamma(dim) * grad.magnitude;
        }
        double sum = 0.0;
        for (double& x : p) sum += x = std::exp(x - top);
        const double log_sum = top + std::log(sum);
        // A weight exp(s - top): both scores' errors; in base 2 the factor log2(e) is rounded and multiplied,
        // then the difference is rounded: each at most a unit of 2 * largest. exp itself: 2 ulp, 4 units.
        const double weight_error = std::expm1(2.0 * score_error + 8.0 * u.sum * largest + 4.0 * u.sum);
        // Sums of at most n weights or weighted rows; with each tile of 32 keys once more multiplied by a
        // weight of the same error (the tiles together pass from the first maximum to the last: exponents add
        // up, so the errors by score count twice at most) and rounded three times.
        const std::int64_t tiles = (n + 31) / 32;
        const double sum_error = both(
            both(weight_error, std::expm1(2.0 * score_error + 8.0 * u.sum * largest)), gamma(n + 12 * tiles));
        const auto i_lse = static_cast<std::size_t>(h * c.n_tokens() + t);
        lse.value[i_lse] = log_sum;
        // Of the logarithm: the sum's relative error, the function's and the shift's own roundings.
        lse.bound[i_lse] =
            score_error + sum_error + 4.0 * u.sum * (largest + std::abs(log_sum) + std::log(sum));

        std::vector<double> o_error(static_cast<std::size_t>(dim));
        double delta = 0.0, delta_error = 0.0;
        for (std::int64_t j = 0; j < dim; ++j) {
          double value = 0.0, magnitude = 0.0;
          for (std::int64_t key = 0; key < n; ++key) {
            const double term =
                p[static_cast<std::size_t>(key)] / sum * v[at_k(key) + static_cast<std::size_t>(j)];
            value += term, magnitude += std::abs(term);
          }
          const auto at = at_q + static_cast<std::size_t>(j);
          // Weighted rows with weights rounded; divided by the sum (a reciprocal and a product).
          const double error = magnitude * both(both(sum_error, u.weight), both(sum_error, gamma(2)));
          o.value[at] = value;
          o.bound[at] = error + u.stored * (std::abs(value) + error);
          delta += value * d[at];
          delta_error += std::abs(d[at]) * (o.bound[at] + gamma(dim) * (std::abs(value) + o.bound[at]));
        }
        // Backward: p again, from the kernel's own lse.
        const double p_error = std::expm1(score_error + lse.bound[i_lse] +
                                          8.0 * u.sum * (largest + std::abs(log_sum)) + 4.0 * u.sum);
        const std::int64_t n_queries = length * group;  // at most, for one key
        for (std::int64_t key = 0; key < n; ++key) {
          const auto i = static_cast<std::size_t>(key);
          const double weight = p[i] / sum, ds = weight * (dp[i] - delta);
          double ds_error = weight * (1.0 + p_error) * (dp_error[i] + delta_error) + std::abs(ds) * p_error;
          ds_error += 3.0 * u.sum * (std::abs(ds) + ds_error);
          ds_error += u.weight * (std::abs(ds) + ds_error);
          for (std::int64_t j = 0; j < dim; ++j) {
            const auto offset = static_cast<std::size_t>(j);
            const double key_j = k[at_k(key) + offset], query_j = q[at_q + offset], d_j = d[at_q + offset];
            const double magnitude = std::abs(ds) + ds_error;
            dq.value[at_q + offset] += scale * ds * key_j;
            dq.bound[at_q + offset] += scale * std::abs(key_j) * (ds_error + gamma(n + 3) * magnitude);
            dk.value[at_k(key) + offset] += scale * ds * query_j;
            dk.bound[at_k(key) + offset] +=
                scale * std::abs(query_j) * (ds_error + gamma(n_queries + 3) * magnitude);
            dv.value[at_k(key) + offset] += weight * d_j;
            dv.bound[at_k(key) + offset] +=
                weight * std::abs(d_j) * both(both(p_error, u.weight), gamma(n_queries));
          }
        }
      }
  for (Bounded* sum : {&dq, &dk, &dv})
    for (std::size_t i = 0; i < sum->value.size(); ++i)
      sum->bound[i] += u.stored * (std::abs(sum->value[i]) + sum->bound[i]);
}

}  // namespace tandem::testing
