// LoRA adapters (Hu et al. 2021): where each matrix lies in one flat array of parameters, and their first
// values.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/adapter.hpp"
#include "src/base/matrix.hpp"
#include "src/model/config.hpp"
#include "src/model/modules.hpp"

namespace tandem {

// One A or B in the flat arrays (parameters, moments, gradient all have this layout).
struct LoraTensor {
  std::string name;  // "model.layers.0.self_attn.q_proj.lora_A.weight"
  std::int64_t offset = 0, rows = 0, cols = 0;
  std::int64_t size() const { return rows * cols; }
};

// The adapted modules of one group of one layer. Their A lie one below the other, so that one product serves
// all.
struct LoraGroup {
  struct Member {
    std::string module;               // "model.layers.0.self_attn.q_proj"
    std::int64_t row_begin, row_end;  // of the module in the group's fused output
    std::int64_t b_offset;            // B [out, r]
    std::size_t a_tensor, b_tensor;   // indices into tensors()
  };
  std::int64_t a_offset = 0;  // A of all members, stacked: [r * members, in]
  std::int64_t in = 0;
  std::vector<Member> members;
};

class LoraLayout {
 public:
  // targets as in RunSpec::lora_targets.
  LoraLayout(const ModelConfig& config, std::int64_t rank, double scale,
             const std::vector<std::string>& targets);

  std::int64_t rank() const { return rank_; }
  float scale() const { return scale_; }  // s, rounded to float32
  // The scale of one module: s, unless a fault is planted.
  float scale_of(const LoraGroup::Member& member) const;
  std::int64_t size() const { return size_; }  // elements of a flat array
  // In digest order: byte order of the names (SPEC.md, "Digests").
  const std::vector<LoraTensor>& tensors() const { return tensors_; }
  const LoraGroup& group(std::int64_t layer, int group) const {
    return groups_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(group)];
  }
  // The elements of a flat array that belong to layer l: [first, second).
  std::pair<std::int64_t, std::int64_t> layer_range(std::int64_t l) const {
    const auto next = static_cast<std::size_t>(l) + 1;
    return {group(l, 0).a_offset, next < groups_.size() ? groups_[next][0].a_offset : size_};
  }
  // Which tensor element i of a flat array belongs to: "NAME[row, column]".
  std::string element_name(std::int64_t i) const;

  // A of the group's members, stacked; B of one. Of a flat array of any element type.
  template <class T>
  MatrixView<T> a(std::span<T> flat, const LoraGroup& group) const {
    return {flat.data() + group.a_offset, static_cast<std::int64_t>(group.members.size()) * rank_, group.in};
  }
  template <class T>
  MatrixView<T> b(std::span<T> flat, const LoraGroup::Member& member) const {
    return {flat.data() + member.b_offset, member.row_end - member.row_begin, rank_};
  }

  // All tensors in digest order.
  std::vector<std::span<const float>> spans(std::span<const float> flat) const;
  std::vector<AdapterTensor> views(std::span<const float> flat) const;

  // A drawn by (seed, module), B = 0 (SPEC.md, "Random numbers, initial adapter, order").
  void initialise(std::span<float> flat, std::uint64_t seed) const;
  // From the folder of a PEFT adapter, whose settings are returned; throws kInput where rank, alpha, rslora
  // or tensors do not fit this layout. `expected` says which; its other settings are not looked at.
  AdapterConfig load(std::span<float> flat, const std::filesystem::path& folder,
                     const AdapterConfig& expected) const;

 private:
  std::int64_t rank_;
  float scale_;
  std::int64_t size_ = 0;
  std::vector<LoraTensor> tensors_;
  std::vector<std::array<LoraGroup, kGroups>> groups_;
};

}  // namespace tandem
