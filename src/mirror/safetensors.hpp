// A safetensors file: 8 bytes length of the header, the header in JSON (name -> dtype, shape, data_offsets),
// the tensors' bytes without holes (github.com/huggingface/safetensors, "Format"). Mapped, so only what is
// used is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tandem::mirror {

struct StoredTensor {
  std::string dtype;  // as the format writes it: "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // valid as long as the file

  std::int64_t elements() const;
  // Elements [first, first + n) as doubles; exact. F32, BF16 or F16, else kInternal.
  void widen(std::int64_t first, std::int64_t n, double* out) const;
};

class SafetensorsFile {
 public:
  // kInput with the file's name and what is wrong; the reasons carry the names that the format's own reader
  // gives them (HeaderTooSmall, InvalidHeaderLength, ...).
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

 private:
  void read_header();

  std::filesystem::path path_;
  std::span<const std::byte> mapped_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace tandem::mirror
