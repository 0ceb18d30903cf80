#pragma once

#include <string>

namespace tandem {

// Of the library that is loaded: "2.6.3".
std::string onednn_version();

// The instruction set that oneDNN computes with on this CPU, in the spelling of its variable
// DNNL_MAX_CPU_ISA: "AVX512_CORE". Bits may differ between machines where it differs.
std::string onednn_instruction_set();

}  // namespace tandem
