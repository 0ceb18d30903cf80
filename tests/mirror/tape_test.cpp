// The tape: what it refuses, and each operation's derivative against finite differences.
#include "src/mirror/tape.hpp"

#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "src/mirror/differentiable.hpp"
#include "tests/mirror/finite_difference.hpp"
#include "tests/mirror/tiny.hpp"

namespace tandem::mirror {
namespace {

Matrix random_matrix(const std::string& name, Index n_rows, Index n_cols) {
  const auto values = random_tensor(name, {n_rows, n_cols}, 1).values;
  return Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
             values.data(), n_rows, n_cols)
      .cast<double>();
}

Matrix ones_like(Var v) { return Matrix::Ones(v.rows(), v.cols()); }

template <class Action>
void expect_refusal(Action action, const std::string& part) {
  try {
    action();
    FAIL() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(MirrorTape, RefusesASecondBackward) {
  Tape tape;
  const Var x = tape.variable(random_matrix("x", 2, 3)), y = scale(x, 2);
  tape.backward(y, ones_like(y));
  expect_refusal([&] { tape.backward(y, ones_like(y)); }, "second backward");
}

TEST(MirrorTape, RefusesAnOperationAfterBackward) {
  Tape tape;
  const Var x = tape.variable(random_matrix("x", 2, 3)), y = scale(x, 2);
  tape.backward(y, ones_like(y));
  expect_refusal([&] { scale(x, 3); }, "after backward");
}

TEST(MirrorTape, RefusesAGradientThatDoesNotExist) {
  Tape tape;
  const Var x = tape.variable(random_matrix("x", 2, 3)), unused = tape.variable(random_matrix("u", 2, 3)),
            fixed = tape.constant(random_matrix("c", 2, 3)), y = add(x, fixed);
  expect_refusal([&] { tape.gradient(x); }, "before backward");
  tape.backward(y, ones_like(y));
  EXPECT_EQ(tape.gradient(x), ones_like(x));
  expect_refusal([&] { tape.gradient(unused); }, "does not depend");
  expect_refusal([&] { tape.gradient(fixed); }, "only variables");
  expect_refusal([&] { tape.gradient(y); }, "only variables");
}

TEST(MirrorTape, RefusesBackwardFromAConstant) {
  Tape tape;
  const Var y = scale(tape.constant(random_matrix("c", 2, 3)), 2);
  expect_refusal([&] { tape.backward(y, ones_like(y)); }, "no variable");
}

TEST(MirrorTape, RefusesASavedValueThatWasChangedInPlace) {
  Tape tape;
  const Var x = tape.variable(random_matrix("x", 2, 3)), y = multiply(x, x);
  tape.change(x)(0, 0) += 1;
  expect_refusal([&] { tape.backward(y, ones_like(y)); }, "changed in place");
}

TEST(MirrorTape, RefusesASavedResultThatWasChangedInPlace) {
  Tape tape;
  const Var x = tape.variable(random_matrix("x", 3, 3)), p = causal_softmax(x), y = scale(p, 2);
  tape.change(p)(0, 0) = 0;
  expect_refusal([&] { tape.backward(y, ones_like(y)); }, "changed in place");
}

TEST(MirrorTape, AllowsAChangeOfAValueThatNoOperationNeeds) {
  Tape tape;
  const Var x = tape.variable(random_matrix("x", 2, 3)), y = add(x, x);
  tape.change(x)(0, 0) += 1;
  tape.backward(y, ones_like(y));
  EXPECT_EQ(tape.gradient(x), Matrix::Constant(2, 3, 2));
}

TEST(MirrorTape, RefusesOperandsOfTwoTapes) {
  Tape one, two;
  const Var x = one.variable(random_matrix("x", 2, 3)), y = two.variable(random_matrix("y", 2, 3));
  expect_refusal([&] { add(x, y); }, "another tape");
}

TEST(MirrorTape, RefusesShapesThatDoNotFit) {
  Tape tape;
  const Var x = tape.variable(random_matrix("x", 2, 3)), y = tape.variable(random_matrix("y", 3, 2));
  expect_refusal([&] { add(x, y); }, "2 x 3 meets 3 x 2");
  expect_refusal([&] { product(x, x); }, "3 columns meet 2 rows");
  expect_refusal([&] { tape.backward(scale(x, 1), Matrix::Ones(3, 2)); }, "seed");
}

TEST(MirrorTape, PerturbsByTheUnitAndRepeatsItForTheSameSeed) {
  const auto run = [](double unit, std::uint64_t seed) {
    Perturbation perturbation(unit, seed);
    Tape tape(&perturbation);
    return Matrix(scale(tape.constant(Matrix::Ones(20, 20)), 1).value());
  };
  const Matrix once = run(0x1p-10, 1);
  EXPECT_EQ(once, run(0x1p-10, 1));
  EXPECT_NE(once, run(0x1p-10, 2));
  EXPECT_LE((once.array() - 1).abs().maxCoeff(), 0x1p-10);
  EXPECT_GT((once.array() - 1).abs().maxCoeff(), 0x1p-11);
}

TEST(MirrorTape, PerturbsNoRearrangementAndNoGradientThroughOne) {
  Perturbation perturbation(0x1p-10, 1);
  Tape tape(&perturbation);
  const Var x = tape.variable(Matrix::Ones(4, 6));
  const Var y = join_columns({columns(reshape(rows(x, {2, 1}), 3, 4), 1, 2)});
  EXPECT_EQ(y.value(), Matrix::Ones(3, 2));
  tape.backward(y, ones_like(y));
  EXPECT_EQ(tape.gradient(x).sum(), 6);
}

// A matrix in memory as a frozen weight.
class Given : public FrozenMatrix {
 public:
  explicit Given(Matrix values) : values_(std::move(values)) {}
  Index rows() const override { return values_.rows(); }
  Index cols() const override { return values_.cols(); }
  Matrix widen(Index first, Index n) const override { return values_.middleRows(first, n); }

 private:
  Matrix values_;
};

using Operation = std::function<Var(const std::vector<Var>&)>;

// The gradients of sum(seed * operation(inputs)) for all inputs; with exact arithmetic on both sides, equal.
void expect_derivative(const std::vector<Matrix>& inputs, const Operation& operation) {
  std::vector<std::vector<double>> flat;
  for (const Matrix& input : inputs) flat.emplace_back(input.data(), input.data() + input.size());
  Matrix seed;
  const auto record = [&](Tape& tape) {
    std::vector<Var> vars;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      vars.push_back(
          tape.variable(Eigen::Map<const Matrix>(flat[i].data(), inputs[i].rows(), inputs[i].cols())));
    return vars;
  };
  Tape tape;
  const auto vars = record(tape);
  const Var y = operation(vars);
  seed = random_matrix("seed", y.rows(), y.cols());
  tape.backward(y, seed);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto expected = finite_differences(flat[i], [&] {
      Tape again;
      return operation(record(again)).value().cwiseProduct(seed).sum();
    });
    const Matrix& got = tape.gradient(vars[i]);
    EXPECT_LE(relative_distance({got.data(), got.data() + got.size()}, expected), 1e-9) << "input " << i;
  }
}

TEST(MirrorDerivative, OfElementwiseOperations) {
  const Matrix a = random_matrix("a", 3, 5), b = random_matrix("b", 3, 5);
  expect_derivative({a, b}, [](const auto& v) { return add(v[0], v[1]); });
  expect_derivative({a, b}, [](const auto& v) { return multiply(v[0], v[1]); });
  expect_derivative({a}, [](const auto& v) { return multiply(v[0], v[0]); });
  expect_derivative({a}, [](const auto& v) { return scale(v[0], -1.5); });
  expect_derivative({a}, [](const auto& v) { return silu(v[0]); });
  const Row row = random_matrix("row", 1, 5);
  expect_derivative({a}, [&](const auto& v) { return add_to_rows(v[0], row); });
}

TEST(MirrorDerivative, OfProducts) {
  const Matrix a = random_matrix("a", 3, 5), b = random_matrix("b", 5, 4), c = random_matrix("c", 4, 5);
  expect_derivative({a, b}, [](const auto& v) { return product(v[0], v[1]); });
  expect_derivative({a, c}, [](const auto& v) { return product_transposed(v[0], v[1]); });
  const Given frozen(c);
  expect_derivative({a}, [&](const auto& v) { return frozen_product(v[0], frozen); });
}

TEST(MirrorDerivative, OfRmsNorm) {
  const Row w = random_matrix("w", 1, 5);
  expect_derivative({random_matrix("a", 3, 5)}, [&](const auto& v) { return rms_norm(v[0], w, 1e-3); });
}

TEST(MirrorDerivative, OfRope) {
  const RopeTable table = rope_table(rope_frequencies(6, 100, nullptr), 7);
  expect_derivative({random_matrix("a", 7, 12)}, [&](const auto& v) { return rope(v[0], table); });
}

TEST(MirrorDerivative, OfSoftmaxAndAttention) {
  expect_derivative({random_matrix("a", 6, 6)}, [](const auto& v) { return causal_softmax(v[0]); });
  expect_derivative({random_matrix("q", 5, 12), random_matrix("k", 5, 6), random_matrix("v", 5, 6)},
                    [](const auto& v) { return attention(v[0], v[1], v[2], 4, 2); });
}

TEST(MirrorDerivative, OfRearrangements) {
  const Matrix a = random_matrix("a", 4, 6), b = random_matrix("b", 4, 2);
  expect_derivative({a}, [](const auto& v) { return reshape(v[0], 8, 3); });
  expect_derivative({a}, [](const auto& v) { return columns(v[0], 1, 3); });
  expect_derivative({a}, [](const auto& v) { return rows(v[0], {3, 0}); });
  expect_derivative({a, b}, [](const auto& v) { return join_columns({v[0], v[1], v[0]}); });
}

TEST(MirrorDerivative, OfTheHeadAlsoWhereItTakesSeveralBlocks) {
  const Given small(random_matrix("head", 11, 5));
  expect_derivative({random_matrix("a", 3, 5)}, [&](const auto& v) {
    return head_nll(v[0], small, {0, 10, 4});
  });
  const Given large(random_matrix("large", 8200, 3));  // two blocks and a bit
  expect_derivative({random_matrix("b", 3, 3)}, [&](const auto& v) {
    return head_nll(v[0], large, {1, 4096, 8199});
  });
}

}  // namespace
}  // namespace tandem::mirror
