// Exact sums of floats as fixed point (SPEC.md, "Exact sum"): integer addition is associative, so the result
// has the same bits for any order of addends, any number of threads and any number of ranks.
//
// An element is two int64 limbs in units of 2^-64: value = (high * 2^48 + low) * 2^-64. Memory is the
// caller's. `threads` sets the OpenMP team of an operation and never its bits. Operations on one view must
// not overlap in time.
#pragma once

#include <cstdint>
#include <span>

namespace tandem {

class CudaContext;

struct ExactSumView {
  std::int64_t* limbs = nullptr;  // [2*size]: high limbs of elements 0..size-1, then their low limbs
  std::int64_t size = 0;          // elements

  static constexpr std::int64_t n_limbs(std::int64_t size) { return 2 * size; }
  std::int64_t* high() const { return limbs; }
  std::int64_t* low() const { return limbs + size; }
  std::span<std::int64_t> all() const { return {limbs, static_cast<std::size_t>(n_limbs(size))}; }
};

// Addends of one element between two carries: |low| <= 2^48 of each, so the low limb stays within 2^63.
inline constexpr std::int64_t kMaxAddends = std::int64_t{1} << 14;
// Ranks of one reduction: 2^14 carried low limbs, each below 2^48, stay within 2^62.
inline constexpr int kMaxRanks = 1 << 14;

// Counts the addends since the last carry; one addend is one micro-batch, which touches an element at most
// once.
//   if (counter.full()) { ...exact_sum_carry(sum, 1, threads)...; counter.carried(); }
//   counter.add();  then the exact_sum_add calls of this micro-batch
class AddendCounter {
 public:
  bool full() const { return n_ == kMaxAddends; }
  void add() { ++n_; }
  void carried() { n_ = 0; }

 private:
  std::int64_t n_ = 0;
};

// All elements become 0.
void exact_sum_clear(ExactSumView sum, int threads);

// Element offset+i += values[i]. Each |values[i]| must be below 2^32 (so neither Inf nor NaN), and is rounded
// once, to a multiple of 2^-64 (a float below 2^-40 may lose bits). Returns -1, or the smallest i that broke
// the rule: the sum is then unusable and the caller stops the run.
[[nodiscard]] std::int64_t exact_sum_add(ExactSumView sum, std::int64_t offset, std::span<const float> values,
                                         int threads);

// Element `index` += value; false, and nothing is added, where |value| < 2^32 does not hold.
[[nodiscard]] bool exact_sum_add(ExactSumView sum, std::int64_t index, double value);

struct ExactSumCarry {
  std::int64_t too_large = -1;  // smallest element with |high| >= 2^62/ranks after the carry, or -1
  std::uint64_t checksum_before =
      0;  // exact_sum_checksum before the carry: what the limbs summed over ranks must give
  std::uint64_t checksum_after =
      0;  // after it: depends on the elements' values only, not on how they were summed
};

// Brings every element to its one normal form, 0 <= low < 2^48, with its value unchanged. Call it after at
// most kMaxAddends addends, before the all-reduce (ranks = how many take part, at most kMaxRanks), and after
// it (ranks = 1). A `too_large` element could overflow in the sum over ranks: a numeric error, which the
// caller names.
ExactSumCarry exact_sum_carry(ExactSumView sum, int ranks, int threads);

// sum_i (splitmix64(i)|1) * limb_i mod 2^64, i = 0..2*size-1 over `limbs` as they lie: all high, then all low
// limbs. Linear in the limbs: the checksums of the ranks add up to the checksum of the limbs added over the
// ranks, and one limb lost, doubled or with one bit flipped always changes it (the weights are odd).
std::uint64_t exact_sum_checksum(ExactSumView sum, int threads);

// means[i] = float(value of element offset+i / count), divided in double, rounded once more to float32. The
// limbs must be carried; the double is correctly rounded where |value| < 2^37. count > 0.
void exact_sum_mean(ExactSumView sum, std::int64_t offset, double count, std::span<float> means, int threads);

// The value of one element of carried limbs, correctly rounded where it is below 2^37 in magnitude.
double exact_sum_value(ExactSumView sum, std::int64_t index);

// ---- on a device: the same bits ----

// What the operations below found, in the device's memory, since report_clear().
struct ExactSumReport {
  static constexpr std::int64_t kNone = INT64_MAX;
  std::int64_t first_bad;  // smallest index (offset included) that could not be added, or kNone
  std::int64_t too_large;  // as ExactSumCarry's, or kNone
  std::uint64_t checksum_before, checksum_after;  // over all ranges carried
};

void exact_sum_clear(const CudaContext& ctx, ExactSumView sum);
void exact_sum_clear_report(const CudaContext& ctx, ExactSumReport* report);
// A bad value is not added, and noted in the report.
void exact_sum_add(const CudaContext& ctx, ExactSumView sum, std::int64_t offset,
                   std::span<const float> values, ExactSumReport* report);
// Of elements [begin, end) of the sum; the report's checksums gain theirs.
void exact_sum_carry(const CudaContext& ctx, ExactSumView sum, std::int64_t begin, std::int64_t end,
                     int ranks, ExactSumReport* report);
void exact_sum_mean(const CudaContext& ctx, ExactSumView sum, std::int64_t offset, double count,
                    std::span<float> means);

}  // namespace tandem
