// Shows a pass on a device to an observer on the host.
#pragma once

#include <vector>

#include "kernels/cuda_context.hpp"
#include "src/model/pass_observer.hpp"

namespace tandem {

class HostObserver final : public PassObserver {
 public:
  HostObserver(const CudaContext& ctx, PassObserver& host) : ctx_(ctx), host_(host) {}

  void after_layer(std::int64_t l, ConstMatrix x) override { host_.after_layer(l, bring(x, x.rows)); }
  void logits_of(std::int64_t begin, ConstMatrix logits) override {
    const std::int64_t n = host_.wanted_logits(begin, logits.rows);
    if (n > 0) host_.logits_of(begin, bring(logits, n));
  }

 private:
  // The first n rows; x is contiguous.
  ConstMatrix bring(ConstMatrix x, std::int64_t n) {
    rows_.resize(static_cast<std::size_t>(n * x.cols));
    copy_bytes_to_host(ctx_, rows_.data(), x.data, rows_.size() * sizeof(float));
    return {rows_.data(), n, x.cols};
  }

  const CudaContext& ctx_;
  PassObserver& host_;
  std::vector<float> rows_;
};

}  // namespace tandem
