#include "src/mirror/tape.hpp"

#include <cmath>
#include <utility>

#include "src/mirror/check.hpp"
#include "src/mirror/random.hpp"

namespace tandem::mirror {

std::uint64_t Perturbation::next_key() { return splitmix64(splitmix64(seed_) + n_keys_++); }

void Perturbation::apply(Matrix& value, std::uint64_t key, Index cols, Index first_col) const {
  for (Index i = 0; i < value.rows(); ++i)
    for (Index j = 0; j < value.cols(); ++j) {
      const auto element = static_cast<std::uint64_t>(i * cols + first_col + j);
      value(i, j) *= 1 + unit_ * (2 * mirror::unit(splitmix64(key + element)) - 1);
    }
}

void Perturbation::apply_to_product(Matrix& value, const Column& left, const Column& right, Index n,
                                    std::uint64_t key, Index cols, Index first_col) const {
  const double terms = static_cast<double>(n);
  for (Index i = 0; i < value.rows(); ++i)
    for (Index j = 0; j < value.cols(); ++j) {
      const double walk = left(i) * right(j), y = value(i, j);
      const auto element = static_cast<std::uint64_t>(i * cols + first_col + j);
      value(i, j) += unit_ * std::sqrt(walk * walk + terms * y * y / 3) *
                     (2 * mirror::unit(splitmix64(key + element)) - 1);
    }
}

void Perturbation::apply_sized(Matrix& value, const Matrix& size, std::uint64_t key) const {
  for (Index i = 0; i < value.size(); ++i)
    value.data()[i] +=
        unit_ * size.data()[i] * (2 * mirror::unit(splitmix64(key + static_cast<std::uint64_t>(i))) - 1);
}

void Perturbation::apply_to_rows(Matrix& value, const Column& n, std::uint64_t key) const {
  for (Index i = 0; i < value.rows(); ++i)
    value.row(i) *= 1 + unit_ * std::sqrt(n(i) / 3) *
                            (2 * mirror::unit(splitmix64(key + static_cast<std::uint64_t>(i))) - 1);
}

const Tape::Node& Tape::at(Var v) const {
  check(v.tape_ == this, "a value of another tape");
  return nodes_[v.index_];
}

Tape::Node& Tape::at(Var v) {
  check(v.tape_ == this, "a value of another tape");
  return nodes_[v.index_];
}

Var Tape::add(Node node) {
  check(!differentiated_, "an operation after backward: record a new tape");
  nodes_.push_back(std::move(node));
  return Var(this, nodes_.size() - 1);
}

Var Tape::constant(Matrix value) {
  Node node;
  node.value = std::move(value);
  return add(std::move(node));
}

Var Tape::variable(Matrix value) {
  Node node;
  node.value = std::move(value);
  node.wants_gradient = node.is_variable = true;
  return add(std::move(node));
}

Var Tape::record(Matrix value, const std::vector<Var>& inputs, const Saves& saves, Backward backward,
                 Rounds rounds) {
  if (perturbation_ && rounds == Rounds::kYes)
    perturbation_->apply(value, perturbation_->next_key(), value.cols());
  Node node;
  node.value = std::move(value);
  node.rounds = rounds;
  for (const Var input : inputs) node.wants_gradient |= wants_gradient(input);
  if (node.wants_gradient) {
    for (const Var v : saves.inputs) node.saved.push_back({v.index_, at(v).version});
    if (saves.result) node.saved.push_back({nodes_.size(), node.version});
    node.backward = std::move(backward);
  }
  return add(std::move(node));
}

Matrix& Tape::change(Var v) {
  Node& node = at(v);
  ++node.version;
  return node.value;
}

void Tape::backward(Var result, Matrix seed) {
  check(!differentiated_, "a second backward on one tape: record a new one");
  const Node& last = at(result);
  check(last.wants_gradient, "backward of a value that depends on no variable");
  check(seed.rows() == last.value.rows() && seed.cols() == last.value.cols(),
        "backward: the seed's shape is not the result's");
  differentiated_ = true;
  nodes_[result.index_].gradient = std::move(seed);
  for (std::size_t i = result.index_ + 1; i-- > 0;) {
    Node& node = nodes_[i];
    if (!node.gradient || !node.backward) continue;
    for (const Saved& saved : node.saved)
      check(nodes_[saved.index].version == saved.version,
            "a value was changed in place after an operation had saved it for its gradient");
    const Matrix gradient = std::move(*node.gradient);
    node.gradient.reset();
    now_ = node.rounds;
    node.backward(gradient, Var(this, i));
  }
}

void Tape::add_gradient(Var v, Matrix contribution) {
  Node& node = at(v);
  check(node.wants_gradient, "a gradient for a constant");
  check(contribution.rows() == node.value.rows() && contribution.cols() == node.value.cols(),
        "a gradient's shape is not its value's");
  if (perturbation_ && now_ == Rounds::kYes)
    perturbation_->apply(contribution, perturbation_->next_key(), contribution.cols());
  if (node.gradient)
    *node.gradient += contribution;
  else
    node.gradient = std::move(contribution);
}

const Matrix& Tape::gradient(Var v) const {
  const Node& node = at(v);
  check(node.is_variable, "only variables keep a gradient");
  check(differentiated_, "no gradient before backward");
  check(node.gradient.has_value(), "no gradient: the result does not depend on this variable");
  return *node.gradient;
}

void Tape::add_term_squares(Var v, double squares) { at(v).term_squares += squares; }
double Tape::term_squares(Var v) const { return at(v).term_squares; }

}  // namespace tandem::mirror
