#include "kernels/checksum.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/exact_sum.hpp"

namespace tandem {

namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kLowBits = 48;
constexpr int kCarried = 8;  // elements a thread carries, kThreads apart

using Word = unsigned long long;

TANDEM_KERNEL clear_report_kernel(ExactSumReport* report) {
  if (thread_x() == 0) *report = {ExactSumReport::kNone, ExactSumReport::kNone, 0, 0};
}

TANDEM_KERNEL add_kernel(std::int64_t* high, std::int64_t* low, std::int64_t offset, const float* values,
                         std::int64_t size, ExactSumReport* report) {
  const std::int64_t i = static_cast<std::int64_t>(block_x()) * kThreads + thread_x();
  if (i >= size) return;
  const float value = values[i];
  if (!(value > -0x1p32f && value < 0x1p32f)) {  // NaN, too
    atomic_min(reinterpret_cast<long long*>(&report->first_bad), static_cast<long long>(offset + i));
    return;
  }
  const double t = static_cast<double>(value) * 0x1p16;
  const double whole = trunc(t);
  high[offset + i] += static_cast<std::int64_t>(whole);
  low[offset + i] += static_cast<std::int64_t>(rint((t - whole) * 0x1p48));
}

struct CarryShared {
  Word before[32], after[32];
};

TANDEM_KERNEL carry_kernel(std::int64_t* high, std::int64_t* low, std::int64_t begin, std::int64_t end,
                           std::int64_t size, Word limit, ExactSumReport* report) {
  CarryShared& shared = block_shared<CarryShared>();
  const std::int64_t first =
      begin + static_cast<std::int64_t>(block_x()) * (kThreads * kCarried) + thread_x();
  Word before = 0, after = 0;
  std::int64_t too_large = ExactSumReport::kNone;
  TANDEM_UNROLL
  for (int step = 0; step < kCarried; ++step) {
    const std::int64_t i = first + step * kThreads;
    if (i >= end) break;
    const Word high_weight = checksum_weight(static_cast<std::uint64_t>(i));
    const Word low_weight = checksum_weight(static_cast<std::uint64_t>(size + i));
    // Unsigned: a sum that is already wrong may wrap here, and is reported.
    const Word h = static_cast<Word>(high[i]), l = static_cast<Word>(low[i]);
    const Word carry = static_cast<Word>(low[i] >> kLowBits);
    const Word new_h = h + carry, new_l = l - (carry << kLowBits);
    before += high_weight * h + low_weight * l;
    after += high_weight * new_h + low_weight * new_l;
    // -limit < high < limit
    if (new_h + limit - 1 >= 2 * limit - 1 && too_large == ExactSumReport::kNone) too_large = i;
    high[i] = static_cast<std::int64_t>(new_h);
    low[i] = static_cast<std::int64_t>(new_l);
  }
  if (too_large != ExactSumReport::kNone)
    atomic_min(reinterpret_cast<long long*>(&report->too_large), static_cast<long long>(too_large));
  before = block_sum(before, shared.before);
  after = block_sum(after, shared.after);
  if (thread_x() == 0) {
    atomic_add(reinterpret_cast<Word*>(&report->checksum_before), before);
    atomic_add(reinterpret_cast<Word*>(&report->checksum_after), after);
  }
}

TANDEM_KERNEL mean_kernel(const std::int64_t* high, const std::int64_t* low, double count, float* means,
                          std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(block_x()) * kThreads + thread_x();
  if (i >= size) return;
  const double value = (static_cast<double>(high[i]) * 0x1p48 + static_cast<double>(low[i])) * 0x1p-64;
  means[i] = static_cast<float>(value / count);
}

}  // namespace

void exact_sum_clear(const CudaContext& ctx, ExactSumView sum) {
  zero_bytes(ctx, sum.limbs, sum.all().size_bytes());
}

void exact_sum_clear_report(const CudaContext& ctx, ExactSumReport* report) {
  launch(ctx, "exact_sum_clear_report", clear_report_kernel, {1}, kWarp, 0, report);
}

void exact_sum_add(const CudaContext& ctx, ExactSumView sum, std::int64_t offset,
                   std::span<const float> values, ExactSumReport* report) {
  launch(ctx, "exact_sum_add", add_kernel, {blocks_for(std::ssize(values), kThreads)}, kThreads, 0,
         sum.high(), sum.low(), offset, values.data(), static_cast<std::int64_t>(values.size()), report);
}

void exact_sum_carry(const CudaContext& ctx, ExactSumView sum, std::int64_t begin, std::int64_t end,
                     int ranks, ExactSumReport* report) {
  const Word limit = (Word{1} << 62) / static_cast<Word>(ranks);
  launch(ctx, "exact_sum_carry", carry_kernel, {blocks_for(end - begin, kThreads * kCarried)}, kThreads,
         sizeof(CarryShared), sum.high(), sum.low(), begin, end, sum.size, limit, report);
}

void exact_sum_mean(const CudaContext& ctx, ExactSumView sum, std::int64_t offset, double count,
                    std::span<float> means) {
  launch(ctx, "exact_sum_mean", mean_kernel, {blocks_for(std::ssize(means), kThreads)}, kThreads, 0,
         sum.high() + offset, sum.low() + offset, count, means.data(),
         static_cast<std::int64_t>(means.size()));
}

}  // namespace tandem
