// The optimiser step (Loshchilov and Hutter 2019, in the form of PyTorch's AdamW), and the norm it is clipped
// by.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.hpp"

namespace tandem {

struct AdamwFactors {
  double lr = 0.0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  double clip = 1.0;            // factor of the gradient
  std::int64_t steps_made = 1;  // k, this one included: for the bias correction
};

// p *= 1 - lr*wd;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;
// p -= (lr/(1-b1^k)) * m / (sqrt(v)/sqrt(1-b2^k) + eps);  g = clip * gradient.
// All of one element in double, each of p, m, v rounded once to float when stored. Equal lengths; p, m, v in
// place.
void adamw(const CpuContext& ctx, std::span<float> p, std::span<float> m, std::span<float> v,
           std::span<const float> gradient, const AdamwFactors& factors);

// On a device: all elements in one launch, the same bits as on a CPU.
void adamw(const CudaContext& ctx, std::span<float> p, std::span<float> m, std::span<float> v,
           std::span<const float> gradient, const AdamwFactors& factors);

// sum_i x[i]^2 in double, in a fixed order.
double sum_of_squares(const CpuContext& ctx, std::span<const float> x);

}  // namespace tandem
