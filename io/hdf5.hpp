// HDF5's C API with owned identifiers and checked calls; nothing outside io/ includes this.
//
// Every failure is an Error (kInput) of one line: file, object, and HDF5's own innermost description. HDF5's
// automatic printing is off. Text is UTF-8; text with a NUL byte is refused, since HDF5's texts end there.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::hdf5 {

// An identifier, closed with its owner.
class Id {
 public:
  using Close = herr_t (*)(hid_t);

  Id() = default;
  Id(hid_t id, Close close) : id_(id), close_(close) {}
  ~Id() { reset(); }
  Id(Id&& other) noexcept;
  Id& operator=(Id&& other) noexcept;

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  void reset();
  hid_t release();  // the caller closes it

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

// Called before anything else by the functions below that open files: printing off, library's version
// checked.
void prepare();
// HDF5's own description of the last failure, as near to its cause as it gives.
std::string innermost_error();
// Throws "WHAT: HDF5: innermost description" where `result` is negative; else hands it on.
hid_t checked(hid_t result, std::string_view what);
void checked_status(herr_t status, std::string_view what);
inline Id owned(hid_t id, Id::Close close, std::string_view what) { return {checked(id, what), close}; }

// --- writing ---

// A file that exists in memory only; `name` appears in errors and must not be open already.
Id create_in_memory(const std::filesystem::path& name);
// A file read from disk to be continued in memory only; the file on disk stays as it is.
Id open_in_memory(const std::filesystem::path& path);
// File access without a lock: there is one writer per file, and readers see published files only.
Id access_without_lock();
// The bytes of the file as they would lie on disk after closing it. Flushes first: HDF5 itself does not, and
// would hand out an older image.
void file_image(const Id& file, std::vector<std::byte>& image);
// An empty file on disk (of the oldest format, which every HDF5 reads), without a lock.
Id create_on_disk(const std::filesystem::path& path);

// Closes what is left open of a file; says what the destructor would keep to itself (a full disk).
void close_file(Id& file);

bool exists(const Id& parent, const std::string& name);
// create_group: it is opened where it is there already (a file that is continued).
Id create_group(const Id& parent, const std::string& name);
Id open_group(const Id& parent, const std::string& name);

void set_attribute(const Id& object, const std::string& name, std::string_view text);
void set_attribute(const Id& object, const std::string& name, std::int64_t value);
void set_attribute(const Id& object, const std::string& name, double value);

// What each dataset carries beside its numbers. labels: one word per dimension.
struct About {
  const char* unit;
  const char* description;
  std::vector<std::string> labels = {};
};

// file_type, memory_type and size of one element.
struct ElementType {
  hid_t file = -1, memory = -1;
  std::size_t bytes = 0;
};
ElementType int64_type();
ElementType uint64_type();
ElementType int32_type();
ElementType uint8_type();
ElementType int8_type();
ElementType float64_type();
ElementType float32_type();
// Fixed-length ASCII of kDigestChars characters without terminator.
inline constexpr std::size_t kDigestChars = 64;
Id digest_type();

// Where a dataset of that name is there already, as in a file that is continued, it must hold these values:
// kInput otherwise.
void write_array(const Id& parent, const std::string& name, const ElementType& type,
                 std::span<const hsize_t> dims, const void* values, const About& about);
void write_text(const Id& parent, const std::string& name, std::string_view text, const About& about);
void write_texts(const Id& parent, const std::string& name, std::span<const std::string> texts,
                 const About& about);

void remove(const Id& parent, const std::string& name);
// Replaces all values of a dataset.
void overwrite(const Id& parent, const std::string& name, const ElementType& type, const void* values);
// NAME leads to the root of another file, whose path is relative to this file's folder.
void link_external(const Id& parent, const std::string& name, const std::string& file);

// Memory type of one element of a column.
template <class T>
hid_t native_type();

// A dataset that grows by rows; rows wait in memory until write_pending().
class Column {
 public:
  // row_shape: of one row; empty: one element per row. A dataset that is there already is continued.
  Column(const Id& parent, std::string name, const ElementType& type, std::span<const std::int64_t> row_shape,
         std::int64_t chunk_rows, const About& about);

  // One row; its elements must be of the dataset's own type. A digest is one text of 64 characters.
  template <class T>
  void append(std::span<const T> row) {
    append_bytes(std::as_bytes(row), native_type<T>());
  }
  // One row of a dataset of variable-length text.
  void append_text(const std::string& text);
  void write_pending();
  const std::string& name() const { return name_; }
  const Id& dataset() const { return dataset_; }

 private:
  void create(const Id& parent, const ElementType& type, std::int64_t chunk_rows, const About& about);
  void open(const Id& parent, const ElementType& type);
  void append_bytes(std::span<const std::byte> row, hid_t type);

  std::string name_;
  Id dataset_, memory_type_;
  std::size_t row_bytes_;
  std::vector<hsize_t> extent_;  // rows so far, then the shape of a row
  std::vector<std::byte> pending_;
  std::deque<std::string> texts_;  // what the pointers in pending_ lead to
};

// Columns of equal length in a group of their own. A row is given column by column, in the order they were
// added.
class Table {
 public:
  // row_label: what a row is, in the dimension labels. The group may be there already.
  Table(const Id& parent, const std::string& name, std::string row_label, std::int64_t chunk_rows);

  Table& add(const char* name, const ElementType& type, const char* unit, const char* description);
  Table& add_wide(const char* name, const ElementType& type, std::int64_t width, const char* label,
                  const char* unit, const char* description);
  // Rows of any shape; labels: one word per dimension of a row.
  Table& add_shaped(const char* name, const ElementType& type, std::span<const std::int64_t> row_shape,
                    const std::vector<std::string>& labels, const char* unit, const char* description);
  Table& add_text(const char* name, const char* description);
  // An attribute of a column.
  void set_attribute(const char* column, const char* name, std::string_view text);
  template <class T>
  Table& put(std::span<const T> values) {
    next().append(values);
    return *this;
  }
  template <class T>
  Table& put(const T& value) {
    return put(std::span<const T>(&value, 1));
  }
  Table& put_text(const std::string& text) {
    next().append_text(text);
    return *this;
  }
  void write_pending();  // throws kInternal in the middle of a row
  const Id& group() const { return group_; }

 private:
  Column& next();

  Id group_;
  std::string name_, row_label_;
  std::int64_t chunk_rows_;
  std::deque<Column> columns_;
  std::size_t next_ = 0;
};

// --- reading ---

// Opens without a lock: what is read was published whole (publish.hpp). Says what a file is that is not HDF5.
Id open_for_reading(const std::filesystem::path& path);

// How a name leads to an object; links of the last two kinds are not followed.
enum class Link { kNone, kHard, kSoft, kElsewhere };

// What a dataset announces, before its values are read.
struct Announced {
  std::string type;  // "float64", "int64 big-endian", "text", "text of 64 bytes", "compound", ...
  bool text = false;
  std::vector<std::int64_t> dims;
};

// A group or dataset inside an open file, with the path used in errors. Links to other files or paths are not
// followed.
class Node {
 public:
  Node(const Id& file, const std::filesystem::path& path);

  const std::string& where() const { return where_; }  // "FILE: /group"
  std::vector<std::string> members() const;
  std::vector<std::string> attributes() const;
  bool has(const std::string& name) const;
  Link link(const std::string& name) const;
  std::optional<Node> group(const std::string& name) const;
  bool holds_group(const std::string& name) const;
  // A dataset as the owner of attributes.
  Node dataset(const std::string& name) const;

  // Attributes, one value each. nullopt where it is absent; an error where it is of another kind.
  std::optional<std::string> text_attribute(const std::string& name) const;
  std::optional<std::int64_t> int_attribute(const std::string& name) const;
  // A list of texts; empty where it is absent or something else.
  std::vector<std::string> text_list_attribute(const std::string& name) const;
  // Any attribute as text: numbers printed, lists separated by commas.
  std::string attribute_as_text(const std::string& name) const;

  // A dataset's values, row-major; dims receives its shape. Empty where it is absent. More data announced
  // than the file stores is an error, so what is allocated is bounded by the file's size.
  std::vector<std::int64_t> shape(const std::string& name) const;
  Announced announced(const std::string& name) const;
  std::vector<double> doubles(const std::string& name, std::vector<std::int64_t>& dims) const;
  std::vector<std::int64_t> ints(const std::string& name, std::vector<std::int64_t>& dims) const;
  // Elements [first, first + count) of a list of integers; an error where it has no such part.
  std::vector<std::int64_t> ints_at(const std::string& name, std::int64_t first, std::int64_t count) const;
  std::vector<std::uint64_t> uints(const std::string& name, std::vector<std::int64_t>& dims) const;
  std::vector<std::string> texts(const std::string& name, std::vector<std::int64_t>& dims) const;
  // One text: a dataset of one element or an attribute.
  std::optional<std::string> text(const std::string& name) const;

  // The file that an external link names and the object there; nullopt for anything else.
  struct External {
    std::string file, object;
  };
  std::optional<External> external(const std::string& name) const;

 private:
  Node(Id object, std::string where, std::uintmax_t file_bytes);

  std::string attribute_where(const std::string& name) const;
  struct Attribute;
  std::optional<Attribute> open_attribute(const std::string& name) const;
  struct Dataset;
  Dataset open_dataset(const std::string& name) const;
  template <class T>
  std::vector<T> numbers(const std::string& name, std::vector<std::int64_t>& dims, hid_t memory,
                         bool reals) const;

  Id object_;
  std::string where_;
  std::uintmax_t file_bytes_ = 0;
};

}  // namespace tandem::hdf5
