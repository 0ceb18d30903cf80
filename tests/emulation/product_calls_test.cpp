// How the product calls cuBLASLt, and what it says where that fails.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/product.hpp"
#include "src/base/error.hpp"
#include "tests/emulation/device_matrix.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/emulation/product_reference.hpp"

namespace tandem::testing {
namespace {

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

TEST(ProductEmulated, PlansOfManyShapesAreNotKeptWithoutEnd) {
  constexpr std::int64_t kShapes = 5000;
  const CudaContext ctx(0);
  DeviceMatrix<float> a(ctx, kShapes, 1), b(ctx, 1, 1), c(ctx, kShapes, 1);
  a.fill("a"), b.fill("b");
  emulation::clear_calls();
  const auto multiply = [&](std::int64_t rows) {
    const ProductTerm term{a.view().row_range(0, rows), Op::kPlain, b.cview(), Op::kPlain};
    product(ctx, c.view().row_range(0, rows), ConstMatrix(), std::span(&term, 1));
  };
  for (std::int64_t rows = 1; rows <= kShapes; ++rows) multiply(rows);
  multiply(kShapes);
  EXPECT_EQ(emulation::calls()["cublasLtMatmulAlgoGetHeuristic"], kShapes) << "the last is kept";
  multiply(1);
  EXPECT_EQ(emulation::calls()["cublasLtMatmulAlgoGetHeuristic"], kShapes + 1) << "the first is not";
  EXPECT_LE(emulation::calls()["cublasLtMatmulDescCreate"] - emulation::calls()["cublasLtMatmulDescDestroy"],
            4096);
  Reference want(kShapes, 1);
  want.add(a, Op::kPlain, b, Op::kPlain);
  expect_near(c, want);
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
