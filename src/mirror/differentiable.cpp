#include "src/mirror/differentiable.hpp"

#include <cmath>

#include "src/mirror/check.hpp"

namespace tandem::mirror {
namespace {

constexpr auto kExact = Tape::Rounds::kNo;

void check_same_shape(const char* what, Var a, Var b) {
  check(a.rows() == b.rows() && a.cols() == b.cols(), what, ": ", a.rows(), " x ", a.cols(), " meets ",
        b.rows(), " x ", b.cols());
}

// a b, and a b^T, with the errors that sums in the tape's precision have.
Matrix multiplied(Tape& tape, const Matrix& a, const Matrix& b) {
  Matrix y = a * b;
  if (Perturbation* errors = tape.perturbation())
    errors->apply_to_product(y, a.rowwise().norm(), b.colwise().norm().transpose(), a.cols(),
                             errors->next_key(), y.cols());
  return y;
}
Matrix multiplied_transposed(Tape& tape, const Matrix& a, const Matrix& b) {
  Matrix y = product(a, b);
  if (Perturbation* errors = tape.perturbation())
    errors->apply_to_product(y, a.rowwise().norm(), b.rowwise().norm(), a.cols(), errors->next_key(),
                             y.cols());
  return y;
}

}  // namespace

Var add(Var a, Var b) {
  check_same_shape("add", a, b);
  Tape& tape = a.tape();
  return tape.record(a.value() + b.value(), {a, b}, {}, [&tape, a, b](const Matrix& g, Var) {
    if (tape.wants_gradient(a)) tape.add_gradient(a, g);
    if (tape.wants_gradient(b)) tape.add_gradient(b, g);
  });
}

Var scale(Var x, double factor) {
  Tape& tape = x.tape();
  return tape.record(factor * x.value(), {x}, {},
                     [&tape, x, factor](const Matrix& g, Var) { tape.add_gradient(x, factor * g); });
}

Var multiply(Var a, Var b) {
  check_same_shape("multiply", a, b);
  Tape& tape = a.tape();
  return tape.record(a.value().cwiseProduct(b.value()), {a, b}, {{a, b}},
                     [&tape, a, b](const Matrix& g, Var) {
                       if (tape.wants_gradient(a)) tape.add_gradient(a, g.cwiseProduct(b.value()));
                       if (tape.wants_gradient(b)) tape.add_gradient(b, g.cwiseProduct(a.value()));
                     });
}

Var add_to_rows(Var x, const Row& row) {
  check(x.cols() == row.cols(), "add_to_rows: ", x.cols(), " channels meet ", row.cols());
  Tape& tape = x.tape();
  return tape.record(x.value().rowwise() + row, {x}, {},
                     [&tape, x](const Matrix& g, Var) { tape.add_gradient(x, g); });
}

Var silu(Var x) {
  Tape& tape = x.tape();
  return tape.record(silu(x.value()), {x}, {{x}}, [&tape, x](const Matrix& g, Var) {
    const auto v = x.value().array();
    const Matrix s = (1 / (1 + (-v).exp())).matrix();
    tape.add_gradient(x, (g.array() * s.array() * (1 + v * (1 - s.array()))).matrix());
  });
}

Var product(Var a, Var b) {
  check(a.cols() == b.rows(), "product: ", a.cols(), " columns meet ", b.rows(), " rows");
  Tape& tape = a.tape();
  return tape.record(multiplied(tape, a.value(), b.value()), {a, b}, {{a, b}},
                     [&tape, a, b](const Matrix& g, Var) {
                       if (tape.wants_gradient(a))
                         tape.add_gradient(a, multiplied_transposed(tape, g, b.value()));
                       if (tape.wants_gradient(b))
                         tape.add_gradient(b, multiplied(tape, a.value().transpose(), g));
                     });
}

Var product_transposed(Var a, Var b) {
  Tape& tape = a.tape();
  return tape.record(multiplied_transposed(tape, a.value(), b.value()), {a, b}, {{a, b}},
                     [&tape, a, b](const Matrix& g, Var) {
                       if (tape.wants_gradient(a)) tape.add_gradient(a, multiplied(tape, g, b.value()));
                       if (!tape.wants_gradient(b)) return;
                       tape.add_gradient(b, multiplied(tape, g.transpose(), a.value()));
                       tape.add_term_squares(
                           b, g.rowwise().squaredNorm().dot(a.value().rowwise().squaredNorm()));
                     });
}

Var frozen_product(Var x, const FrozenMatrix& w) {
  Tape& tape = x.tape();
  return tape.record(
      multiplied_transposed(tape, x.value(), w.widen()), {x}, {},
      [&tape, x, &w](const Matrix& g, Var) { tape.add_gradient(x, multiplied(tape, g, w.widen())); });
}

Var rms_norm(Var x, const Row& w, double eps) {
  Tape& tape = x.tape();
  Matrix normed = rms_norm(x.value(), w, eps);
  if (Perturbation* errors = tape.perturbation())
    errors->apply_to_rows(normed, Column::Constant(normed.rows(), static_cast<double>(normed.cols())),
                          errors->next_key());
  return tape.record(std::move(normed), {x}, {{x}}, [&tape, x, w, eps](const Matrix& g, Var) {
    const Matrix& v = x.value();
    const double n = static_cast<double>(v.cols());
    const Column r = 1 / (v.rowwise().squaredNorm().array() / n + eps).sqrt();
    const Matrix gw = (g.array().rowwise() * w.array()).matrix();
    const Column mean = gw.cwiseProduct(v).rowwise().sum() / n;
    const Column along_x = (r.array().cube() * mean.array()).matrix();
    tape.add_gradient(
        x, ((gw.array().colwise() * r.array()) - (v.array().colwise() * along_x.array())).matrix());
  });
}

Var rope(Var x, const RopeTable& table) {
  Tape& tape = x.tape();
  return tape.record(rope(x.value(), table), {x}, {}, [&tape, x, &table](const Matrix& g, Var) {
    tape.add_gradient(x, rope(g, table, true));
  });
}

Var causal_softmax(Var scores) {
  Tape& tape = scores.tape();
  Matrix probabilities = causal_softmax(scores.value());
  if (Perturbation* errors = tape.perturbation())
    errors->apply_to_rows(
        probabilities, Column::LinSpaced(probabilities.rows(), 1, static_cast<double>(probabilities.rows())),
        errors->next_key());
  return tape.record(std::move(probabilities), {scores}, {{}, true}, [&tape, scores](const Matrix& g, Var p) {
    // p is zero where nothing is seen, so this is the derivative there too.
    const Matrix& v = p.value();
    const Column along = g.cwiseProduct(v).rowwise().sum();
    Matrix ds = (v.array() * (g.array().colwise() - along.array())).matrix();
    if (Perturbation* errors = tape.perturbation())
      errors->apply_sized(ds, (v.array() * (g.array().abs().colwise() + along.array().abs())).matrix(),
                          errors->next_key());
    tape.add_gradient(scores, std::move(ds));
  });
}

Var reshape(Var x, Index n_rows, Index n_cols) {
  check(n_rows * n_cols == x.rows() * x.cols(), "reshape: another number of elements");
  Tape& tape = x.tape();
  const auto as = [](const Matrix& m, Index r, Index c) {
    return Matrix(Eigen::Map<const Matrix>(m.data(), r, c));
  };
  return tape.record(
      as(x.value(), n_rows, n_cols), {x}, {},
      [&tape, x, as](const Matrix& g, Var) { tape.add_gradient(x, as(g, x.rows(), x.cols())); }, kExact);
}

Var columns(Var x, Index first, Index n) {
  check(first >= 0 && n >= 0 && first + n <= x.cols(), "columns: beyond the array");
  Tape& tape = x.tape();
  return tape.record(
      x.value().middleCols(first, n), {x}, {},
      [&tape, x, first, n](const Matrix& g, Var) {
        Matrix whole = Matrix::Zero(x.rows(), x.cols());
        whole.middleCols(first, n) = g;
        tape.add_gradient(x, std::move(whole));
      },
      kExact);
}

Var join_columns(const std::vector<Var>& parts) {
  check(!parts.empty(), "join_columns: no parts");
  Tape& tape = parts.front().tape();
  Index n_cols = 0;
  for (const Var part : parts) n_cols += part.cols();
  Matrix joined(parts.front().rows(), n_cols);
  Index first = 0;
  for (const Var part : parts) {
    check(part.rows() == joined.rows(), "join_columns: parts differ in rows");
    joined.middleCols(first, part.cols()) = part.value();
    first += part.cols();
  }
  return tape.record(
      std::move(joined), parts, {},
      [&tape, parts](const Matrix& g, Var) {
        Index begin = 0;
        for (const Var part : parts) {
          if (tape.wants_gradient(part)) tape.add_gradient(part, g.middleCols(begin, part.cols()));
          begin += part.cols();
        }
      },
      kExact);
}

Var rows(Var x, const std::vector<Index>& which) {
  Tape& tape = x.tape();
  Matrix picked(static_cast<Index>(which.size()), x.cols());
  for (std::size_t i = 0; i < which.size(); ++i) picked.row(static_cast<Index>(i)) = x.value().row(which[i]);
  return tape.record(
      std::move(picked), {x}, {},
      [&tape, x, which](const Matrix& g, Var) {
        Matrix whole = Matrix::Zero(x.rows(), x.cols());
        for (std::size_t i = 0; i < which.size(); ++i) whole.row(which[i]) += g.row(static_cast<Index>(i));
        tape.add_gradient(x, std::move(whole));
      },
      kExact);
}

Var attention(Var q, Var k, Var v, Index heads, Index kv_heads) {
  const Index d = q.cols() / heads;
  const Var scaled = scale(q, 1 / std::sqrt(static_cast<double>(d)));  // q instead of q k^T, which is larger
  std::vector<Var> outputs;
  for (Index j = 0; j < heads; ++j) {
    const Index shared = j * kv_heads / heads;
    const Var qj = columns(scaled, j * d, d), kj = columns(k, shared * d, d), vj = columns(v, shared * d, d);
    outputs.push_back(product(causal_softmax(product_transposed(qj, kj)), vj));
  }
  return join_columns(outputs);
}

}  // namespace tandem::mirror
