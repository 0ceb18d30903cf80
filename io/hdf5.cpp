#include "io/hdf5.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem::hdf5 {

namespace {

// HDF5's headers abort the program where the library is of another release; this says it in words, before.
void check_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  if (major == H5_VERS_MAJOR && minor == H5_VERS_MINOR && release == H5_VERS_RELEASE) return;
  if (std::getenv("HDF5_DISABLE_VERSION_CHECK")) return;
  throw Error(ErrorKind::kInternal,
              cat("built with HDF5 ", H5_VERS_MAJOR, ".", H5_VERS_MINOR, ".", H5_VERS_RELEASE,
                  ", running with ", major, ".", minor, ".", release,
                  ": build again, or set LD_LIBRARY_PATH to the library it was built with"));
}

std::string c_text(std::string_view text, std::string_view what) {
  if (text.find('\0') != text.npos)
    throw Error(ErrorKind::kInternal, cat(what, ": text with a NUL byte cannot be stored"));
  return std::string(text);
}

Id text_type() {
  Id type = owned(H5Tcopy(H5T_C_S1), H5Tclose, "text type");
  checked_status(H5Tset_size(type.get(), H5T_VARIABLE), "text type");
  checked_status(H5Tset_cset(type.get(), H5T_CSET_UTF8), "text type");
  return type;
}

Id scalar_space() { return owned(H5Screate(H5S_SCALAR), H5Sclose, "dataspace"); }

void write_attribute(const Id& object, const std::string& name, hid_t type, hid_t memory_type,
                     const Id& space, const void* value) {
  if (checked(H5Aexists(object.get(), name.c_str()), name) > 0)
    checked_status(H5Adelete(object.get(), name.c_str()), name);
  const Id attribute =
      owned(H5Acreate2(object.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
            cat("attribute ", name));
  checked_status(H5Awrite(attribute.get(), memory_type, value), cat("attribute ", name));
}

// DIMENSION_LABELS is what H5DSset_label writes, and what h5py and h5dump read.
void describe(const Id& dataset, const About& about) {
  set_attribute(dataset, "unit", about.unit);
  set_attribute(dataset, "description", about.description);
  if (about.labels.empty()) return;
  std::vector<const char*> labels;
  for (const auto& label : about.labels) labels.push_back(label.c_str());
  Id type = owned(H5Tcopy(H5T_C_S1), H5Tclose, "label type");
  checked_status(H5Tset_size(type.get(), H5T_VARIABLE), "label type");
  const hsize_t count = labels.size();
  const Id space = owned(H5Screate_simple(1, &count, nullptr), H5Sclose, "dataspace");
  write_attribute(dataset, "DIMENSION_LABELS", type.get(), type.get(), space, labels.data());
}

}  // namespace

Id::Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

Id& Id::operator=(Id&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

void Id::reset() {
  if (id_ >= 0) close_(release());
}

hid_t Id::release() { return std::exchange(id_, -1); }

// A file whose closing failed (a full disk) stays open to HDF5, which at exit would write to it again, and
// crash. This has to come before the library's first call, be it that of a static object.
[[gnu::constructor(101)]] void close_nothing_at_exit() { H5dont_atexit(); }

// Before the first call of each thread (thread-safe builds of HDF5 keep one setting per thread).
void prepare() {
  thread_local const bool ready = [] {
    check_version();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  (void)ready;
}

std::string innermost_error() {
  std::string text;
  const auto keep_first = [](unsigned, const H5E_error2_t* entry, void* out) -> herr_t {
    auto& kept = *static_cast<std::string*>(out);
    if (kept.empty() && entry->desc) kept = entry->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  H5Eclear2(H5E_DEFAULT);
  // Of a failed write the system's own words are enough.
  constexpr std::string_view kSystem = "error message = '";
  if (const auto at = text.find(kSystem); at != text.npos)
    text = text.substr(at + kSystem.size(), text.find('\'', at + kSystem.size()) - at - kSystem.size());
  for (auto& c : text)
    if (c == '\n') c = ' ';
  return text.empty() ? "HDF5 gives no reason" : text;
}

hid_t checked(hid_t result, std::string_view what) {
  if (result < 0) throw Error(ErrorKind::kInput, cat(what, ": HDF5: ", innermost_error()));
  return result;
}

void checked_status(herr_t status, std::string_view what) { checked(status, what); }

Id create_in_memory(const std::filesystem::path& name) {
  prepare();
  const Id access = owned(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access");
  constexpr std::size_t kGrowth = std::size_t{1} << 20;
  checked_status(H5Pset_fapl_core(access.get(), kGrowth, /*backing_store=*/false), "file access");
  return owned(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose, name.string());
}

Id open_in_memory(const std::filesystem::path& path) {
  prepare();
  std::ifstream stream(path, std::ios::binary);
  std::string image{std::istreambuf_iterator<char>(stream), {}};
  if (!stream || image.empty()) throw Error(ErrorKind::kInput, cat(path.string(), ": cannot be read"));
  const Id access = owned(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access");
  constexpr std::size_t kGrowth = std::size_t{1} << 20;
  checked_status(H5Pset_fapl_core(access.get(), kGrowth, /*backing_store=*/false), "file access");
  checked_status(H5Pset_file_image(access.get(), image.data(), image.size()), "file image");
  const std::string name = path.string() + " (in memory)";
  return owned(H5Fopen(name.c_str(), H5F_ACC_RDWR, access.get()), H5Fclose, path.string());
}

void file_image(const Id& file, std::vector<std::byte>& image) {
  checked_status(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), "flush");
  const ssize_t bytes = H5Fget_file_image(file.get(), nullptr, 0);
  checked(bytes, "file image");
  image.resize(static_cast<std::size_t>(bytes));
  checked(H5Fget_file_image(file.get(), image.data(), image.size()), "file image");
}

Id access_without_lock() {
  Id access = owned(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access");
#if H5_VERSION_GE(1, 10, 7)
  checked_status(H5Pset_file_locking(access.get(), false, true), "file access");
#endif
  return access;
}

Id create_on_disk(const std::filesystem::path& path) {
  prepare();
  const Id access = access_without_lock();
  return owned(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose, path.string());
}

void close_file(Id& file) {
  checked_status(H5Fflush(file.get(), H5F_SCOPE_GLOBAL), "write to disk");
  checked_status(H5Fclose(file.release()), "close");
}

bool exists(const Id& parent, const std::string& name) {
  return checked(H5Lexists(parent.get(), name.c_str(), H5P_DEFAULT), name) > 0;
}

Id create_group(const Id& parent, const std::string& name) {
  if (exists(parent, c_text(name, "group name"))) return open_group(parent, name);
  return owned(
      H5Gcreate2(parent.get(), c_text(name, "group name").c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Gclose, cat("group ", name));
}

Id open_group(const Id& parent, const std::string& name) {
  return owned(H5Gopen2(parent.get(), name.c_str(), H5P_DEFAULT), H5Gclose, name);
}

void set_attribute(const Id& object, const std::string& name, std::string_view text) {
  const std::string value = c_text(text, cat("attribute ", name));
  const char* pointer = value.c_str();
  const Id type = text_type();
  write_attribute(object, name, type.get(), type.get(), scalar_space(), &pointer);
}

void set_attribute(const Id& object, const std::string& name, std::int64_t value) {
  write_attribute(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, scalar_space(), &value);
}

void set_attribute(const Id& object, const std::string& name, double value) {
  write_attribute(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, scalar_space(), &value);
}

ElementType int64_type() { return {H5T_STD_I64LE, H5T_NATIVE_INT64, 8}; }
ElementType int32_type() { return {H5T_STD_I32LE, H5T_NATIVE_INT32, 4}; }
ElementType uint8_type() { return {H5T_STD_U8LE, H5T_NATIVE_UINT8, 1}; }
ElementType int8_type() { return {H5T_STD_I8LE, H5T_NATIVE_INT8, 1}; }
ElementType uint64_type() { return {H5T_STD_U64LE, H5T_NATIVE_UINT64, 8}; }
ElementType float64_type() { return {H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 8}; }
ElementType float32_type() { return {H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 4}; }

Id digest_type() {
  Id type = owned(H5Tcopy(H5T_C_S1), H5Tclose, "digest type");
  checked_status(H5Tset_size(type.get(), kDigestChars), "digest type");
  checked_status(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "digest type");
  return type;
}

namespace {

// The values of a dataset, and whether they are these: texts of any length as texts, all else as bytes.
void require_same(const Id& parent, const std::string& name, const ElementType& type,
                  std::span<const hsize_t> dims, const void* values) {
  const std::string what = cat("dataset ", name);
  const Id dataset = owned(H5Dopen2(parent.get(), name.c_str(), H5P_DEFAULT), H5Dclose, what);
  const Id space = owned(H5Dget_space(dataset.get()), H5Sclose, what);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  std::vector<hsize_t> stored(static_cast<std::size_t>(std::max(rank, 0)));
  checked(H5Sget_simple_extent_dims(space.get(), stored.data(), nullptr), what);
  bool same = std::equal(stored.begin(), stored.end(), dims.begin(), dims.end());
  if (same) {
    std::size_t count = 1;
    for (const hsize_t size : stored) count *= size;
    std::vector<std::byte> held(count * type.bytes);
    if (count > 0)
      checked_status(H5Dread(dataset.get(), type.memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, held.data()), what);
    if (count > 0 && H5Tis_variable_str(type.memory) > 0) {
      const auto* mine = static_cast<const char* const*>(values);
      const auto* theirs = reinterpret_cast<const char* const*>(held.data());
      for (std::size_t i = 0; i < count && same; ++i)
        same = std::string_view(mine[i]) == (theirs[i] ? std::string_view(theirs[i]) : std::string_view());
      H5Dvlen_reclaim(type.memory, space.get(), H5P_DEFAULT, held.data());
    } else {
      same = held.empty() || std::memcmp(held.data(), values, held.size()) == 0;
    }
  }
  if (!same) throw Error(ErrorKind::kInput, cat(what, " holds other values than this run computes"));
}

}  // namespace

void write_array(const Id& parent, const std::string& name, const ElementType& type,
                 std::span<const hsize_t> dims, const void* values, const About& about) {
  if (exists(parent, c_text(name, "dataset name"))) return require_same(parent, name, type, dims, values);
  const Id space = dims.empty() ? scalar_space()
                                : owned(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                                        H5Sclose, cat("dataset ", name));
  const Id dataset = owned(H5Dcreate2(parent.get(), c_text(name, "dataset name").c_str(), type.file,
                                      space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                           H5Dclose, cat("dataset ", name));
  checked_status(H5Dwrite(dataset.get(), type.memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values),
                 cat("dataset ", name));
  describe(dataset, about);
}

void write_text(const Id& parent, const std::string& name, std::string_view text, const About& about) {
  const std::string value = c_text(text, cat("dataset ", name));
  const char* pointer = value.c_str();
  const Id type = text_type();
  write_array(parent, name, {type.get(), type.get(), sizeof pointer}, {}, &pointer, about);
}

void write_texts(const Id& parent, const std::string& name, std::span<const std::string> texts,
                 const About& about) {
  std::vector<const char*> pointers;
  for (const auto& text : texts) {
    c_text(text, cat("dataset ", name));
    pointers.push_back(text.c_str());
  }
  const Id type = text_type();
  const hsize_t count = texts.size();
  write_array(parent, name, {type.get(), type.get(), sizeof(char*)}, std::span(&count, 1), pointers.data(),
              about);
}

void remove(const Id& parent, const std::string& name) {
  checked_status(H5Ldelete(parent.get(), name.c_str(), H5P_DEFAULT), cat("remove ", name));
}

void overwrite(const Id& parent, const std::string& name, const ElementType& type, const void* values) {
  const std::string what = cat("dataset ", name);
  const Id dataset = owned(H5Dopen2(parent.get(), name.c_str(), H5P_DEFAULT), H5Dclose, what);
  checked_status(H5Dwrite(dataset.get(), type.memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), what);
}

void link_external(const Id& parent, const std::string& name, const std::string& file) {
  checked_status(H5Lcreate_external(file.c_str(), "/", parent.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
                 cat("link ", name));
}

template <>
hid_t native_type<double>() {
  return H5T_NATIVE_DOUBLE;
}
template <>
hid_t native_type<std::int64_t>() {
  return H5T_NATIVE_INT64;
}
template <>
hid_t native_type<std::uint64_t>() {
  return H5T_NATIVE_UINT64;
}
template <>
hid_t native_type<std::int8_t>() {
  return H5T_NATIVE_INT8;
}
template <>
hid_t native_type<char>() {
  return H5T_C_S1;
}

Column::Column(const Id& parent, std::string name, const ElementType& type,
               std::span<const std::int64_t> row_shape, std::int64_t chunk_rows, const About& about)
    : name_(std::move(name)),
      memory_type_(owned(H5Tcopy(type.memory), H5Tclose, name_)),
      row_bytes_(type.bytes),
      extent_{0} {
  for (const std::int64_t size : row_shape) {
    row_bytes_ *= static_cast<std::size_t>(size);
    extent_.push_back(static_cast<hsize_t>(size));
  }
  pending_.reserve(row_bytes_ * static_cast<std::size_t>(chunk_rows));
  if (exists(parent, name_))
    open(parent, type);
  else
    create(parent, type, chunk_rows, about);
}

void Column::open(const Id& parent, const ElementType& type) {
  const std::string what = cat("dataset ", name_);
  dataset_ = owned(H5Dopen2(parent.get(), name_.c_str(), H5P_DEFAULT), H5Dclose, what);
  const Id stored = owned(H5Dget_type(dataset_.get()), H5Tclose, what);
  const Id space = owned(H5Dget_space(dataset_.get()), H5Sclose, what);
  std::vector<hsize_t> extent(extent_.size(), 0);
  if (H5Tequal(stored.get(), type.file) <= 0 ||
      H5Sget_simple_extent_ndims(space.get()) != static_cast<int>(extent.size()) ||
      H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr) < 0 ||
      !std::equal(extent.begin() + 1, extent.end(), extent_.begin() + 1))
    throw Error(ErrorKind::kInput, cat(what, " has another type or width than this run's rows"));
  extent_ = extent;
}

void Column::create(const Id& parent, const ElementType& type, std::int64_t chunk_rows, const About& about) {
  std::vector<hsize_t> most = extent_, chunk = extent_;
  most[0] = H5S_UNLIMITED;
  chunk[0] = static_cast<hsize_t>(chunk_rows);
  const int rank = static_cast<int>(extent_.size());
  const std::string what = cat("dataset ", name_);
  const Id space = owned(H5Screate_simple(rank, extent_.data(), most.data()), H5Sclose, what);
  const Id create = owned(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, what);
  checked_status(H5Pset_chunk(create.get(), rank, chunk.data()), what);
  dataset_ = owned(
      H5Dcreate2(parent.get(), name_.c_str(), type.file, space.get(), H5P_DEFAULT, create.get(), H5P_DEFAULT),
      H5Dclose, what);
  describe(dataset_, about);
}

void Column::append_bytes(std::span<const std::byte> row, hid_t type) {
  const bool text = H5Tget_class(memory_type_.get()) == H5T_STRING;
  if (row.size() != row_bytes_ || (text ? type != H5T_C_S1 : H5Tequal(type, memory_type_.get()) <= 0))
    throw Error(ErrorKind::kInternal, cat("dataset ", name_, ": a row of another type or width (", row.size(),
                                          " bytes, expected ", row_bytes_, ")"));
  pending_.insert(pending_.end(), row.begin(), row.end());
}

void Column::append_text(const std::string& text) {
  if (H5Tis_variable_str(memory_type_.get()) <= 0)
    throw Error(ErrorKind::kInternal, cat("dataset ", name_, ": does not hold text of any length"));
  const char* pointer = texts_.emplace_back(c_text(text, cat("dataset ", name_))).c_str();
  const auto bytes = std::as_bytes(std::span(&pointer, 1));
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
}

void Column::write_pending() {
  if (pending_.empty()) return;
  std::vector<hsize_t> begin(extent_.size(), 0), shape = extent_;
  begin[0] = extent_[0];
  shape[0] = static_cast<hsize_t>(pending_.size() / row_bytes_);
  std::vector<hsize_t> extent = extent_;
  extent[0] += shape[0];
  const std::string what = cat("dataset ", name_);
  checked_status(H5Dset_extent(dataset_.get(), extent.data()), what);
  const Id target = owned(H5Dget_space(dataset_.get()), H5Sclose, what);
  checked_status(
      H5Sselect_hyperslab(target.get(), H5S_SELECT_SET, begin.data(), nullptr, shape.data(), nullptr), what);
  const Id source =
      owned(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose, what);
  checked_status(
      H5Dwrite(dataset_.get(), memory_type_.get(), source.get(), target.get(), H5P_DEFAULT, pending_.data()),
      what);
  extent_ = extent;
  pending_.clear();
  texts_.clear();
}

Table::Table(const Id& parent, const std::string& name, std::string row_label, std::int64_t chunk_rows)
    : group_(create_group(parent, name)),
      name_(name),
      row_label_(std::move(row_label)),
      chunk_rows_(chunk_rows) {}

Table& Table::add(const char* name, const ElementType& type, const char* unit, const char* description) {
  return add_shaped(name, type, {}, {}, unit, description);
}

Table& Table::add_wide(const char* name, const ElementType& type, std::int64_t width, const char* label,
                       const char* unit, const char* description) {
  return add_shaped(name, type, std::span(&width, 1), {label}, unit, description);
}

Table& Table::add_shaped(const char* name, const ElementType& type, std::span<const std::int64_t> row_shape,
                         const std::vector<std::string>& labels, const char* unit, const char* description) {
  constexpr std::int64_t kChunkElements = 4096;
  std::int64_t elements = 1;
  for (const std::int64_t size : row_shape) elements *= size;
  const std::int64_t rows = std::clamp<std::int64_t>(kChunkElements / elements, 1, chunk_rows_);
  About about{unit, description, {row_label_}};
  about.labels.insert(about.labels.end(), labels.begin(), labels.end());
  columns_.emplace_back(group_, name, type, row_shape, row_shape.empty() ? chunk_rows_ : rows, about);
  return *this;
}

Table& Table::add_text(const char* name, const char* description) {
  const Id type = text_type();
  return add(name, {type.get(), type.get(), sizeof(char*)}, "text", description);
}

void Table::set_attribute(const char* column, const char* name, std::string_view text) {
  for (const Column& candidate : columns_)
    if (candidate.name() == column) hdf5::set_attribute(candidate.dataset(), name, text);
}

Column& Table::next() {
  Column& column = columns_.at(next_);
  next_ = (next_ + 1) % columns_.size();
  return column;
}

void Table::write_pending() {
  if (next_ != 0) throw Error(ErrorKind::kInternal, cat("table ", name_, ": a row ends in the middle"));
  for (auto& column : columns_) column.write_pending();
}

}  // namespace tandem::hdf5
