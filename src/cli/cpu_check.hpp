// A program built for another CPU dies by an illegal instruction, without a word; this says the word.
#pragma once

namespace tandem {

// Bits of instruction sets.
enum CpuFeature : unsigned {
  kSse42 = 1u << 0,
  kAvx = 1u << 1,
  kAvx2 = 1u << 2,
  kFma = 1u << 3,
  kAvx512f = 1u << 4,
  kAvx512bw = 1u << 5,
  kAvx512dq = 1u << 6,
  kAvx512vl = 1u << 7,
};

// What the build's -march lets the compiler use; known to the compiler, so reading it needs no instruction of
// them.
extern const unsigned kBuildFeatures;

// The first of `features` that this CPU lacks, or nullptr.
const char* missing_cpu_feature(unsigned features);

}  // namespace tandem
