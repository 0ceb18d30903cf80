// The reading half of hdf5.hpp: nothing a file claims is believed before it is checked.
#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "io/hdf5.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem::hdf5 {

namespace {

constexpr std::size_t kMostMembers = 4096;
constexpr std::uintmax_t kFreeBytes = std::uintmax_t{1}
                                      << 20;       // what a dataset may hold by its fill value alone
constexpr std::uintmax_t kMostCompression = 1100;  // deflate's limit is 1032
constexpr std::uintmax_t kMostExpansion = std::uintmax_t{256} << 20;  // what decompressing a dataset may add
constexpr std::uintmax_t kMostAttributeText = std::uintmax_t{8}
                                              << 30;  // texts of an attribute times the file's size

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::kInput, cat(where, ": ", what));
}

Id copy_for_text(const Id& stored, const std::string& where) {
  Id memory = owned(H5Tcopy(H5T_C_S1), H5Tclose, where);
  checked_status(H5Tset_cset(memory.get(), H5Tget_cset(stored.get())),
                 where);  // HDF5 converts no character sets
  return memory;
}

// Fixed-length texts end at the first NUL or, where blanks pad them, before the last blanks.
std::string trimmed(const char* text, std::size_t bytes, H5T_str_t padding) {
  std::string_view view(text, bytes);
  view = view.substr(0, view.find('\0'));
  if (padding == H5T_STR_SPACEPAD) view = view.substr(0, view.find_last_not_of(' ') + 1);
  return std::string(view);
}

// Owns the variable-length texts of one read, and bounds their sum: many elements may point to one long text.
class TextMemory {
 public:
  explicit TextMemory(std::uintmax_t most) : left_(most) {
    transfer_ = owned(H5Pcreate(H5P_DATASET_XFER), H5Pclose, "text memory");
    checked_status(H5Pset_vlen_mem_manager(
                       transfer_.get(), allocate, this, [](void*, void*) {}, nullptr),
                   "text memory");
  }
  TextMemory(const TextMemory&) = delete;
  TextMemory& operator=(const TextMemory&) = delete;
  hid_t transfer() const { return transfer_.get(); }
  bool exceeded() const { return exceeded_; }

 private:
  static void* allocate(std::size_t bytes, void* self) {
    auto& memory = *static_cast<TextMemory*>(self);
    memory.exceeded_ = memory.exceeded_ || bytes > memory.left_;
    if (memory.exceeded_) return nullptr;
    memory.left_ -= bytes;
    return memory.pieces_.emplace_back(new (std::nothrow) char[bytes]).get();
  }

  Id transfer_;
  std::uintmax_t left_;
  bool exceeded_ = false;
  std::vector<std::unique_ptr<char[]>> pieces_;
};

std::vector<std::string> copied(const std::vector<char*>& pointers) {
  std::vector<std::string> texts;
  texts.reserve(pointers.size());
  for (const char* pointer : pointers) texts.emplace_back(pointer ? pointer : "");
  return texts;
}

// read(memory type, buffer) fills `count` texts of fixed length.
template <class Read>
std::vector<std::string> read_fixed_texts(const Id& stored, std::size_t count, const std::string& where,
                                          Read&& read) {
  const std::size_t bytes = H5Tget_size(stored.get());
  const H5T_str_t padding = H5Tget_strpad(stored.get());
  const Id memory = copy_for_text(stored, where);
  checked_status(H5Tset_size(memory.get(), bytes), where);
  checked_status(H5Tset_strpad(memory.get(), padding), where);
  std::vector<char> characters(count * bytes);
  read(memory.get(), characters.data());
  std::vector<std::string> texts;
  texts.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    texts.push_back(trimmed(characters.data() + i * bytes, bytes, padding));
  return texts;
}

Id variable_text(const Id& stored, const std::string& where) {
  Id memory = copy_for_text(stored, where);
  checked_status(H5Tset_size(memory.get(), H5T_VARIABLE), where);
  return memory;
}

std::vector<std::string> read_attribute_texts(const Id& attribute, const Id& type, const Id& space,
                                              std::size_t count, const std::string& where) {
  if (checked(H5Tis_variable_str(type.get()), where) == 0)
    return read_fixed_texts(type, count, where, [&](hid_t memory, void* out) {
      checked_status(H5Aread(attribute.get(), memory, out), where);
    });
  const Id memory = variable_text(type, where);
  std::vector<char*> pointers(count, nullptr);
  checked_status(H5Aread(attribute.get(), memory.get(), pointers.data()), where);
  auto texts = copied(pointers);
  H5Dvlen_reclaim(memory.get(), space.get(), H5P_DEFAULT, pointers.data());
  return texts;
}

std::string name_of_number(hid_t type) {
  const struct {
    hid_t type;
    const char* name;
  } plain[] = {{H5T_IEEE_F64LE, "float64"}, {H5T_IEEE_F32LE, "float32"}, {H5T_STD_I64LE, "int64"},
               {H5T_STD_U64LE, "uint64"},   {H5T_STD_I32LE, "int32"},    {H5T_STD_U32LE, "uint32"},
               {H5T_STD_I16LE, "int16"},    {H5T_STD_U16LE, "uint16"},   {H5T_STD_I8LE, "int8"},
               {H5T_STD_U8LE, "uint8"},     {H5T_STD_I8BE, "int8"},      {H5T_STD_U8BE, "uint8"}};
  for (const auto& [known, name] : plain)
    if (H5Tequal(type, known) > 0) return name;
  const bool real = H5Tget_class(type) == H5T_FLOAT;
  const char* kind = real ? "float" : H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int";
  return cat(kind, 8 * H5Tget_size(type),
             H5Tget_order(type) == H5T_ORDER_BE ? " big-endian" : " of an unusual layout");
}

std::string name_of_type(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_FLOAT:
      return name_of_number(type);
    case H5T_STRING:
      return H5Tis_variable_str(type) > 0 ? "text" : cat("text of ", H5Tget_size(type), " bytes");
    case H5T_COMPOUND:
      return "compound";
    case H5T_ENUM:
      return "an enumeration";
    case H5T_VLEN:
      return "lists of variable length";
    case H5T_ARRAY:
      return "arrays";
    case H5T_BITFIELD:
      return "a bit field";
    case H5T_OPAQUE:
      return "opaque";
    case H5T_REFERENCE:
      return "references";
    case H5T_TIME:
      return "times";
    default:
      return "of an unknown type";
  }
}

std::uintmax_t element_count(const Id& space, const std::string& where,
                             std::vector<std::int64_t>* dims = nullptr) {
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0 || rank > H5S_MAX_RANK) refuse(where, "has no readable shape");
  hsize_t sizes[H5S_MAX_RANK] = {};
  checked(H5Sget_simple_extent_dims(space.get(), sizes, nullptr), where);
  std::uintmax_t count = H5Sget_simple_extent_type(space.get()) == H5S_NULL ? 0 : 1;
  for (int d = 0; d < rank; ++d) {
    if (__builtin_mul_overflow(count, static_cast<std::uintmax_t>(sizes[d]), &count))
      refuse(where, "its shape overflows");
    if (dims) dims->push_back(static_cast<std::int64_t>(sizes[d]));
  }
  return count;
}

}  // namespace

Id open_for_reading(const std::filesystem::path& path) {
  prepare();
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) refuse(path.string(), "there is no such file");
  if (!std::filesystem::is_regular_file(status)) refuse(path.string(), "is not a regular file");
  if (std::filesystem::file_size(path, error) == 0)
    refuse(path.string(), "is empty (0 bytes), not an HDF5 file");
  const htri_t is_hdf5 = H5Fis_hdf5(path.c_str());
  if (is_hdf5 == 0) refuse(path.string(), "is not an HDF5 file (it lacks the signature)");
  const Id access = access_without_lock();
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get());
  if (file < 0)
    refuse(path.string(), cat("cannot be opened as HDF5, damaged or cut short (", innermost_error(), ")"));
  return {file, H5Fclose};
}

struct Node::Dataset {
  Id id, type, space;
  std::vector<std::int64_t> dims;
  std::size_t count = 0;
  std::string where;
};

Node::Node(const Id& file, const std::filesystem::path& path) : where_(path.string() + ": /") {
  object_ = owned(H5Gopen2(file.get(), "/", H5P_DEFAULT), H5Gclose, where_);
  std::error_code error;
  file_bytes_ = std::filesystem::file_size(path, error);
}

Node::Node(Id object, std::string where, std::uintmax_t file_bytes)
    : object_(std::move(object)), where_(std::move(where)), file_bytes_(file_bytes) {}

std::vector<std::string> Node::members() const {
  std::vector<std::string> names;
  const auto keep = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    auto& kept = *static_cast<std::vector<std::string>*>(out);
    kept.emplace_back(name);
    return kept.size() > kMostMembers ? -1 : 0;
  };
  hsize_t position = 0;
  const herr_t status = H5Literate(object_.get(), H5_INDEX_NAME, H5_ITER_INC, &position, keep, &names);
  if (names.size() > kMostMembers) refuse(where_, cat("holds more than ", kMostMembers, " objects"));
  checked_status(status, where_);
  return names;
}

std::vector<std::string> Node::attributes() const {
  std::vector<std::string> names;
  const auto keep = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    auto& kept = *static_cast<std::vector<std::string>*>(out);
    kept.emplace_back(name);
    return kept.size() > kMostMembers ? -1 : 0;
  };
  hsize_t position = 0;
  const herr_t status = H5Aiterate2(object_.get(), H5_INDEX_NAME, H5_ITER_INC, &position, keep, &names);
  if (names.size() > kMostMembers) refuse(where_, cat("has more than ", kMostMembers, " attributes"));
  checked_status(status, where_);
  return names;
}

Link Node::link(const std::string& name) const {
  if (checked(H5Lexists(object_.get(), name.c_str(), H5P_DEFAULT), where_ + name) <= 0) return Link::kNone;
  H5L_info_t info;
  checked_status(H5Lget_info(object_.get(), name.c_str(), &info, H5P_DEFAULT), where_ + name);
  return info.type == H5L_TYPE_HARD   ? Link::kHard
         : info.type == H5L_TYPE_SOFT ? Link::kSoft
                                      : Link::kElsewhere;
}

bool Node::has(const std::string& name) const { return link(name) == Link::kHard; }

bool Node::holds_group(const std::string& name) const {
  if (!has(name)) return false;
  const Id object = owned(H5Oopen(object_.get(), name.c_str(), H5P_DEFAULT), H5Oclose, where_ + name);
  return H5Iget_type(object.get()) == H5I_GROUP;
}

Node Node::dataset(const std::string& name) const {
  Dataset dataset = open_dataset(name);
  if (!dataset.id) refuse(dataset.where, "is missing");
  return Node(std::move(dataset.id), dataset.where, file_bytes_);
}

std::optional<Node> Node::group(const std::string& name) const {
  if (!has(name)) return std::nullopt;
  const std::string where = where_ + name;
  Id object = owned(H5Oopen(object_.get(), name.c_str(), H5P_DEFAULT), H5Oclose, where);
  if (H5Iget_type(object.get()) != H5I_GROUP) refuse(where, "is not a group");
  return Node(std::move(object), where + "/", file_bytes_);
}

// "FILE: attribute a", "FILE: /group, attribute a".
std::string Node::attribute_where(const std::string& name) const {
  if (where_.ends_with(": /")) return cat(where_.substr(0, where_.size() - 1), "attribute ", name);
  return cat(where_.ends_with('/') ? where_.substr(0, where_.size() - 1) : where_, ", attribute ", name);
}

// An attribute that is open, with what it announces.
struct Node::Attribute {
  Id id, type, space;
  std::string where;

  H5T_class_t kind() const { return H5Tget_class(type.get()); }
};

std::optional<Node::Attribute> Node::open_attribute(const std::string& name) const {
  Attribute out;
  out.where = attribute_where(name);
  if (checked(H5Aexists(object_.get(), name.c_str()), out.where) <= 0) return std::nullopt;
  out.id = owned(H5Aopen(object_.get(), name.c_str(), H5P_DEFAULT), H5Aclose, out.where);
  out.type = owned(H5Aget_type(out.id.get()), H5Tclose, out.where);
  out.space = owned(H5Aget_space(out.id.get()), H5Sclose, out.where);
  return out;
}

std::optional<std::string> Node::text_attribute(const std::string& name) const {
  const auto found = open_attribute(name);
  if (!found) return std::nullopt;
  const auto& [id, type, space, where] = *found;
  if (found->kind() != H5T_STRING || element_count(space, where) != 1) refuse(where, "is not one text");
  if (H5Tget_size(type.get()) > file_bytes_) refuse(where, "announces more text than the file holds");
  return read_attribute_texts(id, type, space, 1, where).front();
}

std::optional<std::int64_t> Node::int_attribute(const std::string& name) const {
  const auto found = open_attribute(name);
  if (!found) return std::nullopt;
  if (found->kind() != H5T_INTEGER || element_count(found->space, found->where) != 1)
    refuse(found->where, "is not one integer");
  std::int64_t value = 0;
  checked_status(H5Aread(found->id.get(), H5T_NATIVE_INT64, &value), found->where);
  return value;
}

std::vector<std::string> Node::text_list_attribute(const std::string& name) const {
  const auto found = open_attribute(name);
  if (!found) return {};
  const auto& [id, type, space, where] = *found;
  const auto count = element_count(space, where);
  if (found->kind() != H5T_STRING || count > H5S_MAX_RANK || H5Tget_size(type.get()) > file_bytes_) return {};
  return read_attribute_texts(id, type, space, static_cast<std::size_t>(count), where);
}

std::string Node::attribute_as_text(const std::string& name) const {
  const auto found = open_attribute(name);
  if (!found) refuse(attribute_where(name), "is missing");
  const auto& [id, type, space, where] = *found;
  const auto count = element_count(space, where);
  const auto kind = found->kind();
  // Attributes lie in the file as they are: what is longer than the file is not there.
  if (count > file_bytes_ || H5Tget_size(type.get()) > file_bytes_ ||
      count * H5Tget_size(type.get()) > file_bytes_)
    refuse(where, "announces more than the file holds");
  // Many elements may point to one long text.
  if (kind == H5T_STRING && H5Tis_variable_str(type.get()) > 0 &&
      count > kMostAttributeText / std::max<std::uintmax_t>(file_bytes_, 1))
    refuse(where, "lists too many texts");
  std::vector<std::string> parts;
  const auto n = static_cast<std::size_t>(count);
  if (kind == H5T_STRING) {
    parts = read_attribute_texts(id, type, space, n, where);
  } else if (kind == H5T_INTEGER) {
    std::vector<std::int64_t> values(n);
    checked_status(H5Aread(id.get(), H5T_NATIVE_INT64, values.data()), where);
    for (const auto value : values) parts.push_back(std::to_string(value));
  } else if (kind == H5T_FLOAT) {
    std::vector<double> values(n);
    checked_status(H5Aread(id.get(), H5T_NATIVE_DOUBLE, values.data()), where);
    for (const auto value : values) parts.push_back(cat(value));
  } else {
    return "(of a kind this program does not read)";
  }
  return joined(parts, ",");
}

// HDF5's own words for a filter that it lacks name a folder of plugins.
void check_filters(const Id& create, const std::string& where) {
  const int count = H5Pget_nfilters(create.get());
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, config = 0;
    std::size_t values = 0;
    char name[32] = {};
    const H5Z_filter_t filter = H5Pget_filter2(create.get(), static_cast<unsigned>(i), &flags, &values,
                                               nullptr, sizeof name, name, &config);
    checked(filter, where);
    if (H5Zfilter_avail(filter) <= 0)
      refuse(where, cat("is compressed by filter ", filter, " (", name, "), which this HDF5 lacks"));
  }
}

Node::Dataset Node::open_dataset(const std::string& name) const {
  Dataset dataset;
  dataset.where = where_ + name;
  if (!has(name)) return dataset;
  Id object = owned(H5Oopen(object_.get(), name.c_str(), H5P_DEFAULT), H5Oclose, dataset.where);
  if (H5Iget_type(object.get()) != H5I_DATASET) refuse(dataset.where, "is not a dataset");
  dataset.id = std::move(object);
  dataset.type = owned(H5Dget_type(dataset.id.get()), H5Tclose, dataset.where);
  dataset.space = owned(H5Dget_space(dataset.id.get()), H5Sclose, dataset.where);

  const Id create = owned(H5Dget_create_plist(dataset.id.get()), H5Pclose, dataset.where);
  if (H5Pget_layout(create.get()) == H5D_VIRTUAL || H5Pget_external_count(create.get()) > 0)
    refuse(dataset.where, "keeps its values in another file");
  const auto count = element_count(dataset.space, dataset.where, &dataset.dims);
  check_filters(create, dataset.where);
  const std::uintmax_t stored = H5Dget_storage_size(dataset.id.get()), real = std::min(stored, file_bytes_);
  const std::uintmax_t expanded =
      H5Pget_nfilters(create.get()) > 0 ? std::min(real * kMostCompression, real + kMostExpansion) : real;
  const std::uintmax_t each = H5Tget_size(dataset.type.get()), most = std::max(kFreeBytes, expanded);
  std::uintmax_t bytes = 0;
  if (__builtin_mul_overflow(count, each, &bytes) || bytes > most)
    refuse(dataset.where, cat("announces ", counted(count, "element"), " of ", counted(each, "byte"),
                              ", but the file stores only ", stored, " bytes of them"));
  dataset.count = static_cast<std::size_t>(count);
  return dataset;
}

template <class T>
std::vector<T> Node::numbers(const std::string& name, std::vector<std::int64_t>& dims, hid_t memory,
                             bool reals) const {
  const Dataset dataset = open_dataset(name);
  dims = dataset.dims;
  if (!dataset.id) return {};
  const auto kind = H5Tget_class(dataset.type.get());
  if (kind != H5T_INTEGER && !(reals && kind == H5T_FLOAT))
    refuse(dataset.where, cat("does not hold ", reals ? "numbers" : "integers"));
  if constexpr (std::is_same_v<T, std::uint64_t>) {
    // 64 bits are 64 bits: a signed dataset is not clipped at 0.
    if (H5Tget_sign(dataset.type.get()) == H5T_SGN_2) {
      const auto values = ints(name, dims);
      return {values.begin(), values.end()};
    }
  }
  std::vector<T> values(dataset.count);
  checked_status(H5Dread(dataset.id.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
                 dataset.where);
  return values;
}

std::vector<std::int64_t> Node::shape(const std::string& name) const { return open_dataset(name).dims; }

Announced Node::announced(const std::string& name) const {
  const Dataset dataset = open_dataset(name);
  if (!dataset.id) refuse(dataset.where, "is missing");
  return {name_of_type(dataset.type.get()), H5Tget_class(dataset.type.get()) == H5T_STRING, dataset.dims};
}

std::vector<double> Node::doubles(const std::string& name, std::vector<std::int64_t>& dims) const {
  return numbers<double>(name, dims, H5T_NATIVE_DOUBLE, true);
}

std::vector<std::int64_t> Node::ints(const std::string& name, std::vector<std::int64_t>& dims) const {
  return numbers<std::int64_t>(name, dims, H5T_NATIVE_INT64, false);
}

std::vector<std::int64_t> Node::ints_at(const std::string& name, std::int64_t first,
                                        std::int64_t count) const {
  const Dataset dataset = open_dataset(name);
  if (!dataset.id || H5Tget_class(dataset.type.get()) != H5T_INTEGER || dataset.dims.size() != 1)
    refuse(dataset.where, "is no list of integers");
  if (first < 0 || count < 0 || count > dataset.dims[0] || first > dataset.dims[0] - count)
    refuse(dataset.where,
           cat("has ", dataset.dims[0], " elements, not those from ", first, " to ", first + count));
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  if (count == 0) return values;
  const hsize_t start = static_cast<hsize_t>(first), length = static_cast<hsize_t>(count);
  checked_status(H5Sselect_hyperslab(dataset.space.get(), H5S_SELECT_SET, &start, nullptr, &length, nullptr),
                 dataset.where);
  const Id memory = owned(H5Screate_simple(1, &length, nullptr), H5Sclose, dataset.where);
  checked_status(H5Dread(dataset.id.get(), H5T_NATIVE_INT64, memory.get(), dataset.space.get(), H5P_DEFAULT,
                         values.data()),
                 dataset.where);
  return values;
}

std::vector<std::uint64_t> Node::uints(const std::string& name, std::vector<std::int64_t>& dims) const {
  return numbers<std::uint64_t>(name, dims, H5T_NATIVE_UINT64, false);
}

std::vector<std::string> Node::texts(const std::string& name, std::vector<std::int64_t>& dims) const {
  const Dataset dataset = open_dataset(name);
  dims = dataset.dims;
  if (!dataset.id) return {};
  if (H5Tget_class(dataset.type.get()) != H5T_STRING) refuse(dataset.where, "does not hold text");
  if (dataset.count == 0) return {};
  if (checked(H5Tis_variable_str(dataset.type.get()), dataset.where) == 0)
    return read_fixed_texts(dataset.type, dataset.count, dataset.where, [&](hid_t memory, void* out) {
      checked_status(H5Dread(dataset.id.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, out), dataset.where);
    });
  const Id memory = variable_text(dataset.type, dataset.where);
  TextMemory texts(std::max(kFreeBytes, 2 * file_bytes_));
  std::vector<char*> pointers(dataset.count, nullptr);
  const herr_t status =
      H5Dread(dataset.id.get(), memory.get(), H5S_ALL, H5S_ALL, texts.transfer(), pointers.data());
  if (texts.exceeded()) refuse(dataset.where, "announces more text than the file holds");
  checked_status(status, dataset.where);
  return copied(pointers);
}

std::optional<std::string> Node::text(const std::string& name) const {
  if (!has(name)) return text_attribute(name);
  std::vector<std::int64_t> dims;
  auto values = texts(name, dims);
  if (values.size() != 1) refuse(where_ + name, "is not one text");
  return std::move(values.front());
}

std::optional<Node::External> Node::external(const std::string& name) const {
  H5L_info_t info;
  checked_status(H5Lget_info(object_.get(), name.c_str(), &info, H5P_DEFAULT), where_ + name);
  if (info.type != H5L_TYPE_EXTERNAL) return std::nullopt;
  std::vector<char> value(info.u.val_size);
  checked_status(H5Lget_val(object_.get(), name.c_str(), value.data(), value.size(), H5P_DEFAULT),
                 where_ + name);
  const char *file = nullptr, *object = nullptr;
  checked_status(H5Lunpack_elink_val(value.data(), value.size(), nullptr, &file, &object), where_ + name);
  return External{file, object};
}

}  // namespace tandem::hdf5
