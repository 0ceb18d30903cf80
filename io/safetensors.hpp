// The safetensors format: u64 little-endian header length, JSON header {name: {dtype, shape, data_offsets}},
// data. https://github.com/huggingface/safetensors, "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/publish.hpp"
#include "src/base/dtype.hpp"

namespace tandem {

// One tensor of an open file. `data` points into the mapping: row-major, little-endian, at ANY alignment.
struct TensorRecord {
  std::string name;
  std::string dtype_name;      // as the file writes it: "F32", "I64", "F8_E4M3"
  std::optional<DType> dtype;  // none: a dtype this program does not compute with
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;

  std::int64_t count() const;  // elements; 1 for a scalar (empty shape)
};

// A mapped file, checked as a whole before anything of it is used: header length against the file's size (and
// at most 100 MB), UTF-8, one JSON object without duplicate names, known dtypes, offsets that follow each
// other without hole or overlap, agree with shape and dtype, and cover the data exactly.
class SafetensorsFile {
 public:
  // Throws kInput: file, tensor where there is one, what is wrong. A Git LFS pointer is recognised.
  explicit SafetensorsFile(std::filesystem::path path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  // In order of their data in the file. References stay valid as long as this object, also when moved.
  const std::vector<TensorRecord>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // nullptr where there is none of that name.
  const TensorRecord* find(std::string_view name) const;
  // Throws kInput where it is missing, has another shape or a dtype this program does not compute with.
  const TensorRecord& require(std::string_view name, std::span<const std::int64_t> shape) const;

 private:
  void check_header(std::string_view header, std::span<const std::byte> data);

  std::filesystem::path path_;
  const std::byte* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::vector<TensorRecord> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

// Elements [begin, begin + out.size()) as float32; widening is exact. The record's dtype must be known.
void widen_to_f32(const TensorRecord& tensor, std::int64_t begin, std::span<float> out);
inline void widen_to_f32(const TensorRecord& tensor, std::span<float> out) { widen_to_f32(tensor, 0, out); }

// Throws kInput, naming file, tensor and the first such element, where one of the tensor's values is NaN or
// infinite. `values` are its elements [begin, begin + values.size()).
void require_finite(const std::filesystem::path& file, const TensorRecord& tensor, std::int64_t begin,
                    std::span<const float> values);
// All of its elements. The record's dtype must be known.
void require_finite(const std::filesystem::path& file, const TensorRecord& tensor);

// Where element i of a tensor stands: "[3, 17]".
std::string index_text(std::span<const std::int64_t> shape, std::int64_t i);

// Gives the pages of the tensor's data back to the system: they are read from the file again when touched. A
// loaded tensor's source then does not count as the process's memory.
void drop_pages(const TensorRecord& tensor);

// What a file to be written holds. The file's bytes depend on these alone (and the data).
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
};

// Writes a file tensor by tensor in the given order, each in one or more pieces; published whole by
// publish(). The header is padded with spaces to a multiple of 8 bytes, so that the data begin aligned.
class SafetensorsWriter {
 public:
  // Transformers refuses a file without metadata "format": "pt".
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  // The next bytes of the tensor data. Throws kInternal when more than the tensors hold.
  void write(std::span<const std::byte> bytes);
  template <class T>
  void write(std::span<const T> values) {
    write(std::as_bytes(values));
  }
  // Throws kInternal when bytes are missing.
  void publish();

 private:
  FilePublisher file_;
  std::uint64_t missing_bytes_ = 0;
};

}  // namespace tandem
