#include "src/check/inputs_check.hpp"

#include <cmath>
#include <map>

#include "io/trajectory.hpp"
#include "src/audit/check_update.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

// "FIRST (and 2 more tensors)"
std::string first_and_more(const std::string& first, std::int64_t count, const char* what) {
  if (count < 2) return first;
  return cat(first, " (and ", count - 1, " more ", what, count > 2 ? "s)" : ")");
}

// Sums of n numbers in double, in any order.
bool same_sum(double a, double b, double size, double n) { return std::abs(a - b) <= n * 0x1p-52 * size; }

std::string difference(const LoadRow& row, const mirror::LoadedTensor& own) {
  double n = 1.0;
  for (const std::int64_t extent : row.shape) n *= static_cast<double>(extent);
  if (row.shape != own.shape) return "has another shape";
  if (row.dtype != own.dtype) return cat("is ", row.dtype, ", by the mirror ", own.dtype);
  if (row.digest != own.digest) return "has other bytes";
  if (!same_sum(row.mean, own.mean, own.rms, n))
    return cat("has mean ", row.mean, ", by the mirror ", own.mean);
  if (!same_sum(row.rms, own.rms, own.rms, n)) return cat("has rms ", row.rms, ", by the mirror ", own.rms);
  return "";
}

class SampleCheck {
 public:
  SampleCheck(CheckLine& line, const char* name, const SampleSet& samples,
              const std::vector<mirror::RenderedSample>& own)
      : line_(line), name_(name), samples_(samples), own_(own) {}

  void run() {
    const auto n = static_cast<std::int64_t>(own_.size());
    if (samples_.size() != n)
      line_.fail(Verdict::kExact, cat(samples_.size(), " ", name_, " samples, by the mirror ", n));
    std::int64_t differ = 0;
    std::string first;
    for (std::int64_t i = 0; i < std::min(n, samples_.size()); ++i) {
      const std::string what = difference_of(i);
      if (!what.empty() && differ++ == 0)
        first = cat(name_, " sample ", i, " (line ", samples_.line(i), ") ", what);
    }
    if (differ > 0) line_.fail(Verdict::kExact, first_and_more(first, differ, "sample"));
  }

 private:
  std::string difference_of(std::int64_t i) const {
    const RenderRow row = render_row(samples_, i);
    const mirror::RenderedSample& own = own_[static_cast<std::size_t>(i)];
    if (samples_.line(i) != own.line) return cat("is by the mirror of line ", own.line);
    if (row.n_ids != own.n_ids) return cat("has ", row.n_ids, " tokens, by the mirror ", own.n_ids);
    if (row.n_targets != own.n_targets)
      return cat("has ", row.n_targets, " scored tokens, by the mirror ", own.n_targets);
    if (row.digest != own.digest) return "has other token ids or target marks than by the mirror";
    if (row.last_target_id != own.last_target_id)
      return cat("ends its targets with token ", row.last_target_id, ", by the mirror ", own.last_target_id);
    return "";
  }

  CheckLine& line_;
  const char* name_;
  const SampleSet& samples_;
  const std::vector<mirror::RenderedSample>& own_;
};

}  // namespace

CheckLine check_loading(const mirror::Mirror& mirror, const Weights& weights) {
  CheckLine line{2, "loading"};
  if (const std::string keys = differing_keys(weights.config().echo(), mirror.config_echo()); !keys.empty())
    line.fail(Verdict::kExact, cat("the model's configuration was read otherwise: ", keys));

  std::map<std::string, mirror::LoadedTensor> own;
  for (mirror::LoadedTensor& tensor : mirror.load()) {
    const std::string name = tensor.name;
    own.emplace(name, std::move(tensor));
  }
  std::int64_t differ = 0;
  std::string first;
  std::vector<BaseTensorInMemory> in_memory;
  for (std::size_t i = 0; i < weights.n_tensors(); ++i) {
    const LoadRow& row = weights.load_rows()[i];
    const auto found = own.find(row.name);
    const std::string what = found == own.end() ? "is none of the mirror's" : difference(row, found->second);
    if (!what.empty() && differ++ == 0) first = cat("base tensor ", row.name, " ", what);
    if (found != own.end())
      in_memory.push_back({static_cast<std::int64_t>(i), row.name, weights.memory_digest(i)});
  }
  if (differ > 0) line.fail(Verdict::kExact, first_and_more(first, differ, "tensor"));
  if (own.size() != weights.n_tensors())
    line.fail(Verdict::kExact, cat(weights.n_tensors(), " base tensors, by the mirror ", own.size()));
  if (const std::string what = differing_weights(mirror, in_memory); !what.empty())
    line.fail(Verdict::kExact, what);
  line.summary = cat(counted(own.size(), "tensor"), " in the files and in memory, configuration");
  return line;
}

CheckLine check_rendering(const mirror::Mirror& mirror, const Dataset& train, const Dataset& held_out) {
  CheckLine line{3, "rendering"};
  SampleCheck(line, "training", train.samples, mirror.training_samples()).run();
  SampleCheck(line, "held-out", held_out.samples, mirror.held_out_samples()).run();
  // Empty where no row of the set was rendered by one.
  const std::string& digest =
      train.report.template_digest.empty() ? held_out.report.template_digest : train.report.template_digest;
  if (digest != mirror.template_digest())
    line.fail(Verdict::kExact,
              cat("the chat template's digest is ", digest, ", by the mirror ", mirror.template_digest()));
  line.summary = cat(train.samples.size(), " training and ", held_out.samples.size(),
                     " held-out samples, every token id and target mark");
  return line;
}

}  // namespace tandem
