#include "src/cli/cpu_check.hpp"

namespace tandem {

const unsigned kBuildFeatures = 0
#ifdef __SSE4_2__
                                | kSse42
#endif
#ifdef __AVX__
                                | kAvx
#endif
#ifdef __AVX2__
                                | kAvx2
#endif
#ifdef __FMA__
                                | kFma
#endif
#ifdef __AVX512F__
                                | kAvx512f
#endif
#ifdef __AVX512BW__
                                | kAvx512bw
#endif
#ifdef __AVX512DQ__
                                | kAvx512dq
#endif
#ifdef __AVX512VL__
                                | kAvx512vl
#endif
    ;

}  // namespace tandem
