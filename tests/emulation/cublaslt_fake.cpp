// The part of cuBLASLt that kernels/cuda/product.cu calls, as plain loops of the host. It refuses what
// cuBLASLt refuses, and does what that may do at worst: sums cut along k, and, where a caller lets it, parts
// added in another order every time.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "src/base/bf16.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::emulation {
namespace {

struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
};

struct Layout {
  cudaDataType_t type;
  std::int64_t rows, cols, ld;  // column-major
};

// The defaults are cuBLASLt's: no workspace, any reduction, 256 bytes' alignment.
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
};

struct Algorithm {
  std::uint64_t made_for;  // the hash of the problem
  std::uint64_t workspace;
  std::uint32_t parts;  // of k
  std::uint32_t reduction;
  std::uint32_t align_a, align_b, align_c, align_d;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

int handles = 0;  // what cublasLtHandle_t points to

template <class T, class Opaque>
T& real(Opaque* handle) {
  return *reinterpret_cast<T*>(handle);
}
template <class T, class Opaque>
const T& real(const Opaque* handle) {
  return *reinterpret_cast<const T*>(handle);
}

bool fails(const char* call, cublasStatus_t& status) {
  status = static_cast<cublasStatus_t>(injected(call));
  return status != CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t store(T& member, const void* value, std::size_t size) {
  if (!value || size != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&member, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

std::int64_t op_rows(const Layout& m, cublasOperation_t op) { return op == CUBLAS_OP_N ? m.rows : m.cols; }
std::int64_t op_cols(const Layout& m, cublasOperation_t op) { return op == CUBLAS_OP_N ? m.cols : m.rows; }

// What the headers' tables of types allow, of those that are used.
bool supported(const Description& d, const Layout& a, const Layout& b, const Layout& c, const Layout& out) {
  if (d.scale != CUDA_R_32F || a.type != b.type || c.type != out.type) return false;
  if (a.type == CUDA_R_32F)
    return out.type == CUDA_R_32F &&
           (d.compute == CUBLAS_COMPUTE_32F || d.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  return a.type == CUDA_R_16BF && d.compute == CUBLAS_COMPUTE_32F &&
         (out.type == CUDA_R_32F || out.type == CUDA_R_16BF);
}

cublasStatus_t check_problem(const Description& d, const Layout& a, const Layout& b, const Layout& c,
                             const Layout& out) {
  for (const Layout* m : {&a, &b, &c, &out})
    if (m->rows < 1 || m->cols < 1 || m->ld < m->rows) return CUBLAS_STATUS_INVALID_VALUE;
  if (op_rows(a, d.op_a) != out.rows || op_cols(b, d.op_b) != out.cols ||
      op_cols(a, d.op_a) != op_rows(b, d.op_b) || c.rows != out.rows || c.cols != out.cols)
    return CUBLAS_STATUS_INVALID_VALUE;
  return supported(d, a, b, c, out) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

std::uint64_t hash_of(const Description& d, const Layout& a, const Layout& b, const Layout& c,
                      const Layout& out) {
  std::uint64_t hash = 1469598103934665603u;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  add(d.compute), add(d.op_a), add(d.op_b);
  for (const Layout* m : {&a, &b, &c, &out}) {
    add(m->type), add(static_cast<std::uint64_t>(m->rows));
    add(static_cast<std::uint64_t>(m->cols)), add(static_cast<std::uint64_t>(m->ld));
  }
  return hash;
}

float bf16_value(Bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

// To the nearest, ties to even; NaN stays NaN.
Bf16 to_bf16(float x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return {static_cast<std::uint16_t>(bits >> 16 | 0x40)};
  bits += 0x7FFF + (bits >> 16 & 1);
  return {static_cast<std::uint16_t>(bits >> 16)};
}

// 10 bits behind the first, to the nearest.
float to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7F800000u) == 0x7F800000u) return x;
  return std::bit_cast<float>((bits + 0x1000u) & ~0x1FFFu);
}

// op(m) as float32, one column after the other (or, `by_rows`, one row after the other), without gaps.
std::vector<float> unpacked(const Layout& m, const void* data, cublasOperation_t op, bool by_rows,
                            bool tf32) {
  std::vector<float> out(static_cast<std::size_t>(m.rows * m.cols));
  const bool transposed = (op == CUBLAS_OP_T) != by_rows;
  for (std::int64_t j = 0; j < m.cols; ++j)
    for (std::int64_t i = 0; i < m.rows; ++i) {
      const std::int64_t at = j * m.ld + i;
      float x = m.type == CUDA_R_32F ? static_cast<const float*>(data)[at]
                                     : bf16_value(static_cast<const Bf16*>(data)[at]);
      if (tf32) x = to_tf32(x);
      out[static_cast<std::size_t>(transposed ? i * m.cols + j : j * m.rows + i)] = x;
    }
  return out;
}

constexpr std::int64_t kWide = 16, kRows = 4, kVectors = 3;
typedef float Vector __attribute__((vector_size(kWide * sizeof(float))));

// sum[j, i] = sum over p in [begin, end) of a[p, i] b[j, p]: rows of m sums.
void multiply(const float* a, const float* b, std::int64_t m, std::int64_t n, std::int64_t k,
              std::int64_t begin, std::int64_t end, float* sum) {
  const std::int64_t wide = kWide * kVectors;
  for (std::int64_t i = 0; i < m; i += wide)
    for (std::int64_t j = 0; j < n; j += kRows) {
      const std::int64_t width = std::min(wide, m - i), rows = std::min(kRows, n - j);
      if (width == wide && rows == kRows) {
        Vector total[kRows][kVectors] = {};
        for (std::int64_t p = begin; p < end; ++p) {
          Vector x[kVectors];
          std::memcpy(x, a + p * m + i, sizeof x);
          for (std::int64_t r = 0; r < kRows; ++r)
            for (std::int64_t v = 0; v < kVectors; ++v) total[r][v] += x[v] * b[(j + r) * k + p];
        }
        for (std::int64_t r = 0; r < kRows; ++r)
          std::memcpy(sum + (j + r) * m + i, total[r], sizeof total[r]);
        continue;
      }
      for (std::int64_t r = j; r < j + rows; ++r) {
        float total[wide] = {};
        for (std::int64_t p = begin; p < end; ++p)
          for (std::int64_t x = 0; x < width; ++x) total[x] += a[p * m + i + x] * b[r * k + p];
        std::memcpy(sum + r * m + i, total, static_cast<std::size_t>(width) * sizeof(float));
      }
    }
}

struct Call {
  Description d;
  Layout la, lb, lc, ld;
  float alpha, beta;
  const void *a, *b, *c;
  void* out;
  Algorithm algorithm;
  float* workspace;
};

void run(const Call& call) {
  const MemoryAccess access;
  const std::int64_t m = call.ld.rows, n = call.ld.cols, k = op_cols(call.la, call.d.op_a);
  const bool tf32 = call.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  std::vector<float> sum(static_cast<std::size_t>(m * n));
  if (call.alpha != 0.0f) {
    const std::vector<float> a = unpacked(call.la, call.a, call.d.op_a, false, tf32);
    const std::vector<float> b = unpacked(call.lb, call.b, call.d.op_b, false, tf32);
    const std::uint32_t parts = call.algorithm.parts;
    if (parts == 1) {
      multiply(a.data(), b.data(), m, n, k, 0, k, sum.data());
    } else {
      static std::uint32_t arrivals = 0;
      const bool any_order = call.algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE;
      const std::uint32_t first = any_order ? ++arrivals : 0;
      for (std::uint32_t part = 0; part < parts; ++part)
        multiply(a.data(), b.data(), m, n, k, k * part / parts, k * (part + 1) / parts,
                 call.workspace + static_cast<std::int64_t>(part) * m * n);
      for (std::uint32_t part = 0; part < parts; ++part) {
        const float* x = call.workspace + static_cast<std::int64_t>((part + first) % parts) * m * n;
        for (std::int64_t i = 0; i < m * n; ++i) sum[static_cast<std::size_t>(i)] += x[i];
      }
    }
  }
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < m; ++i) {
      float x = call.alpha * sum[static_cast<std::size_t>(j * m + i)];
      const std::int64_t from = j * call.lc.ld + i, to = j * call.ld.ld + i;
      if (call.ld.type == CUDA_R_32F) {
        if (call.beta != 0.0f) x += call.beta * static_cast<const float*>(call.c)[from];
        static_cast<float*>(call.out)[to] = x;
      } else {
        if (call.beta != 0.0f) x += call.beta * bf16_value(static_cast<const Bf16*>(call.c)[from]);
        static_cast<Bf16*>(call.out)[to] = to_bf16(x);
      }
    }
}

std::size_t bytes_of(const Layout& m) {
  return static_cast<std::size_t>((m.cols - 1) * m.ld + m.rows) * (m.type == CUDA_R_32F ? 4 : 2);
}

bool aligned(const void* pointer, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

}  // namespace
}  // namespace tandem::emulation

using namespace tandem::emulation;  // NOLINT: the functions below are C's

extern "C" {

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "the operation completed successfully";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "an internal operation failed";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  cublasStatus_t status;
  if (fails("cublasLtCreate", status)) return status;
  *handle = reinterpret_cast<cublasLtHandle_t>(&handles);
  ++handles;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  --handles;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  cublasStatus_t status;
  if (fails("cublasLtMatmulDescCreate", status)) return status;
  *out = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete &real<Description>(desc);
  return static_cast<cublasStatus_t>(injected("cublasLtMatmulDescDestroy"));
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what,
                                              const void* value, std::size_t size) {
  cublasStatus_t status;
  if (fails("cublasLtMatmulDescSetAttribute", status)) return status;
  auto& d = real<Description>(desc);
  if (what == CUBLASLT_MATMUL_DESC_TRANSA) return store(d.op_a, value, size);
  if (what == CUBLASLT_MATMUL_DESC_TRANSB) return store(d.op_b, value, size);
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t ld) {
  cublasStatus_t status;
  if (fails("cublasLtMatrixLayoutCreate", status)) return status;
  *out = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols), ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &real<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  cublasStatus_t status;
  if (fails("cublasLtMatmulPreferenceCreate", status)) return status;
  *out = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &real<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* value, std::size_t size) {
  cublasStatus_t status;
  if (fails("cublasLtMatmulPreferenceSetAttribute", status)) return status;
  auto& p = real<Preference>(preference);
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return store(p.workspace, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return store(p.reductions, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return store(p.align_a, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return store(p.align_b, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return store(p.align_c, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return store(p.align_d, value, size);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  cublasStatus_t status;
  if (fails("cublasLtMatmulAlgoGetHeuristic", status)) return status;
  *found = 0;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (injected("cublasLtMatmulAlgoGetHeuristic none") != 0) return CUBLAS_STATUS_SUCCESS;
  const auto& problem = real<Description>(desc);
  const auto &la = real<Layout>(a), &lb = real<Layout>(b), &lc = real<Layout>(c), &ld = real<Layout>(d);
  status = check_problem(problem, la, lb, lc, ld);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const auto& p = real<Preference>(preference);
  Algorithm algorithm{.made_for = hash_of(problem, la, lb, lc, ld),
                      .workspace = 0,
                      .parts = 1,
                      .reduction = CUBLASLT_REDUCTION_SCHEME_NONE,
                      .align_a = p.align_a,
                      .align_b = p.align_b,
                      .align_c = p.align_c,
                      .align_d = p.align_d};
  constexpr std::int64_t kLongSum = 96;
  constexpr std::uint32_t kParts = 3;
  const std::uint64_t room = kParts * static_cast<std::uint64_t>(ld.rows * ld.cols) * sizeof(float);
  const std::uint32_t reductions =
      p.reductions & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  if (op_cols(la, problem.op_a) >= kLongSum && room <= p.workspace && reductions) {
    algorithm.parts = kParts;
    algorithm.workspace = room;
    algorithm.reduction = reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE
                              ? CUBLASLT_REDUCTION_SCHEME_INPLACE
                              : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  }
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t layout_c, void* out,
                              cublasLtMatrixLayout_t layout_out, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  cublasStatus_t status;
  if (fails("cublasLtMatmul", status)) return status;
  if (!alpha || !beta || !a || !b || !out || !algo) return CUBLAS_STATUS_INVALID_VALUE;
  Call call{.d = real<Description>(desc),
            .la = real<Layout>(layout_a),
            .lb = real<Layout>(layout_b),
            .lc = real<Layout>(layout_c),
            .ld = real<Layout>(layout_out),
            .alpha = 0,
            .beta = 0,
            .a = a,
            .b = b,
            .c = c,
            .out = out,
            .algorithm = {},
            .workspace = static_cast<float*>(workspace)};
  std::memcpy(&call.alpha, alpha, sizeof call.alpha);
  std::memcpy(&call.beta, beta, sizeof call.beta);
  std::memcpy(&call.algorithm, algo, sizeof call.algorithm);
  status = check_problem(call.d, call.la, call.lb, call.lc, call.ld);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const Algorithm& algorithm = call.algorithm;
  if (algorithm.made_for != hash_of(call.d, call.la, call.lb, call.lc, call.ld))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!aligned(a, algorithm.align_a) || !aligned(b, algorithm.align_b) || !aligned(c, algorithm.align_c) ||
      !aligned(out, algorithm.align_d))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algorithm.workspace > 0 &&
      (!workspace || workspace_bytes < algorithm.workspace || !aligned(workspace, 256)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (call.beta != 0.0f && (!c || (c == out && call.lc.ld != call.ld.ld))) return CUBLAS_STATUS_INVALID_VALUE;
  for (const auto& [layout, data] :
       {std::pair<const Layout&, const void*>{call.la, a}, {call.lb, b}, {call.ld, out}})
    check_device_range("cublasLtMatmul", data, bytes_of(layout));
  if (call.beta != 0.0f) check_device_range("cublasLtMatmul", c, bytes_of(call.lc));
  if (algorithm.workspace > 0) check_device_range("cublasLtMatmul", workspace, algorithm.workspace);
  enqueue(stream, [call] { run(call); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
