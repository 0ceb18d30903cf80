#include "src/train/cuda/device_weights.hpp"

#include <algorithm>
#include <type_traits>

#include "kernels/rounding.hpp"
#include "src/base/dtype.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

// Elements that go to the device at a time where they are rounded there.
constexpr std::int64_t kStaged = std::int64_t{1} << 24;

std::size_t size_of(ConstMatrix m) { return static_cast<std::size_t>(m.rows * m.cols); }

}  // namespace

template <class Real>
template <class Memory>
MatrixView<const Real> DeviceWeights<Real>::matrix(Memory& memory, ConstMatrix host) {
  Real* data = memory.template take<Real>(host.rows * host.cols).data();
  pieces_.push_back({{host.data, size_of(host)}, data, !std::is_same_v<Real, float>});
  return {data, host.rows, host.cols};
}

template <class Real>
template <class Memory>
std::span<const float> DeviceWeights<Real>::vector(Memory& memory, std::span<const float> host) {
  if (host.empty()) return {};
  float* data = memory.template take<float>(static_cast<std::int64_t>(host.size())).data();
  pieces_.push_back({host, data, false});
  return {data, host.size()};
}

template <class Real>
template <class Memory>
void DeviceWeights<Real>::lay_out(Memory& memory, const Weights& host) {
  const WeightViews<float>& from = host.views();
  pieces_.clear();
  views_ = {};
  views_.embedding = matrix(memory, from.embedding);
  views_.head = from.head.data == from.embedding.data ? views_.embedding : matrix(memory, from.head);
  views_.final_norm = vector(memory, from.final_norm);
  for (const LayerWeights& layer : from.layers) {
    LayerWeightsOf<Real>& here = views_.layers.emplace_back();
    for (std::size_t g = 0; g < kGroups; ++g) here.fused[g] = matrix(memory, layer.fused[g]);
    here.input_norm = vector(memory, layer.input_norm);
    here.post_norm = vector(memory, layer.post_norm);
    here.q_norm = vector(memory, layer.q_norm);
    here.k_norm = vector(memory, layer.k_norm);
    here.qkv_bias = vector(memory, layer.qkv_bias);
  }
}

template <class Real>
std::size_t DeviceWeights<Real>::bytes(const Weights& host) {
  ArenaPlan plan;
  DeviceWeights().lay_out(plan, host);
  return plan.bytes();
}

template <class Real>
DeviceWeights<Real>::DeviceWeights(const CudaContext& ctx, const Weights& host)
    : ctx_(&ctx), host_(&host), arena_(ctx, bytes(host), "model weights") {
  lay_out(arena_, host);
  std::int64_t longest = 0;
  for (const Piece& piece : pieces_)
    if (piece.rounded) longest = std::max(longest, static_cast<std::int64_t>(piece.host.size()));
  DeviceArena staging(ctx, static_cast<std::size_t>(std::min(longest, kStaged)) * sizeof(float),
                      "weights on their way");
  const std::span<float> staged = staging.take<float>(std::min(longest, kStaged));
  for (const Piece& piece : pieces_) {
    if (!piece.rounded) {
      copy_bytes_to_device(ctx, piece.device, piece.host.data(), piece.host.size_bytes());
      continue;
    }
    if constexpr (std::is_same_v<Real, Bf16>) {
      for (std::size_t at = 0; at < piece.host.size(); at += staged.size()) {
        const std::size_t n = std::min(staged.size(), piece.host.size() - at);
        copy_to_device(ctx, staged.first(n), piece.host.subspan(at, n));
        to_bf16(ctx, {static_cast<Bf16*>(piece.device) + at, n}, staged.first(n));
      }
    }
  }
  ctx.synchronize();  // staging is freed
}

template <class Real>
std::string DeviceWeights<Real>::digest(std::size_t i) const {
  const std::span<const float> tensor = host_->tensor(i);
  const auto piece = std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& p) {
    return tensor.data() >= p.host.data() && tensor.data() + tensor.size() <= p.host.data() + p.host.size();
  });
  if (piece == pieces_.end())
    throw Error(ErrorKind::kInternal, cat(host_->tensor_name(i), ": is not on the device"));
  const auto offset = static_cast<std::size_t>(tensor.data() - piece->host.data());
  std::vector<float> values(tensor.size());
  if (!piece->rounded) {
    const float* device = static_cast<const float*>(piece->device) + offset;
    copy_bytes_to_host(*ctx_, values.data(), device, tensor.size_bytes());
  } else {
    std::vector<Bf16> rounded(tensor.size());
    copy_bytes_to_host(*ctx_, rounded.data(), static_cast<const Bf16*>(piece->device) + offset,
                       rounded.size() * sizeof(Bf16));
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = rounded[k].bits == f32_to_bf16(tensor[k]) ? tensor[k] : bf16_to_f32(rounded[k].bits);
  }
  return Sha256().update(std::span<const float>(values)).hex();
}

template class DeviceWeights<float>;
template class DeviceWeights<Bf16>;

}  // namespace tandem
