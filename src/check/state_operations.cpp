// What is computed of gradients: their exact sum, the optimiser's step.
#include <algorithm>
#include <cmath>

#include "kernels/adamw.hpp"
#include "kernels/exact_sum.hpp"
#include "src/audit/check_update.hpp"
#include "src/base/text.hpp"
#include "src/check/operation_bench.hpp"
#include "src/mirror/optimizer.hpp"

namespace tandem::operations {

namespace {

constexpr std::int64_t kElements = 4096;

std::span<float> flat(Matrix m) { return {m.data, static_cast<std::size_t>(m.cols)}; }

mirror::Matrix row_of(const std::vector<double>& values) {
  mirror::Matrix row(1, static_cast<mirror::Index>(values.size()));
  std::copy(values.begin(), values.end(), row.data());
  return row;
}

std::vector<double> doubles(Matrix m) { return {m.data, m.data + m.cols}; }

// One step as it is after `k - 1` others. Limits as in an audit.
void check_adamw(Bench& bench, std::int64_t k) {
  const RunSpec& spec = bench.spec();
  const std::string name = cat("adamw.step_", k);
  const Matrix p = bench.draw(name + ".p", 1, kElements, 0.1),
               m = bench.draw(name + ".m", 1, kElements, 1e-3);
  const Matrix v = bench.draw(name + ".v", 1, kElements, 1e-3),
               g = bench.draw(name + ".g", 1, kElements, 1e-2);
  for (float& x : flat(v)) x = x * x;
  if (k == 1)
    for (const Matrix moment : {m, v}) std::fill_n(moment.data, kElements, 0.0f);
  constexpr double kClip = 0.7;
  std::vector<double> pr = doubles(p), mr = doubles(m), vr = doubles(v), gr = doubles(g);
  const std::vector<double> p_before = pr, m_before = mr;
  for (double& x : gr) x *= kClip;
  mirror::AdamW{spec.optim_beta1, spec.optim_beta2, spec.optim_eps, spec.optim_weight_decay}.step(
      pr, mr, vr, gr, spec.optim_lr, k);
  adamw(
      bench.ctx(), flat(p), flat(m), flat(v), flat(g),
      {spec.optim_lr, spec.optim_beta1, spec.optim_beta2, spec.optim_eps, spec.optim_weight_decay, kClip, k});
  std::vector<double> p_size, m_size;
  for (std::size_t i = 0; i < pr.size(); ++i) {
    p_size.push_back(std::abs(p_before[i]) + std::abs(pr[i] - p_before[i]));
    m_size.push_back(std::max(std::abs(m_before[i]), std::abs(mr[i])));
  }
  constexpr Limits kLimits = {kStepUnits * kU, kStepUnits * kU};
  bench.compare(name + ".p", p, row_of(pr), row_of(p_size), kLimits);
  bench.compare(name + ".m", m, row_of(mr), row_of(m_size), kLimits);
  bench.compare(name + ".v", v, row_of(vr), row_of(vr), kLimits);
}

// Contributions in two orders: the same limbs; and their sum is right, by integers of 128 bits.
void check_exact_sum(Bench& bench) {
  constexpr std::int64_t kSize = 1024, kAddends = 24;
  const Matrix values = bench.draw("exact_sum", kAddends, kSize, 3.0);
  std::vector<std::int64_t> forth(static_cast<std::size_t>(ExactSumView::n_limbs(kSize))), back(forth);
  const ExactSumView a{forth.data(), kSize}, b{back.data(), kSize};
  const int threads = bench.ctx().threads;
  bool taken = true;
  for (std::int64_t i = 0; i < kAddends; ++i) {
    // 7 and 24 have no common factor: every contribution once.
    const std::int64_t j = (7 * i + 5) % kAddends;
    taken = exact_sum_add(a, 0, {values.row(i), static_cast<std::size_t>(kSize)}, threads) < 0 && taken;
    taken = exact_sum_add(b, 0, {values.row(j), static_cast<std::size_t>(kSize)}, 1) < 0 && taken;
  }
  (void)exact_sum_carry(a, 1, threads);
  (void)exact_sum_carry(b, 1, 1);
  const Matrix order = bench.blank(1, 2 * kSize), sums = bench.blank(1, kSize);
  for (std::int64_t i = 0; i < 2 * kSize; ++i) {
    const auto at = static_cast<std::size_t>(i);
    order.data[i] = taken && forth[at] == back[at] ? 0.0f : 1.0f;
  }
  exact_sum_mean(a, 0, 1.0, flat(sums), threads);
  mirror::Matrix reference(1, kSize);
  for (std::int64_t i = 0; i < kSize; ++i) {
    __int128 sum = 0;  // in units of 2^-64
    for (std::int64_t n = 0; n < kAddends; ++n)
      sum += static_cast<__int128>(std::ldexp(static_cast<long double>(values.row(n)[i]), 64));
    reference(0, i) = static_cast<double>(
        static_cast<float>(static_cast<double>(std::ldexp(static_cast<long double>(sum), -64))));
  }
  bench.compare_exact("exact_sum.any_order", order, mirror::Matrix::Zero(1, 2 * kSize));
  bench.compare_exact("exact_sum", sums, reference);
}

}  // namespace

void check_state(Bench& bench) {
  for (const std::int64_t k : {1, 100}) check_adamw(bench, k);
  check_exact_sum(bench);
}

}  // namespace tandem::operations
