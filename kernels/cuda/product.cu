// The matrix product by cuBLASLt. Its matrices are column-major, ours row-major: what it sees of a matrix is
// its transpose, so c = op_a(a) op_b(b) is given to it as c^T = op_b(b)^T op_a(a)^T, with b first.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/context_members.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/product.hpp"
#include "kernels/product_shapes.hpp"

namespace tandem {

namespace {

template <class Real>
constexpr cudaDataType_t kType = std::is_same_v<Real, float> ? CUDA_R_32F : CUDA_R_16BF;

// An operand as it lies in memory: rows of `cols` elements, `stride` apart.
struct Layout {
  cudaDataType_t type;
  std::int64_t rows, cols, stride;
  // Of the address, up to 16 bytes: an algorithm that copies 16 bytes at once cannot do with less, and finer
  // classes would only make more algorithms.
  std::uint32_t alignment;
  auto operator<=>(const Layout&) const = default;
};

// All that the choice of an algorithm depends on.
struct Shape {
  Op op_a, op_b;
  std::int64_t k;
  Layout a, b, c, base;
  auto operator<=>(const Shape&) const = default;
};

template <class T>
Layout layout_of(MatrixView<T> m) {
  constexpr std::uintptr_t kWidest = 16;
  const auto address = reinterpret_cast<std::uintptr_t>(m.data) | kWidest;
  // A row of a one-row matrix may have any stride; cuBLASLt wants at least the number of columns.
  return {kType<std::remove_const_t<T>>, m.rows, m.cols, std::max(m.stride, m.cols),
          static_cast<std::uint32_t>(address & (~address + 1))};
}

const char* name_of(cudaDataType_t type) { return type == CUDA_R_32F ? "float32" : "bfloat16"; }

std::string text_of(const Layout& m, Op op) {
  return cat("[", m.rows, ", ", m.cols, "]", op == Op::kTransposed ? "^T" : "");
}

std::string text_of(const Shape& s) {
  return cat("product ", text_of(s.a, s.op_a), " x ", text_of(s.b, s.op_b));
}

void check_lt(cublasStatus_t status, const char* call, const Shape& s) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorKind::kDevice,
              cat("cuBLASLt: ", cublasLtGetStatusString(status), " | ", call, ", ", text_of(s), " of ",
                  name_of(s.a.type), " into ", text_of(s.c, Op::kPlain), " of ", name_of(s.c.type)));
}

// One of cuBLASLt's objects: made by `create(&object, ...)`, ended with it.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
class LtObject {
 public:
  LtObject() = default;
  ~LtObject() {
    if (handle_) destroy(handle_);
  }
  LtObject(const LtObject&) = delete;
  LtObject& operator=(const LtObject&) = delete;
  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};
using MatmulDescription = LtObject<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = LtObject<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = LtObject<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// A shape's product, ready to run.
struct Plan {
  std::string name;  // in a profile's time line
  MatmulDescription product;
  MatrixLayout a, b, c, base;
  cublasLtMatmulAlgo_t algorithm{};
};

// A context's products. The workspace's size is fixed, for the choice of an algorithm depends on it.
struct Products {
  Products() {
    if (const cublasStatus_t status = cublasLtCreate(&handle); status != CUBLAS_STATUS_SUCCESS)
      throw Error(ErrorKind::kDevice,
                  cat("cuBLASLt: ", cublasLtGetStatusString(status), " | cublasLtCreate"));
    if (const cudaError_t error = cudaMalloc(&workspace, kWorkspaceBytes); error != cudaSuccess) {
      cublasLtDestroy(handle);
      cuda::check(error, "cudaMalloc of 32 MiB, cuBLASLt's workspace");
    }
  }
  ~Products() {
    plans.clear();
    cublasLtDestroy(handle);
    cudaFree(workspace);
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // What cuBLAS itself takes on a Hopper.
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  static constexpr std::size_t kMostPlans = 4096;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Shape, std::unique_ptr<Plan>> plans;
};

Products& products_of(const CudaContext& ctx) {
  std::shared_ptr<void>& slot = ctx.members().product;
  if (!slot) slot = std::make_shared<Products>();
  return *static_cast<Products*>(slot.get());
}

void set(const MatmulDescription& product, cublasLtMatmulDescAttributes_t what, const auto& value,
         const Shape& shape) {
  check_lt(cublasLtMatmulDescSetAttribute(product.get(), what, &value, sizeof value),
           "cublasLtMatmulDescSetAttribute", shape);
}

void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t what, const auto& value,
         const Shape& shape) {
  check_lt(cublasLtMatmulPreferenceSetAttribute(preference.get(), what, &value, sizeof value),
           "cublasLtMatmulPreferenceSetAttribute", shape);
}

void make(MatrixLayout& layout, const Layout& m, const Shape& shape) {
  check_lt(cublasLtMatrixLayoutCreate(layout.out(), m.type, static_cast<std::uint64_t>(m.cols),
                                      static_cast<std::uint64_t>(m.rows), m.stride),
           "cublasLtMatrixLayoutCreate", shape);
}

std::unique_ptr<Plan> make_plan(const Products& products, ProductMode mode, const Shape& shape) {
  auto plan = std::make_unique<Plan>();
  plan->name = text_of(shape);
  const auto compute = mode == ProductMode::kTf32 && shape.a.type == CUDA_R_32F ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                                : CUBLAS_COMPUTE_32F;
  check_lt(cublasLtMatmulDescCreate(plan->product.out(), compute, CUDA_R_32F), "cublasLtMatmulDescCreate",
           shape);
  const auto operation = [](Op op) { return op == Op::kPlain ? CUBLAS_OP_N : CUBLAS_OP_T; };
  set(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, operation(shape.op_b), shape);
  set(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, operation(shape.op_a), shape);
  make(plan->a, shape.a, shape);
  make(plan->b, shape.b, shape);
  make(plan->c, shape.c, shape);
  make(plan->base, shape.base, shape);

  Preference preference;
  check_lt(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate", shape);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{Products::kWorkspaceBytes}, shape);
  // Parts of a sum are added in a fixed order, by a kernel of their own; never in the order of their arrival.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}, shape);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.b.alignment, shape);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.a.alignment, shape);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.base.alignment, shape);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.c.alignment, shape);

  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  check_lt(
      cublasLtMatmulAlgoGetHeuristic(products.handle, plan->product.get(), plan->b.get(), plan->a.get(),
                                     plan->base.get(), plan->c.get(), preference.get(), 1, &best, &found),
      "cublasLtMatmulAlgoGetHeuristic", shape);
  check_lt(found == 1 ? best.state : CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", shape);
  plan->algorithm = best.algo;
  return plan;
}

// Sets or copies rows of a matrix whose columns may be some of a wider one's.
template <class Out>
void clear(const CudaContext& ctx, MatrixView<Out> c) {
  cuda::check(cudaMemset2DAsync(c.data, static_cast<std::size_t>(std::max(c.stride, c.cols)) * sizeof(Out), 0,
                                static_cast<std::size_t>(c.cols) * sizeof(Out),
                                static_cast<std::size_t>(c.rows), ctx.members().stream),
              "cudaMemset2DAsync, product");
}

template <class Out>
void copy(const CudaContext& ctx, MatrixView<Out> c, MatrixView<const Out> base) {
  cuda::check(
      cudaMemcpy2DAsync(c.data, static_cast<std::size_t>(std::max(c.stride, c.cols)) * sizeof(Out), base.data,
                        static_cast<std::size_t>(std::max(base.stride, base.cols)) * sizeof(Out),
                        static_cast<std::size_t>(c.cols) * sizeof(Out), static_cast<std::size_t>(c.rows),
                        cudaMemcpyDeviceToDevice, ctx.members().stream),
      "cudaMemcpy2DAsync, product");
}

// c = base + term, or the term alone where base has no data; base may be c itself.
template <class Out, class Real>
void add_term(const CudaContext& ctx, MatrixView<Out> c, MatrixView<const Out> base,
              const ProductTermOf<Real>& term) {
  const float beta = base.data ? 1.0f : 0.0f;
  if (!base.data) base = c;
  const Shape shape{term.op_a,         term.op_b,         op_cols(term.a, term.op_a),
                    layout_of(term.a), layout_of(term.b), layout_of(c),
                    layout_of(base)};
  Products& products = products_of(ctx);
  // Numbers of scored tokens differ from row to row: plans are not kept without end. A plan that is made
  // again is the same.
  if (products.plans.size() >= Products::kMostPlans && !products.plans.contains(shape))
    products.plans.clear();
  std::unique_ptr<Plan>& made = products.plans[shape];
  if (!made) made = make_plan(products, ctx.mode(), shape);
  const Plan& plan = *made;
  const cuda::NamedRange range(plan.name.c_str());
  check_lt(
      cublasLtMatmul(products.handle, plan.product.get(), &term.scale, term.b.data, plan.b.get(), term.a.data,
                     plan.a.get(), &beta, base.data, plan.base.get(), c.data, plan.c.get(), &plan.algorithm,
                     products.workspace, Products::kWorkspaceBytes, ctx.members().stream),
      "cublasLtMatmul", shape);
}

template <class Out, class Real>
void product_on_device(const CudaContext& ctx, MatrixView<Out> c, MatrixView<const Out> base,
                       std::span<const ProductTermOf<Real>> terms) {
  check_product_shapes(c, base, terms);
  if (c.rows == 0 || c.cols == 0) return;
  // A thread that was not the context's maker has the first device as its own.
  cuda::check(cudaSetDevice(ctx.device()), "cudaSetDevice, product");
  // The first term reads a base apart from c on its way; where it does not cover all of c, a copy comes
  // first.
  const auto sums = [](const ProductTermOf<Real>& term) { return op_cols(term.a, term.op_a) > 0; };
  const bool apart = base.data && base.data != c.data;
  const bool first_reads =
      apart && !terms.empty() && terms[0].c_begin == 0 && terms[0].c_end >= c.cols && sums(terms[0]);
  if (apart && !first_reads) copy(ctx, c, base);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const ProductTermOf<Real>& term = terms[i];
    const MatrixView<Out> part = c.col_range(term.c_begin, std::min(term.c_end, c.cols));
    if (part.cols == 0) continue;
    const bool started = base.data || has_earlier_term(terms, i);
    if (sums(term))
      add_term(ctx, part,
               i == 0 && first_reads ? base
               : started             ? MatrixView<const Out>(part)
                                     : MatrixView<const Out>(),
               term);
    else if (!started)
      clear(ctx, part);
  }
}

}  // namespace

void product(const CudaContext& ctx, Matrix c, ConstMatrix base, std::span<const ProductTerm> terms) {
  product_on_device(ctx, c, base, terms);
}
void product(const CudaContext& ctx, Matrix c, ConstMatrix base, std::span<const Bf16ProductTerm> terms) {
  product_on_device(ctx, c, base, terms);
}
void product(const CudaContext& ctx, Bf16Matrix c, ConstBf16Matrix base,
             std::span<const Bf16ProductTerm> terms) {
  product_on_device(ctx, c, base, terms);
}

}  // namespace tandem
