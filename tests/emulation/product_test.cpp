#include "kernels/product.hpp"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "src/base/error.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::testing {
namespace {

constexpr double kUnitF32 = 0x1p-24, kUnitBf16 = 0x1p-8;
// An input rounded to TF32's 10 bits behind the first, or cut off there.
constexpr double kUnitTf32 = 0x1p-10;

// One term's float64 sums, and the same of absolute values, from the elements as they lie on the device.
struct Reference {
  Reference(std::int64_t rows_, std::int64_t cols_)
      : rows(rows_), cols(cols_), sum(static_cast<std::size_t>(rows * cols)), size(sum.size()) {}

  template <class T>
  void start(const DeviceMatrix<T>& base) {
    const std::vector<double> values = base.values();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = values[i], size[i] = std::abs(values[i]);
  }
  template <class T>
  void add(const DeviceMatrix<T>& a, Op op_a, const DeviceMatrix<T>& b, Op op_b, double scale = 1.0,
           std::int64_t c_begin = 0) {
    const std::int64_t k = op_a == Op::kPlain ? a.view().cols : a.view().rows;
    const std::int64_t width = op_b == Op::kPlain ? b.view().cols : b.view().rows;
    const std::vector<double> x = a.values(), y = b.values();
    const auto at = [](const std::vector<double>& v, std::int64_t stride, Op op, std::int64_t r,
                       std::int64_t c) {
      return v[static_cast<std::size_t>(op == Op::kPlain ? r * stride + c : c * stride + r)];
    };
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        double total = 0.0, absolute = 0.0;
        for (std::int64_t p = 0; p < k; ++p) {
          const double product = at(x, a.view().cols, op_a, i, p) * at(y, b.view().cols, op_b, p, j);
          total += product, absolute += std::abs(product);
        }
        const auto to = static_cast<std::size_t>(i * cols + c_begin + j);
        sum[to] += scale * total, size[to] += std::abs(scale) * absolute;
      }
    n_rounded += k + 3;  // products, sums, scale, the addition to c
    ++n_terms;
  }

  std::int64_t rows, cols;
  std::vector<double> sum, size;
  std::int64_t n_rounded = 0, n_terms = 0;
};

// |error| <= (gamma_n + what inputs' rounding adds + a rounding to c's format a term) * sum of absolute
// values, n: all float32 roundings on the way of one element.
template <class T>
void expect_near(const DeviceMatrix<T>& c, const Reference& want, double input_unit = 0.0) {
  const double n = static_cast<double>(want.n_rounded) * kUnitF32;
  const double output_unit = std::is_same_v<T, Bf16> ? kUnitBf16 : 0.0;
  const double relative = n / (1.0 - n) + (2.0 + input_unit) * input_unit +
                          1.01 * static_cast<double>(want.n_terms) * output_unit;
  const std::vector<double> got = c.values();
  ASSERT_EQ(got.size(), want.sum.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(got[i] - want.sum[i]), relative * want.size[i]) << "element " << i << ": " << got[i];
  EXPECT_TRUE(c.padding_intact());
}

struct Case {
  std::int64_t m, n, k;
  Op op_a, op_b;
};
constexpr Case kCases[] = {
    {1, 1, 1, Op::kPlain, Op::kPlain},          {31, 33, 17, Op::kPlain, Op::kTransposed},
    {33, 31, 129, Op::kPlain, Op::kPlain},      {16, 70, 65, Op::kTransposed, Op::kPlain},
    {65, 16, 300, Op::kTransposed, Op::kPlain}, {1, 130, 300, Op::kTransposed, Op::kTransposed},
    {130, 1, 31, Op::kPlain, Op::kTransposed},  {0, 5, 3, Op::kPlain, Op::kPlain},
    {5, 0, 3, Op::kPlain, Op::kPlain},          {3, 4, 0, Op::kPlain, Op::kPlain},
    {64, 96, 128, Op::kPlain, Op::kTransposed},
};

template <class In, class Out>
void check_cases(ProductMode mode, double input_unit) {
  const CudaContext ctx(0, mode);
  for (const Case& c : kCases)
    for (const auto& [padding, offset] : {std::pair{0, 0}, {3, 1}, {8, 4}}) {
      SCOPED_TRACE(cat(c.m, " x ", c.n, " x ", c.k, ", padding ", padding, ", offset ", offset));
      const bool plain_a = c.op_a == Op::kPlain, plain_b = c.op_b == Op::kPlain;
      DeviceMatrix<In> a(ctx, plain_a ? c.m : c.k, plain_a ? c.k : c.m, padding, offset);
      DeviceMatrix<In> b(ctx, plain_b ? c.k : c.n, plain_b ? c.n : c.k, padding, offset);
      DeviceMatrix<Out> out(ctx, c.m, c.n, padding, offset);
      a.fill("a"), b.fill("b");
      Reference want(c.m, c.n);
      want.add(a, c.op_a, b, c.op_b, 0.5);
      const ProductTermOf<In> term{a.cview(), c.op_a, b.cview(), c.op_b, 0.5f};
      product(ctx, out.view(), MatrixView<const Out>(), std::span(&term, 1));
      expect_near(out, want, input_unit);
      const std::vector<Out> first = out.elements();
      product(ctx, out.view(), MatrixView<const Out>(), std::span(&term, 1));
      EXPECT_TRUE(same_bytes(out.elements(), first)) << "the same call has the same bits";
    }
}

TEST(ProductEmulated, Float32MatchesFloat64) { check_cases<float, float>(ProductMode::kF32, 0.0); }
TEST(ProductEmulated, Tf32MatchesFloat64) { check_cases<float, float>(ProductMode::kTf32, kUnitTf32); }
TEST(ProductEmulated, Bf16IntoFloat32MatchesFloat64) { check_cases<Bf16, float>(ProductMode::kF32, 0.0); }
TEST(ProductEmulated, Bf16IntoBf16MatchesFloat64) { check_cases<Bf16, Bf16>(ProductMode::kTf32, 0.0); }

TEST(ProductEmulated, Tf32IsComputedWhereItIsAskedForAndNowhereElse) {
  std::vector<float> results[2];
  for (const ProductMode mode : {ProductMode::kF32, ProductMode::kTf32}) {
    const CudaContext ctx(0, mode);
    DeviceMatrix<float> a(ctx, 20, 40), b(ctx, 40, 30), c(ctx, 20, 30);
    a.fill("a"), b.fill("b");
    const ProductTerm term{a.cview(), Op::kPlain, b.cview(), Op::kPlain};
    product(ctx, c.view(), ConstMatrix(), std::span(&term, 1));
    results[mode == ProductMode::kTf32] = c.elements();
  }
  double largest = 0.0;
  for (std::size_t i = 0; i < results[0].size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(results[0][i]) - results[1][i]));
  EXPECT_GT(largest, 40 * kUnitF32);
}

// Two adapters' ranges, one nested in the first term's, and columns that have the base alone.
template <class In, class Out>
void check_ranges(bool in_place, bool first_covers_all) {
  const CudaContext ctx(0);
  DeviceMatrix<In> x(ctx, 35, 40, 2), w(ctx, 150, 40), u(ctx, 35, 8), b(ctx, 50, 8), v(ctx, 8, 20);
  DeviceMatrix<Out> base(ctx, 35, 150, 5), c(ctx, 35, 150, 3, 1);
  x.fill("x"), w.fill("w"), u.fill("u"), b.fill("b"), v.fill("v"), base.fill("base");
  if (in_place) c.fill("base");
  Reference want(35, 150);
  want.start(base);
  std::vector<ProductTermOf<In>> terms;
  if (first_covers_all) {
    want.add(x, Op::kPlain, w, Op::kTransposed);
    terms.push_back({x.cview(), Op::kPlain, w.cview(), Op::kTransposed});
  }
  want.add(u, Op::kPlain, b, Op::kTransposed, 2.0, 45);
  terms.push_back({u.cview(), Op::kPlain, b.cview(), Op::kTransposed, 2.0f, 45, 95});
  want.add(u, Op::kPlain, v, Op::kPlain, -0.5, 130);
  terms.push_back({u.cview(), Op::kPlain, v.cview(), Op::kPlain, -0.5f, 130});
  product(ctx, c.view(), in_place ? c.cview() : base.cview(), std::span<const ProductTermOf<In>>(terms));
  expect_near(c, want);
  EXPECT_TRUE(base.padding_intact());
}

TEST(ProductEmulated, AddsItsTermsInColumnRangesToABaseApartOrInPlace) {
  for (const bool in_place : {false, true})
    for (const bool first_covers_all : {false, true}) {
      check_ranges<float, float>(in_place, first_covers_all);
      check_ranges<Bf16, float>(in_place, first_covers_all);
      check_ranges<Bf16, Bf16>(in_place, first_covers_all);
    }
}

TEST(ProductEmulated, WithoutABaseTheFirstTermOfEachRangeOverwrites) {
  const CudaContext ctx(0);
  DeviceMatrix<float> x(ctx, 9, 12), q(ctx, 10, 12), k(ctx, 6, 12), u(ctx, 9, 4), b(ctx, 6, 4),
      c(ctx, 9, 16, 1);
  x.fill("x"), q.fill("q"), k.fill("k"), u.fill("u"), b.fill("b");
  Reference want(9, 16);
  want.add(x, Op::kPlain, q, Op::kTransposed);
  want.add(x, Op::kPlain, k, Op::kTransposed, 1.0, 10);
  want.add(u, Op::kPlain, b, Op::kTransposed, 3.0, 10);
  const ProductTerm terms[] = {{x.cview(), Op::kPlain, q.cview(), Op::kTransposed, 1.0f, 0, 10},
                               {x.cview(), Op::kPlain, k.cview(), Op::kTransposed, 1.0f, 10},
                               {u.cview(), Op::kPlain, b.cview(), Op::kTransposed, 3.0f, 10, 16}};
  product(ctx, c.view(), ConstMatrix(), terms);
  expect_near(c, want);
}

TEST(ProductEmulated, EmptySumsAreZeroOrTheBase) {
  const CudaContext ctx(0);
  DeviceMatrix<Bf16> a(ctx, 5, 0), b(ctx, 0, 4);
  DeviceMatrix<Bf16> c(ctx, 5, 7, 2), base(ctx, 5, 7, 1);
  base.fill("base");
  const Bf16ProductTerm terms[] = {{a.cview(), Op::kPlain, b.cview(), Op::kPlain, 1.0f, 1, 5}};
  product(ctx, c.view(), base.cview(), terms);
  EXPECT_TRUE(same_bytes(c.elements(), base.elements()));
  product(ctx, c.view(), ConstBf16Matrix(), terms);
  const std::vector<double> values = c.values();
  for (std::int64_t r = 0; r < 5; ++r)
    for (std::int64_t j = 1; j < 5; ++j) EXPECT_EQ(values[static_cast<std::size_t>(r * 7 + j)], 0.0);
  EXPECT_TRUE(c.padding_intact());
}

TEST(ProductEmulated, AsksForAnAlgorithmOnceAShape) {
  const CudaContext ctx(0);
  DeviceMatrix<float> a(ctx, 6, 8), b(ctx, 8, 5), c(ctx, 6, 5);
  a.fill("a"), b.fill("b");
  const ProductTerm term{a.cview(), Op::kPlain, b.cview(), Op::kPlain};
  emulation::clear_calls();
  for (int i = 0; i < 3; ++i) product(ctx, c.view(), ConstMatrix(), std::span(&term, 1));
  EXPECT_EQ(emulation::calls()["cublasLtMatmulAlgoGetHeuristic"], 1);
  EXPECT_EQ(emulation::calls()["cublasLtMatmul"], 3);
  const ProductTerm fewer{a.view().row_range(0, 5), Op::kPlain, b.cview(), Op::kPlain};
  product(ctx, c.view().row_range(0, 5), ConstMatrix(), std::span(&fewer, 1));
  EXPECT_EQ(emulation::calls()["cublasLtMatmulAlgoGetHeuristic"], 2);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return cat("exit ", error.exit_code(), ": ", error.what());
  }
  return "";
}

TEST(ProductEmulated, EveryCallOfCublasltThatFailsIsSaidWithTheShapes) {
  for (const auto& [name, code] : {std::pair{"cublasLtMatmulDescCreate", CUBLAS_STATUS_ALLOC_FAILED},
                                   {"cublasLtMatmulDescSetAttribute", CUBLAS_STATUS_INVALID_VALUE},
                                   {"cublasLtMatrixLayoutCreate", CUBLAS_STATUS_ALLOC_FAILED},
                                   {"cublasLtMatmulPreferenceCreate", CUBLAS_STATUS_ALLOC_FAILED},
                                   {"cublasLtMatmulPreferenceSetAttribute", CUBLAS_STATUS_INVALID_VALUE},
                                   {"cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED},
                                   {"cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED}}) {
    const CudaContext ctx(0);
    DeviceMatrix<Bf16> a(ctx, 8, 6), b(ctx, 5, 8);
    DeviceMatrix<float> c(ctx, 6, 5);
    a.fill("a"), b.fill("b");
    const Bf16ProductTerm term{a.cview(), Op::kTransposed, b.cview(), Op::kTransposed};
    const auto call = [&] { product(ctx, c.view(), ConstMatrix(), std::span(&term, 1)); };
    emulation::fail_next(name, code);
    EXPECT_EQ(refusal(call), cat("exit 4: cuBLASLt: ", cublasLtGetStatusString(code), " | ", name,
                                 ", product [8, 6]^T x [5, 8]^T of bfloat16 into [6, 5] of float32"));
    EXPECT_EQ(refusal(call), "") << "the next call works";
    Reference want(6, 5);
    want.add(a, Op::kTransposed, b, Op::kTransposed);
    expect_near(c, want);
  }
}

TEST(ProductEmulated, NoAlgorithmNoHandleAndNoMemoryAreSaid) {
  const CudaContext ctx(0);
  DeviceMatrix<float> a(ctx, 6, 8, 3), b(ctx, 8, 5, 1), c(ctx, 6, 5, 2), base(ctx, 6, 5);
  a.fill("a"), b.fill("b"), base.fill("base");
  const ProductTerm term{a.cview(), Op::kPlain, b.cview(), Op::kPlain, 1.0f, 0, 5};
  const auto call = [&] { product(ctx, c.view(), ConstMatrix(), std::span(&term, 1)); };
  emulation::fail_next("cublasLtCreate", CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(refusal(call), "exit 4: cuBLASLt: the library was not initialized | cublasLtCreate");
  emulation::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
  EXPECT_TRUE(refusal(call).starts_with("exit 4: cudaMalloc of 32 MiB, cuBLASLt's workspace: "))
      << refusal(call);
  emulation::fail_next("cublasLtMatmulAlgoGetHeuristic none", 1);
  EXPECT_EQ(
      refusal(call),
      "exit 4: cuBLASLt: the functionality requested is not supported | cublasLtMatmulAlgoGetHeuristic, "
      "product [6, 8] x [8, 5] of float32 into [6, 5] of float32");
  emulation::fail_next("cudaMemcpy2DAsync", cudaErrorInvalidValue);
  EXPECT_TRUE(refusal([&] {
                product(ctx, c.view(), base.cview(), std::span<const ProductTerm>());
              }).starts_with("exit 4: cudaMemcpy2DAsync, product: "));
  DeviceMatrix<float> none_a(ctx, 6, 0), none_b(ctx, 0, 5);
  const ProductTerm empty{none_a.cview(), Op::kPlain, none_b.cview(), Op::kPlain};
  emulation::fail_next("cudaMemset2DAsync", cudaErrorInvalidValue);
  EXPECT_TRUE(refusal([&] {
                product(ctx, c.view(), ConstMatrix(), std::span(&empty, 1));
              }).starts_with("exit 4: cudaMemset2DAsync, product: "));
  emulation::forget_failures();
}

TEST(ProductEmulated, ShapesThatDoNotFitAreRefusedAsOnTheCpu) {
  const CudaContext ctx(0);
  const CpuContext cpu(1);
  std::vector<float> memory(64);
  float* const at = memory.data();
  const ProductTerm unfit[] = {{{at, 3, 4}, Op::kPlain, {at, 5, 2}, Op::kPlain}};
  const ProductTerm crossing[] = {{{at, 3, 4}, Op::kPlain, {at, 4, 2}, Op::kPlain, 1.0f, 0, 2},
                                  {{at, 3, 4}, Op::kPlain, {at, 4, 2}, Op::kPlain, 1.0f, 1, 3}};
  const ProductTerm fit[] = {{{at, 3, 4}, Op::kPlain, {at, 4, 2}, Op::kPlain}};
  const auto both = [&](Matrix c, ConstMatrix base, std::span<const ProductTerm> terms) {
    const std::string text = refusal([&] { product(ctx, c, base, terms); });
    EXPECT_EQ(text, refusal([&] { product(cpu, c, base, terms); }));
    return text;
  };
  EXPECT_EQ(both({at, 3, 2}, {}, unfit),
            "exit 1: product: [3, 4] x [5, 2] does not fit columns [0, 2) of c [3, 2]");
  EXPECT_EQ(both({at, 3, 3}, {}, crossing),
            "exit 1: product: a term's columns must lie inside an earlier term's or apart from them");
  EXPECT_EQ(both({at, 3, 2}, {at, 2, 2}, fit), "exit 1: product: base [2, 2] does not fit c [3, 2]");
}

// ---- the fake refuses what cuBLASLt refuses ----

struct Raw {
  explicit Raw(std::int64_t ld_a = 6) {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 6, 300, ld_a);
    cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, 300, 5, 300);
    cublasLtMatrixLayoutCreate(&c, CUDA_R_32F, 6, 5, 6);
    cublasLtMatmulPreferenceCreate(&preference);
  }
  ~Raw() {
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto layout : {a, b, c}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(product);
    cublasLtDestroy(handle);
  }
  void prefer(cublasLtMatmulPreferenceAttributes_t what, auto value) {
    cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value);
  }
  cublasStatus_t choose() {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, c, c, preference, 1, &best, &found);
  }
  cublasStatus_t run(const void* x, const void* y, void* out, void* workspace, std::size_t bytes,
                     cudaStream_t stream) {
    const float one = 1.0f, zero = 0.0f;
    return cublasLtMatmul(handle, product, &one, x, a, y, b, &zero, out, c, out, c, &best.algo, workspace,
                          bytes, stream);
  }
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t best{};
};

TEST(CublasltFake, RefusesWhatCublasltRefuses) {
  const CudaContext ctx(0);
  const auto stream = static_cast<cudaStream_t>(ctx.stream());
  DeviceArray<float> x(ctx, 6 * 300 + 1), y(ctx, 300 * 5), out(ctx, 30), workspace(ctx, 3 * 30);
  EXPECT_EQ(Raw(5).choose(), CUBLAS_STATUS_INVALID_VALUE) << "a leading dimension below the rows";
  Raw raw;
  EXPECT_EQ(raw.run(x.data(), y.data(), out.data(), nullptr, 0, stream), CUBLAS_STATUS_NOT_SUPPORTED)
      << "an algorithm of nothing";
  raw.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 20);
  ASSERT_EQ(raw.choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(raw.run(x.data() + 1, y.data(), out.data(), workspace.data(), 360, stream),
            CUBLAS_STATUS_NOT_SUPPORTED)
      << "a pointer less aligned than was said";
  EXPECT_EQ(raw.run(x.data(), y.data(), out.data(), workspace.data(), 356, stream),
            CUBLAS_STATUS_INVALID_VALUE)
      << "a workspace too small";
  EXPECT_EQ(raw.run(x.data(), y.data(), out.data(), nullptr, 360, stream), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(raw.run(x.data(), y.data(), out.data(), workspace.data(), 360, stream), CUBLAS_STATUS_SUCCESS);
  ctx.synchronize();
}

// What makes the test of repeated calls one that can fail.
TEST(CublasltFake, WhereAnyReductionIsAllowedBitsChangeFromCallToCall) {
  const CudaContext ctx(0);
  DeviceMatrix<float> x(ctx, 300, 6), y(ctx, 5, 300), out(ctx, 5, 6);
  DeviceArray<float> workspace(ctx, 3 * 30);
  x.fill("x"), y.fill("y");
  Raw raw;
  raw.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 20);
  ASSERT_EQ(raw.choose(), CUBLAS_STATUS_SUCCESS);
  std::vector<float> results[2];
  for (std::vector<float>& result : results) {
    ASSERT_EQ(raw.run(x.view().data, y.view().data, out.view().data, workspace.data(), 360,
                      static_cast<cudaStream_t>(ctx.stream())),
              CUBLAS_STATUS_SUCCESS);
    result = out.elements();
  }
  EXPECT_FALSE(same_bytes(results[0], results[1]));
}

}  // namespace
}  // namespace tandem::testing
