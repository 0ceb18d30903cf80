// The frozen weights in a device's memory, in the format that products are computed in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda_context.hpp"
#include "src/model/weights.hpp"

namespace tandem {

template <class Real>
class DeviceWeights {
 public:
  // Copies `host`, rounding matrices to Real. Both must outlive this object.
  DeviceWeights(const CudaContext& ctx, const Weights& host);

  static std::size_t bytes(const Weights& host);

  const WeightViews<Real>& views() const { return views_; }
  // Weights::memory_digest(i) of the device's copy. Where the host's value is not one of Real, the copy may
  // be its rounding: then it stands for the value.
  std::string digest(std::size_t i) const;

 private:
  // A run of host elements and where it lies on the device.
  struct Piece {
    std::span<const float> host;
    void* device;
    bool rounded;  // to Real; else float32
  };
  template <class Memory>
  void lay_out(Memory& memory, const Weights& host);
  template <class Memory>
  MatrixView<const Real> matrix(Memory& memory, ConstMatrix host);
  template <class Memory>
  std::span<const float> vector(Memory& memory, std::span<const float> host);

  DeviceWeights() = default;  // to plan its memory

  const CudaContext* ctx_ = nullptr;
  const Weights* host_ = nullptr;
  DeviceArena arena_;
  WeightViews<Real> views_;
  std::vector<Piece> pieces_;
};

}  // namespace tandem
