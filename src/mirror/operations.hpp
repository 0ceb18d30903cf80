// The operations of a transformer as plain functions, each as its paper defines it. Letters: T tokens, C
// channels, D head_dim, V vocabulary. Shapes that do not fit throw kInternal.
#pragma once

#include <cstdint>
#include <vector>

#include "src/mirror/matrix.hpp"

namespace tandem::mirror {

// y = x w^T: x [T, in], w [out, in] as model files store it, y [T, out].
Matrix product(const Matrix& x, const Matrix& w);
// |x| |w|^T, element by element: what an error of `product` is measured by (Higham, Accuracy and Stability of
// Numerical Algorithms, section 3.5: |fl(xy) - xy| <= gamma_n |x| |y|).
Matrix product_bound(const Matrix& x, const Matrix& w);

// y[t,c] = w[c] x[t,c] / sqrt(mean_c x[t,:]^2 + eps)   (Zhang and Sennrich 2019, eq. 4; eps as Llama has it)
Matrix rms_norm(const Matrix& x, const Row& w, double eps);

// silu(x) = x / (1 + exp(-x))   (Elfwing et al. 2018)
Matrix silu(const Matrix& x);
// silu(gate) * up, element by element   (Shazeer 2020, section 2: SwiGLU without biases, beta = 1)
Matrix swiglu(const Matrix& gate, const Matrix& up);

// Rotary embedding (Su et al. 2021, section 3.2.2). Pairs are (i, i + D/2), as Llama's published weights
// expect.
struct RopeScaling {  // Llama 3's
  double factor, low_freq_factor, high_freq_factor, original_context;
};
// [D/2]: theta^(-2i/D), scaled if asked for.
std::vector<double> rope_frequencies(std::int64_t head_dim, double theta, const RopeScaling* scaling);
struct RopeTable {
  Matrix cos, sin;  // [T, D/2] of position * frequency
};
RopeTable rope_table(const std::vector<double>& frequencies, std::int64_t n_tokens);
// x [T, heads D] -> the same shape; each head is rotated alike. `inverse` rotates back.
Matrix rope(const Matrix& x, const RopeTable& table, bool inverse = false);

// Row i: softmax over columns 0..i, zero beyond   (Vaswani et al. 2017, sections 3.2.1 and 3.2.3)
Matrix causal_softmax(const Matrix& scores);
// Causal attention of one sample: q [T, heads D], k and v [T, kv_heads D] -> [T, heads D]. Query head j uses
// key-value head floor(j kv_heads / heads)   (Ainslie et al. 2023); scale 1/sqrt(D).
Matrix attention(const Matrix& q, const Matrix& k, const Matrix& v, Index heads, Index kv_heads);

// nll[t] = log(sum_v exp(logits[t,v])) - logits[t, targets[t]]
Column cross_entropy(const Matrix& logits, const std::vector<std::int64_t>& targets);

}  // namespace tandem::mirror
