#include "src/mirror/digests.hpp"

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/mirror/random.hpp"

namespace tandem::mirror {
namespace {

// SHA-256 over `name sha256` lines of those files that are there, sorted by name.
std::string digest_of_files(const std::filesystem::path& folder, const std::set<std::string>& names) {
  Sha256 digest;
  for (const std::string& name : names)
    if (std::filesystem::exists(folder / name))
      digest.update(cat(name, " ", sha256_file(folder / name), "\n"));
  return digest.hex();
}

}  // namespace

std::string model_digest(const std::filesystem::path& folder) {
  std::set<std::string> names = {"config.json",         "model.safetensors.index.json",
                                 "tokenizer.json",      "tokenizer_config.json",
                                 "chat_template.jinja", "generation_config.json"};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (const std::string name = entry.path().filename(); name.ends_with(".safetensors")) names.insert(name);
  if (error) throw Error(ErrorKind::kInput, cat(folder.string(), ": ", error.message()));
  return digest_of_files(folder, names);
}

std::string peft_digest(const std::filesystem::path& folder) {
  return digest_of_files(folder, {"adapter_config.json", "adapter_model.safetensors"});
}

std::string adapter_digest(const Tensors& adapter) {
  Sha256 digest;
  for (const auto& tensor : adapter) {
    const std::vector<float> rounded(tensor.begin(), tensor.end());
    digest.update(std::span<const float>(rounded));
  }
  return digest.hex();
}

std::uint64_t adapter_checksum(const Tensors& adapter) {
  std::uint64_t sum = 0, i = 0;
  for (const auto& tensor : adapter)
    for (const double value : tensor)
      sum += (splitmix64(i++) | 1) * std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return sum;
}

}  // namespace tandem::mirror
