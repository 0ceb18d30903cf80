// Compiled for the baseline instruction set (CMakeLists.txt) and free of templates, which the linker may
// share with files that are not.
#include "src/cli/cpu_check.hpp"

namespace tandem {

const char* missing_cpu_feature(unsigned features) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if ((features & kSse42) && !__builtin_cpu_supports("sse4.2")) return "SSE4.2";
  if ((features & kAvx) && !__builtin_cpu_supports("avx")) return "AVX";
  if ((features & kAvx2) && !__builtin_cpu_supports("avx2")) return "AVX2";
  if ((features & kFma) && !__builtin_cpu_supports("fma")) return "FMA";
  if ((features & kAvx512f) && !__builtin_cpu_supports("avx512f")) return "AVX-512F";
  if ((features & kAvx512bw) && !__builtin_cpu_supports("avx512bw")) return "AVX-512BW";
  if ((features & kAvx512dq) && !__builtin_cpu_supports("avx512dq")) return "AVX-512DQ";
  if ((features & kAvx512vl) && !__builtin_cpu_supports("avx512vl")) return "AVX-512VL";
#else
  static_cast<void>(features);
#endif
  return nullptr;
}

}  // namespace tandem
