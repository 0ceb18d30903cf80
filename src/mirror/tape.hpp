// Reverse-mode automatic differentiation (Griewank and Walther, Evaluating Derivatives, chapter 3):
// operations on 2-D arrays are recorded on a tape in the order they are computed, and `backward` walks it
// from the end, each operation turning the gradient of its result into gradients of its inputs.
//
// What would give a wrong gradient silently is refused (kInternal): a second backward, recording after it, a
// gradient that does not exist, a value changed in place that a recorded operation still needs, operands of
// another tape.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "src/mirror/matrix.hpp"

namespace tandem::mirror {

class Tape;

// A value on a tape: cheap to copy, valid as long as its tape.
class Var {
 public:
  Tape& tape() const { return *tape_; }
  const Matrix& value() const;
  Index rows() const { return value().rows(); }
  Index cols() const { return value().cols(); }

 private:
  friend class Tape;
  Var(Tape* tape, std::size_t index) : tape_(tape), index_(index) {}
  Tape* tape_;
  std::size_t index_;
};

// Errors as rounding makes them; see Rounding in mirror.hpp. `key` names the draws.
class Perturbation {
 public:
  Perturbation(double unit, std::uint64_t seed) : unit_(unit), seed_(seed) {}
  std::uint64_t next_key();
  // Multiplies elements by 1 + unit * U(-1, 1). Element (i, j) is drawn by its index in a matrix of `cols`
  // columns of which `value` starts at `first_col`.
  void apply(Matrix& value, std::uint64_t key, Index cols, Index first_col = 0) const;
  // Adds the error of a sum of n terms one after the other: unit * U(-1, 1) * sqrt(left[i]^2 right[j]^2 + n
  // y^2 / 3), where left and right are the norms of the rows and columns multiplied and y is the sum. Each
  // addition errs by a part of the sum so far, which walks at random to left * right and drifts to y; the
  // root of the squares is left.
  void apply_to_product(Matrix& value, const Column& left, const Column& right, Index n, std::uint64_t key,
                        Index cols, Index first_col = 0) const;
  // Adds unit * U(-1, 1) * size, element by element: what was rounded before terms cancelled.
  void apply_sized(Matrix& value, const Matrix& size, std::uint64_t key) const;
  // The same for what a sum of positive terms normalises: row i is multiplied by
  // 1 + unit * U(-1, 1) * sqrt(n[i] / 3).
  void apply_to_rows(Matrix& value, const Column& n, std::uint64_t key) const;

 private:
  double unit_;
  std::uint64_t seed_, n_keys_ = 0;
};

class Tape {
 public:
  // Gets the gradient of the operation's result, and the result; calls add_gradient for the inputs that want
  // one.
  using Backward = std::function<void(const Matrix& gradient, Var result)>;
  // The values that an operation's Backward will read: of its inputs, and its own result's.
  struct Saves {
    std::vector<Var> inputs;
    bool result = false;
  };
  // Only an operation that rounds is perturbed; one that rearranges does not round.
  enum class Rounds { kYes, kNo };

  explicit Tape(Perturbation* perturbation = nullptr) : perturbation_(perturbation) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Var constant(Matrix value);  // wants no gradient
  Var variable(Matrix value);  // its gradient is kept
  // The result of an operation on `inputs`.
  Var record(Matrix value, const std::vector<Var>& inputs, const Saves& saves, Backward backward,
             Rounds rounds = Rounds::kYes);

  const Matrix& value(Var v) const { return at(v).value; }
  Matrix& change(Var v);  // in place; refused later by `backward` if an operation had saved the old value
  bool wants_gradient(Var v) const { return at(v).wants_gradient; }

  // Gradients of sum(seed * result) for all variables. Once.
  void backward(Var result, Matrix seed);
  void add_gradient(Var v, Matrix contribution);  // for operations, during backward
  const Matrix& gradient(Var v) const;            // of a variable, after backward
  // What a gradient is the sum of, one outer product a token: the sum of their squared norms.
  void add_term_squares(Var v, double squares);
  double term_squares(Var v) const;
  Perturbation* perturbation() const { return perturbation_; }

 private:
  struct Saved {
    std::size_t index;
    std::uint64_t version;
  };
  struct Node {
    Matrix value;
    std::optional<Matrix> gradient;
    double term_squares = 0;
    bool wants_gradient = false, is_variable = false;
    Rounds rounds = Rounds::kNo;
    std::uint64_t version = 0;
    std::vector<Saved> saved;
    Backward backward;
  };
  const Node& at(Var v) const;
  Node& at(Var v);
  Var add(Node node);

  std::deque<Node> nodes_;  // so that values stay where they are
  bool differentiated_ = false;
  Rounds now_ = Rounds::kNo;  // of the operation whose derivative is being computed
  Perturbation* perturbation_;
};

inline const Matrix& Var::value() const { return tape_->value(*this); }

}  // namespace tandem::mirror
