#include "io/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/text/strict_json.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "safetensors data are used as they lie in the file");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct KnownDType {
  const char* name;
  int bits;
  std::optional<DType> dtype;
};

constexpr std::array<KnownDType, 22> kKnownDTypes = {{
    {"F32", 32, DType::kF32},
    {"BF16", 16, DType::kBF16},
    {"F16", 16, DType::kF16},
    {"BOOL", 8, {}},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"F64", 64, {}},
    {"C64", 64, {}},
}};

const KnownDType* known_dtype(std::string_view name) {
  for (const auto& known : kKnownDTypes)
    if (name == known.name) return &known;
  return nullptr;
}

// A name as it can stand in one line of text: JSON's escapes, cut where it is absurdly long.
std::string printable(std::string_view name) {
  constexpr std::size_t kLongest = 200;
  return json(std::string(name.substr(0, kLongest))).dump(-1, ' ', true, json::error_handler_t::replace) +
         (name.size() > kLongest ? "..." : "");
}

std::string shape_text(std::span<const std::int64_t> shape) { return cat("[", joined(shape), "]"); }

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorKind::kInput, cat(path.string(), ": ", what));
}

[[noreturn]] void refuse_tensor(const std::filesystem::path& path, std::string_view tensor,
                                const std::string& what) {
  refuse(path, cat("tensor ", printable(tensor), ": ", what));
}

// The parser would take a NUL byte for the end of the text, and quotes what it read last however long it is.
json parse_header(const std::filesystem::path& path, std::string_view text) {
  constexpr std::size_t kLongestLine = 400;
  if (text.empty() || text.front() != '{')
    refuse(path, "the header is not a JSON object (it must begin with '{')");
  if (text.find('\0') != text.npos) refuse(path, "the header holds a NUL byte");
  try {
    return parse_strict_json(text, path.string() + ": header");
  } catch (const Error& error) {
    throw Error(error.kind(), std::string(error.what()).substr(0, kLongestLine));
  }
}

std::uint64_t unsigned_at(const std::filesystem::path& path, const std::string& tensor, const json& value,
                          const char* what) {
  if (!value.is_number_unsigned()) refuse_tensor(path, tensor, cat(what, " must hold integers from 0 on"));
  return value.get<std::uint64_t>();
}

std::uint64_t checked_bytes(const std::filesystem::path& path, const TensorRecord& tensor, int bits) {
  std::uint64_t total = static_cast<std::uint64_t>(bits);
  for (const auto dim : tensor.shape)
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(dim), &total))
      refuse_tensor(path, tensor.name, cat("its shape ", shape_text(tensor.shape), " overflows"));
  if (total % 8 != 0)
    refuse_tensor(path, tensor.name,
                  cat("its shape ", shape_text(tensor.shape), " is no whole number of bytes"));
  return total / 8;
}

TensorRecord read_entry(const std::filesystem::path& path, const std::string& name, const json& entry,
                        std::span<const std::byte> data) {
  TensorRecord tensor;
  tensor.name = name;
  if (!entry.is_object()) refuse_tensor(path, name, "its entry in the header is not an object");
  for (const auto* key : {"dtype", "shape", "data_offsets"})
    if (!entry.contains(key)) refuse_tensor(path, name, cat("its entry in the header lacks ", key));

  if (!entry["dtype"].is_string()) refuse_tensor(path, name, "its dtype is not text");
  tensor.dtype_name = entry["dtype"].get<std::string>();
  const KnownDType* known = known_dtype(tensor.dtype_name);
  if (!known) refuse_tensor(path, name, cat("its dtype ", printable(tensor.dtype_name), " is unknown"));
  tensor.dtype = known->dtype;

  if (!entry["shape"].is_array()) refuse_tensor(path, name, "its shape is not a list");
  for (const auto& dim : entry["shape"]) {
    const auto size = unsigned_at(path, name, dim, "its shape");
    if (size > static_cast<std::uint64_t>(INT64_MAX)) refuse_tensor(path, name, "its shape overflows");
    tensor.shape.push_back(static_cast<std::int64_t>(size));
  }

  const auto& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2)
    refuse_tensor(path, name, "its data_offsets are not two numbers");
  const auto begin = unsigned_at(path, name, offsets[0], "its data_offsets");
  const auto end = unsigned_at(path, name, offsets[1], "its data_offsets");
  if (begin > end) refuse_tensor(path, name, cat("its data_offsets [", begin, ", ", end, "] run backwards"));
  if (end > data.size())
    refuse_tensor(path, name,
                  cat("its data end at byte ", end, ", the file's data at ", data.size(),
                      " (cut short? copy or download it again)"));
  const auto bytes = checked_bytes(path, tensor, known->bits);
  if (end - begin != bytes)
    refuse_tensor(path, name,
                  cat("its data_offsets span ", end - begin, " bytes, ", tensor.dtype_name, " ",
                      shape_text(tensor.shape), " needs ", bytes));
  tensor.data = data.subspan(begin, bytes);
  return tensor;
}

}  // namespace

std::int64_t TensorRecord::count() const {
  std::int64_t product = 1;
  for (const auto dim : shape) product *= dim;
  return product;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) refuse(path_, cat("cannot be opened: ", std::strerror(errno)));
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(file);
    refuse(path_, "is not a regular file");
  }
  mapping_bytes_ = static_cast<std::size_t>(status.st_size);
  std::uint64_t header_bytes = 0;
  if (mapping_bytes_ < sizeof header_bytes) {
    close(file);
    refuse(path_, cat("too short for a safetensors file (", mapping_bytes_, " bytes)"));
  }
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  close(file);
  if (mapping == MAP_FAILED) refuse(path_, cat("cannot be mapped: ", std::strerror(error)));
  mapping_ = static_cast<const std::byte*>(mapping);

  try {
    const std::string_view text(reinterpret_cast<const char*>(mapping_), mapping_bytes_);
    if (text.starts_with("version https://git-lfs"))
      refuse(path_, "is a Git LFS pointer, not the weights themselves; fetch them with `git lfs pull`");
    std::memcpy(&header_bytes, mapping_, sizeof header_bytes);
    const std::uint64_t rest = mapping_bytes_ - sizeof header_bytes;
    if (header_bytes > kMaxHeaderBytes)
      refuse(path_, cat("announces a header of ", header_bytes, " bytes, more than the format's ",
                        kMaxHeaderBytes, " (not a safetensors file?)"));
    if (header_bytes > rest)
      refuse(path_, cat("announces a header of ", header_bytes, " bytes, but only ", rest,
                        " follow (cut short? copy or download it again)"));
    const std::span data(mapping_ + sizeof header_bytes + header_bytes,
                         static_cast<std::size_t>(rest - header_bytes));
    check_header(text.substr(sizeof header_bytes, static_cast<std::size_t>(header_bytes)), data);
  } catch (...) {
    munmap(const_cast<std::byte*>(mapping_), mapping_bytes_);
    throw;
  }
}

void SafetensorsFile::check_header(std::string_view text, std::span<const std::byte> data) {
  const json header = parse_header(path_, text);
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      tensors_.push_back(read_entry(path_, name, entry, data));
      continue;
    }
    if (!entry.is_object()) refuse(path_, "__metadata__ is not an object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) refuse(path_, cat("__metadata__ ", printable(key), " is not text"));
      metadata_[key] = value.get<std::string>();
    }
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorRecord& a, const TensorRecord& b) {
    const auto end = [](const TensorRecord& t) { return t.data.data() + t.data.size(); };
    return std::tuple(a.data.data(), end(a), std::string_view(a.name)) <
           std::tuple(b.data.data(), end(b), std::string_view(b.name));
  });

  std::size_t covered = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto& tensor = tensors_[i];
    const auto begin = static_cast<std::size_t>(tensor.data.data() - data.data());
    if (begin != covered)
      refuse_tensor(path_, tensor.name,
                    cat("its data begin at byte ", begin, " where ", covered,
                        " bytes are taken: ", begin > covered ? "a hole" : "an overlap"));
    covered += tensor.data.size();
    index_.emplace(tensor.name, i);
  }
  if (covered != data.size())
    refuse(path_, cat("the tensors cover ", covered, " bytes of data, the file holds ", data.size(),
                      " (bytes left over at the end)"));
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_) munmap(const_cast<std::byte*>(mapping_), mapping_bytes_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept { *this = std::move(other); }

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(tensors_, other.tensors_);
  std::swap(index_, other.index_);
  std::swap(metadata_, other.metadata_);
  return *this;
}

const TensorRecord* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorRecord& SafetensorsFile::require(std::string_view name,
                                             std::span<const std::int64_t> shape) const {
  const TensorRecord* tensor = find(name);
  if (!tensor) refuse_tensor(path_, name, "is missing");
  if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end()))
    refuse_tensor(path_, name,
                  cat("has shape ", shape_text(tensor->shape), ", expected ", shape_text(shape)));
  if (!tensor->dtype)
    refuse_tensor(path_, name, cat("has dtype ", tensor->dtype_name, "; F32, BF16 and F16 can be used"));
  return *tensor;
}

void drop_pages(const TensorRecord& tensor) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(tensor.data.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(tensor.data.data() + tensor.data.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void widen_to_f32(const TensorRecord& tensor, std::int64_t begin, std::span<float> out) {
  if (!tensor.dtype) throw Error(ErrorKind::kInternal, cat("widening a tensor of dtype ", tensor.dtype_name));
  const auto size = static_cast<std::size_t>(size_of(*tensor.dtype));
  const auto source = tensor.data.subspan(static_cast<std::size_t>(begin) * size, out.size() * size);
  if (*tensor.dtype == DType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), source.data(), source.size());
    return;
  }
  const bool brain = *tensor.dtype == DType::kBF16;
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, source.data() + i * size, size);
    out[i] = brain ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

std::string index_text(std::span<const std::int64_t> shape, std::int64_t i) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0; i /= shape[d]) index[d] = i % shape[d];
  return shape_text(index);
}

void require_finite(const std::filesystem::path& file, const TensorRecord& tensor, std::int64_t begin,
                    std::span<const float> values) {
  const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return;
  const char* what = std::isnan(*bad) ? "NaN" : *bad < 0 ? "-infinity" : "infinity";
  refuse_tensor(file, tensor.name,
                cat("element ", index_text(tensor.shape, begin + (bad - values.begin())), " is ", what,
                    "; all values must be finite"));
}

void require_finite(const std::filesystem::path& file, const TensorRecord& tensor) {
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<float> values;
  const std::int64_t n = tensor.count();
  for (std::int64_t begin = 0; begin < n; begin += kPiece) {
    values.resize(static_cast<std::size_t>(std::min(kPiece, n - begin)));
    widen_to_f32(tensor, begin, values);
    require_finite(file, tensor, begin, values);
  }
}

namespace {

// Before hours of work or gigabytes are written. Bytes are counted in double: dimensions may be anything.
void check_free_space(const std::filesystem::path& file, const std::vector<TensorSpec>& tensors) {
  double bytes = 0.0;
  for (const TensorSpec& tensor : tensors) {
    auto of_tensor = static_cast<double>(size_of(tensor.dtype));
    for (const auto dim : tensor.shape) of_tensor *= static_cast<double>(dim);
    bytes += of_tensor;
  }
  std::error_code unknown;
  const auto space = std::filesystem::space(std::filesystem::absolute(file).parent_path(), unknown);
  if (unknown || bytes <= static_cast<double>(space.available)) return;
  throw Error(ErrorKind::kInput, cat(file.string(), ": needs ", bytes / 0x1p30, " GiB, the file system has ",
                                     static_cast<double>(space.available) / 0x1p30, " GiB left"));
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(std::move(path)) {
  check_free_space(file_.path(), tensors);
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const auto& tensor : tensors) {
    std::uint64_t bytes = static_cast<std::uint64_t>(size_of(tensor.dtype));
    for (const auto dim : tensor.shape) bytes *= static_cast<std::uint64_t>(dim);
    if (header.contains(tensor.name))
      throw Error(ErrorKind::kInternal,
                  cat(file_.path().string(), ": tensor ", tensor.name, " is given twice"));
    header[tensor.name] = {{"dtype", name_of(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {missing_bytes_, missing_bytes_ + bytes}}};
    missing_bytes_ += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t header_bytes = text.size();
  file_.write(&header_bytes, sizeof header_bytes);
  file_.write(text);
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > missing_bytes_)
    throw Error(ErrorKind::kInternal, cat(file_.path().string(), ": more data than the tensors hold"));
  file_.write(bytes.data(), bytes.size());
  missing_bytes_ -= bytes.size();
}

void SafetensorsWriter::publish() {
  if (missing_bytes_ != 0)
    throw Error(ErrorKind::kInternal,
                cat(file_.path().string(), ": ", missing_bytes_, " bytes of data are missing"));
  file_.publish();
}

}  // namespace tandem
