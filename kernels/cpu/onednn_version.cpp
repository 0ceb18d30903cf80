#include "kernels/onednn_version.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include "src/base/text.hpp"

namespace tandem {

std::string onednn_version() {
  const auto* version = dnnl_version();
  return cat(version->major, ".", version->minor, ".", version->patch);
}

std::string onednn_instruction_set() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE41";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2_VNNI";
    case dnnl::cpu_isa::avx512_core:
      return "AVX512_CORE";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX512_CORE_VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX512_CORE_BF16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX512_CORE_AMX";
    default:
      return cat("0x", std::hex, static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
  }
}

}  // namespace tandem
