// Learning rate, clipping and AdamW (SPEC.md, "Optimiser").
#pragma once

#include <cstdint>
#include <vector>

#include "src/mirror/mirror.hpp"
#include "src/mirror/spec_text.hpp"

namespace tandem::mirror {

// Of update t = 1..T: linear warm-up, then cosine (Loshchilov and Hutter 2017, eq. 5, one period), linear or
// constant.
double learning_rate(const Spec& spec, std::int64_t t);

// 2-norm over all tensors (Pascanu et al. 2013, section 3.2, with PyTorch's 1e-6): min(1, most / (norm +
// 1e-6)).
double total_norm(const Tensors& gradient);
double clip_factor(double norm, double most);

// Decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2, as PyTorch's AdamW scales it); bias
// correction after Kingma and Ba 2015, algorithm 1. g: clipped. k: the step's number, from 1.
struct AdamW {
  double beta1, beta2, eps, weight_decay;
  void step(std::vector<double>& p, std::vector<double>& m, std::vector<double>& v,
            const std::vector<double>& g, double lr, std::int64_t k) const;
};

}  // namespace tandem::mirror
