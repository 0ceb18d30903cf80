// The operations of operations.hpp on a tape, with their derivatives. Given g, the gradient of an operation's
// result, the comment says what its inputs get. Nothing here knows of a model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/mirror/operations.hpp"
#include "src/mirror/tape.hpp"

namespace tandem::mirror {

// A weight that is never trained and is widened to float64 only while it is used.
class FrozenMatrix {
 public:
  virtual ~FrozenMatrix() = default;
  virtual Index rows() const = 0;
  virtual Index cols() const = 0;
  virtual Matrix widen(Index first_row, Index n_rows) const = 0;
  Matrix widen() const { return widen(0, rows()); }
};

Var add(Var a, Var b);                   // a + b             g to both
Var scale(Var x, double factor);         // factor x          factor g
Var multiply(Var a, Var b);              // a * b by element  g * b to a, g * a to b
Var add_to_rows(Var x, const Row& row);  // x + row           g
Var silu(Var x);                         // s = sigmoid(x)    g * s (1 + x (1 - s))

Var product(Var a, Var b);             // a b               g b^T to a, a^T g to b
Var product_transposed(Var a, Var b);  // a b^T             g b to a, g^T a to b
// x w^T                                                      g w. `w` must outlive the tape.
Var frozen_product(Var x, const FrozenMatrix& w);

// r = 1/sqrt(mean x^2 + eps), y = x r w                      r (g w) - x r^3 mean(g w x)
Var rms_norm(Var x, const Row& w, double eps);
Var rope(Var x, const RopeTable& table);  // a rotation        rotated back. `table` must outlive the tape.
Var causal_softmax(Var scores);           // p, row by row     p * (g - sum(g * p))

Var reshape(Var x, Index rows, Index cols);        // the same elements in row-major order
Var columns(Var x, Index first, Index n);          // a block of columns; g there, zero elsewhere
Var join_columns(const std::vector<Var>& parts);   // side by side
Var rows(Var x, const std::vector<Index>& which);  // those rows, each at most once; g there, zero elsewhere

// Composed of the above, as operations.hpp defines it.
Var attention(Var q, Var k, Var v, Index heads, Index kv_heads);

// nll [N, 1] of targets [N] under softmax(x head^T), x [N, C], head [V, C]. The head is used a block of its
// rows at a time, forward for the softmax's denominators and again backward, so that no [N, V] array exists.
// g: (softmax - onehot) head, row by row times g.  `head` must outlive the tape.
Var head_nll(Var x, const FrozenMatrix& head, const std::vector<std::int64_t>& targets);

// The logits of x [N, C], a block of the head's rows at a time: visit(first_row, logits [N, n]).
using VisitLogits = std::function<void(Index first, const Matrix& logits)>;
void visit_logits(const Matrix& x, const FrozenMatrix& head, const VisitLogits& visit);

}  // namespace tandem::mirror
