#include "src/model/lora.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/base/fault.hpp"
#include "src/base/random.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
// Pieces start at multiples of 64 bytes; the gap's elements stay 0 in every array.
std::int64_t padded(std::int64_t n) { return (n + 15) / 16 * 16; }
}  // namespace

LoraLayout::LoraLayout(const ModelConfig& config, std::int64_t rank, double scale,
                       const std::vector<std::string>& targets)
    : rank_(rank), scale_(static_cast<float>(scale)) {
  const LayerShape shape(config);
  for (std::int64_t l = 0; l < config.n_layers; ++l) {
    auto& groups = groups_.emplace_back();
    for (std::size_t g = 0; g < kGroups; ++g) {
      LoraGroup& group = groups[g];
      group.in = shape.in[g];
      group.a_offset = size_;
      std::vector<const Module*> adapted;
      for (const Module& module : shape.modules)
        if (module.group == static_cast<Group>(g) &&
            std::find(targets.begin(), targets.end(), module.target) != targets.end())
          adapted.push_back(&module);
      size_ += padded(static_cast<std::int64_t>(adapted.size()) * rank * group.in);
      for (std::size_t m = 0; m < adapted.size(); ++m) {
        const Module& module = *adapted[m];
        const std::string name = module_name(l, module);
        group.members.push_back(
            {name, module.row_begin, module.row_end, size_, tensors_.size(), tensors_.size() + 1});
        tensors_.push_back({name + std::string(kA),
                            group.a_offset + static_cast<std::int64_t>(m) * rank * group.in, rank, group.in});
        tensors_.push_back({name + std::string(kB), size_, module.out(), rank});
        size_ += padded(module.out() * rank);
      }
    }
  }
  // Into digest order; the groups' indices follow.
  std::vector<std::size_t> order(tensors_.size()), place(tensors_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t x, std::size_t y) { return tensors_[x].name < tensors_[y].name; });
  std::vector<LoraTensor> sorted;
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(tensors_[order[i]]);
  }
  tensors_ = std::move(sorted);
  for (auto& groups : groups_)
    for (LoraGroup& group : groups)
      for (LoraGroup::Member& member : group.members) {
        member.a_tensor = place[member.a_tensor];
        member.b_tensor = place[member.b_tensor];
      }
}

std::string LoraLayout::element_name(std::int64_t i) const {
  for (const LoraTensor& tensor : tensors_)
    if (i >= tensor.offset && i < tensor.offset + tensor.size())
      return cat(tensor.name, "[", (i - tensor.offset) / tensor.cols, ", ", (i - tensor.offset) % tensor.cols,
                 "]");
  return cat("element ", i);
}

float LoraLayout::scale_of(const LoraGroup::Member& member) const {
  if (planted("wrong_alpha") && member.module.ends_with("layers.1.mlp.down_proj")) return 1.001f * scale_;
  return scale_;
}

std::vector<std::span<const float>> LoraLayout::spans(std::span<const float> flat) const {
  std::vector<std::span<const float>> spans;
  for (const LoraTensor& tensor : tensors_)
    spans.push_back(
        flat.subspan(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.size())));
  return spans;
}

std::vector<AdapterTensor> LoraLayout::views(std::span<const float> flat) const {
  const auto data = spans(flat);
  std::vector<AdapterTensor> views;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    views.push_back({tensors_[i].name, tensors_[i].rows, tensors_[i].cols, data[i]});
  return views;
}

void LoraLayout::initialise(std::span<float> flat, std::uint64_t seed) const {
  std::fill(flat.begin(), flat.end(), 0.0f);
  for (const LoraTensor& tensor : tensors_) {
    if (!tensor.name.ends_with(kA)) continue;
    const RandomStream stream(seed, std::string_view(tensor.name).substr(0, tensor.name.size() - kA.size()));
    const double bound = std::sqrt(1.0 / static_cast<double>(tensor.cols));
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      flat[static_cast<std::size_t>(tensor.offset + i)] =
          static_cast<float>((2.0 * stream.unit(static_cast<std::uint64_t>(i)) - 1.0) * bound);
  }
}

}  // namespace tandem
