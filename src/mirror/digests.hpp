// What a spec names its inputs by, and what an adapter is known by (SPEC.md, "Keys" and "Digests").
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "src/mirror/mirror.hpp"

namespace tandem::mirror {

std::string model_digest(const std::filesystem::path& folder);
std::string peft_digest(const std::filesystem::path& folder);

std::string adapter_digest(const Tensors& adapter);      // of the float32 bytes
std::uint64_t adapter_checksum(const Tensors& adapter);  // sum of (splitmix64(i)|1) * bits

}  // namespace tandem::mirror
