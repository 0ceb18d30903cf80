#include "src/mirror/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "src/mirror/check.hpp"
#include "src/mirror/json_file.hpp"

namespace tandem::mirror {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100'000'000;

std::span<const std::byte> map_file(const std::filesystem::path& path) {
  const auto fail = [&](const char* what) {
    throw Error(ErrorKind::kInput, cat(path.string(), ": ", what, ": ", std::strerror(errno)));
  };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail("cannot be opened");
  struct stat status {};
  const bool known = fstat(file, &status) == 0;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* start = known && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  const int error = errno;
  close(file);
  errno = error;
  if (!known || start == MAP_FAILED) fail("cannot be mapped");
  return {static_cast<const std::byte*>(start), size};
}

std::uint64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::uint64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  const auto found = sizes.find(dtype);
  if (found == sizes.end())
    throw std::invalid_argument("InvalidHeaderDeserialization: unknown dtype " + dtype);
  return found->second;
}

std::uint64_t checked_product(std::uint64_t a, std::uint64_t b) {
  if (b != 0 && a > std::numeric_limits<std::uint64_t>::max() / b)
    throw std::invalid_argument("ValidationOverflow: a shape's product exceeds 64 bits");
  return a * b;
}

std::uint64_t unsigned_integer(const nlohmann::json& value, const char* what) {
  if (!value.is_number_unsigned())
    throw std::invalid_argument(cat("InvalidHeaderDeserialization: ", what, " is no unsigned integer"));
  return value.get<std::uint64_t>();
}

struct Entry {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin, end, bytes;  // bytes: of dtype and shape
};

Entry read_entry(const std::string& name, const nlohmann::json& info) {
  const bool complete = info.is_object() && info.contains("dtype") && info["dtype"].is_string() &&
                        info.contains("shape") && info["shape"].is_array() && info.contains("data_offsets") &&
                        info["data_offsets"].is_array() && info["data_offsets"].size() == 2;
  if (!complete) throw std::invalid_argument(cat("InvalidHeaderDeserialization: `", name, "` is incomplete"));
  Entry entry{name, info["dtype"], {}, 0, 0, 0};
  entry.bytes = 1;
  std::uint64_t elements = 1;
  for (const auto& extent : info["shape"]) {
    const std::uint64_t n = unsigned_integer(extent, "an extent");
    elements = checked_product(elements, n);
    if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      throw std::invalid_argument("ValidationOverflow: an extent exceeds 63 bits");
    entry.shape.push_back(static_cast<std::int64_t>(n));
  }
  entry.bytes = checked_product(elements, element_bytes(entry.dtype));
  entry.begin = unsigned_integer(info["data_offsets"][0], "an offset");
  entry.end = unsigned_integer(info["data_offsets"][1], "an offset");
  return entry;
}

void check_metadata(const nlohmann::json& metadata) {
  const bool good = metadata.is_object() && std::all_of(metadata.begin(), metadata.end(),
                                                        [](const auto& value) { return value.is_string(); });
  if (!good)
    throw std::invalid_argument("InvalidHeaderDeserialization: __metadata__ is no object of strings");
}

double from_f16(std::uint16_t bits) {
  const double sign = bits >> 15 ? -1 : 1;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

template <class Bits, class Convert>
void widen_each(const std::byte* bytes, std::int64_t n, double* out, Convert convert) {
  for (std::int64_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
    out[i] = convert(bits);
  }
}

}  // namespace

std::int64_t StoredTensor::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

void StoredTensor::widen(std::int64_t first, std::int64_t n, double* out) const {
  check(first >= 0 && n >= 0 && first + n <= elements(), "elements beyond a tensor");
  if (dtype == "F32")
    widen_each<std::uint32_t>(bytes.data() + 4 * first, n, out,
                              [](std::uint32_t bits) { return std::bit_cast<float>(bits); });
  else if (dtype == "BF16")  // the upper half of a float
    widen_each<std::uint16_t>(bytes.data() + 2 * first, n, out, [](std::uint16_t bits) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    });
  else if (dtype == "F16")
    widen_each<std::uint16_t>(bytes.data() + 2 * first, n, out, from_f16);
  else
    check(false, "values of dtype ", dtype);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path), mapped_(map_file(path)) {
  try {
    read_header();
  } catch (const std::invalid_argument& error) {
    if (mapped_.data()) munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
    throw Error(ErrorKind::kInput, cat(path.string(), ": ", error.what()));
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (mapped_.data()) munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
}

void SafetensorsFile::read_header() {
  if (mapped_.size() < kLengthBytes) throw std::invalid_argument("HeaderTooSmall: fewer than 8 bytes");
  std::uint64_t length;
  std::memcpy(&length, mapped_.data(), sizeof length);
  if (length > kLargestHeader) throw std::invalid_argument("HeaderTooLarge: more than 100 MB");
  if (length > mapped_.size() - kLengthBytes)
    throw std::invalid_argument("InvalidHeaderLength: the header is longer than the file");
  const std::string text(reinterpret_cast<const char*>(mapped_.data()) + kLengthBytes, length);
  nlohmann::json header;
  try {
    if (text.empty() || text.front() != '{') throw std::invalid_argument("it does not start with {");
    header = parse_json(text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(cat("InvalidHeader: ", error.what()));
  }

  std::vector<Entry> entries;
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__")
      check_metadata(info);
    else
      entries.push_back(read_entry(name, info));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const auto data = mapped_.subspan(kLengthBytes + length);
  std::uint64_t covered = 0;
  for (Entry& entry : entries) {
    if (entry.begin != covered || entry.end < entry.begin)
      throw std::invalid_argument(
          cat("InvalidOffset: `", entry.name, "` does not follow the tensor before it"));
    if (entry.end - entry.begin != entry.bytes)
      throw std::invalid_argument(cat("TensorInvalidInfo: `", entry.name, "` has ", entry.end - entry.begin,
                                      " bytes, its shape ", entry.bytes));
    covered = entry.end;
    if (covered > data.size()) break;
    tensors_[entry.name] = {entry.dtype, std::move(entry.shape), data.subspan(entry.begin, entry.bytes)};
  }
  if (covered != data.size())
    throw std::invalid_argument(cat("MetadataIncompleteBuffer: the header tells of ", covered,
                                    " bytes of tensors, the file has ", data.size()));
}

}  // namespace tandem::mirror
