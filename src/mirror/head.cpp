// The output head with its loss: softmax over the whole vocabulary, never held at once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/mirror/check.hpp"
#include "src/mirror/differentiable.hpp"

namespace tandem::mirror {
namespace {

constexpr Index kBlockRows = 4096;

// Logits of the head's rows [first, first + w.rows()); perturbed alike every time they are computed.
struct Logits {
  const Perturbation* perturbation;
  std::uint64_t key;
  Index vocabulary;
  Matrix operator()(const Matrix& x, const Matrix& w, Index first) const {
    Matrix logits = product(x, w);
    if (perturbation)
      perturbation->apply_to_product(logits, x.rowwise().norm(), w.rowwise().norm(), x.cols(), key,
                                     vocabulary, first);
    return logits;
  }
};

using VisitBlock = std::function<void(Index first, const Matrix& w)>;

void visit_blocks(const FrozenMatrix& head, const VisitBlock& visit) {
  for (Index first = 0; first < head.rows(); first += kBlockRows)
    visit(first, head.widen(first, std::min(kBlockRows, head.rows() - first)));
}

// log(sum_v exp(logits[t, v])) of each row, block by block: the sum is kept relative to the largest logit so
// far.
Column log_denominators(const Matrix& x, const FrozenMatrix& head, const Logits& logits_of,
                        const std::vector<std::int64_t>& targets, Column& target_logits) {
  Column largest = Column::Constant(x.rows(), -std::numeric_limits<double>::infinity());
  Column sum = Column::Zero(x.rows());
  visit_blocks(head, [&](Index first, const Matrix& w) {
    const Matrix logits = logits_of(x, w, first);
    for (Index t = 0; t < x.rows(); ++t) {
      const double now = std::max(largest(t), logits.row(t).maxCoeff());
      sum(t) = sum(t) * std::exp(largest(t) - now) + (logits.row(t).array() - now).exp().sum();
      largest(t) = now;
      const Index target = targets[static_cast<std::size_t>(t)] - first;
      if (target >= 0 && target < logits.cols()) target_logits(t) = logits(t, target);
    }
  });
  return largest.array() + sum.array().log();
}

}  // namespace

Var head_nll(Var x, const FrozenMatrix& head, const std::vector<std::int64_t>& targets) {
  check(x.rows() == static_cast<Index>(targets.size()), "head_nll: ", x.rows(), " rows, ", targets.size(),
        " targets");
  for (const std::int64_t target : targets)
    check(target >= 0 && target < head.rows(), "head_nll: target ", target, " beyond the vocabulary");
  Tape& tape = x.tape();
  Perturbation* perturbation = tape.perturbation();
  const Logits logits_of{perturbation, perturbation ? perturbation->next_key() : 0, head.rows()};
  Column target_logits = Column::Zero(x.rows());
  Matrix denominators_rounded = log_denominators(x.value(), head, logits_of, targets, target_logits);
  if (perturbation)
    perturbation->apply_sized(denominators_rounded, denominators_rounded.cwiseAbs(),
                              perturbation->next_key());
  const Column denominators = denominators_rounded;
  const auto derivative = [&tape, x, &head, targets, denominators, logits_of](const Matrix& g, Var) {
    Matrix dx = Matrix::Zero(x.rows(), x.cols());
    visit_blocks(head, [&](Index first, const Matrix& w) {
      const Matrix logits = logits_of(x.value(), w, first);
      Matrix p = (logits.array().colwise() - denominators.array()).exp().matrix();
      for (Index t = 0; t < p.rows(); ++t) {
        const Index target = targets[static_cast<std::size_t>(t)] - first;
        if (target >= 0 && target < p.cols()) p(t, target) -= 1;
        p.row(t) *= g(t, 0);
      }
      dx.noalias() += p * w;
    });
    tape.add_gradient(x, std::move(dx));
  };
  return tape.record(denominators - target_logits, {x}, {{x}}, derivative);
}

void visit_logits(const Matrix& x, const FrozenMatrix& head, const VisitLogits& visit) {
  visit_blocks(head, [&](Index first, const Matrix& w) { visit(first, product(x, w)); });
}

}  // namespace tandem::mirror
