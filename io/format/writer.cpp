#include "io/format/writer.hpp"

#include <optional>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem::format {

namespace {

using hdf5::About;
using hdf5::ElementType;

const Dataset& known(std::string_view path, std::initializer_list<Kind> kinds) {
  const Dataset* dataset = find(path);
  for (const Kind kind : kinds)
    if (dataset && dataset->kind == kind) return *dataset;
  throw Error(ErrorKind::kInternal, cat("trajectory: /", path, " is no dataset of this type"));
}

ElementType type_of(Kind kind) {
  switch (kind) {
    case Kind::kFloat64:
      return hdf5::float64_type();
    case Kind::kInt64:
      return hdf5::int64_type();
    case Kind::kUint64:
      return hdf5::uint64_type();
    case Kind::kInt32:
      return hdf5::int32_type();
    case Kind::kInt8:
      return hdf5::int8_type();
    case Kind::kUint8:
      return hdf5::uint8_type();
    case Kind::kText:
    case Kind::kDigest:
      break;
  }
  throw Error(ErrorKind::kInternal, "trajectory: text is no number");
}

About about(const Dataset& dataset) {
  About out{dataset.unit, dataset.description};
  for (const Extent& extent : dataset.extents) out.labels.emplace_back(extent.label);
  return out;
}

template <class T>
void write_numbers(const hdf5::Id& file, std::string_view path, Kind kind, std::span<const T> values) {
  const Dataset& dataset = known(path, {kind});
  std::vector<hsize_t> dims;
  hsize_t row = 1;
  for (const Extent& extent : dataset.extents) {
    dims.push_back(static_cast<hsize_t>(extent.fixed));
    if (extent.fixed > 0) row *= dims.back();
  }
  if (!dims.empty() && dims[0] == 0) dims[0] = values.size() / row;
  hsize_t count = 1;
  for (const hsize_t size : dims) count *= size;
  if (count != values.size())
    throw Error(ErrorKind::kInternal, cat("trajectory: /", path, " of ", values.size(), " values"));
  hdf5::write_array(file, dataset.path(), type_of(kind), dims, values.data(), about(dataset));
}

// The dimensions of a row; nullopt where one is not known.
std::optional<std::vector<std::int64_t>> row_shape(const Dataset& dataset, const Sizes& sizes) {
  std::vector<std::int64_t> shape;
  for (std::size_t d = 1; d < dataset.extents.size(); ++d) {
    const Extent& extent = dataset.extents[d];
    const auto found = sizes.find(extent.symbol);
    if (extent.fixed == 0 && found == sizes.end()) return std::nullopt;
    shape.push_back(extent.fixed > 0 ? extent.fixed : found->second);
  }
  return shape;
}

}  // namespace

hdf5::Table growing_table(const hdf5::Id& file, const char* group, const char* rows, const Sizes& sizes,
                          std::int64_t chunk_rows) {
  std::optional<hdf5::Table> table;
  const hdf5::Id digest = hdf5::digest_type();
  for (const Dataset& dataset : datasets()) {
    if (std::string_view(dataset.group) != group || dataset.extents.empty() ||
        std::string_view(dataset.extents[0].symbol) != rows)
      continue;
    const auto shape = row_shape(dataset, sizes);
    if (!shape) continue;
    if (!table) table.emplace(file, group, dataset.extents[0].label, chunk_rows);
    if (dataset.kind == Kind::kText) {
      table->add_text(dataset.name, dataset.description);
      continue;
    }
    const auto labels = about(dataset).labels;
    table->add_shaped(dataset.name,
                      dataset.kind == Kind::kDigest
                          ? ElementType{digest.get(), digest.get(), hdf5::kDigestChars}
                          : type_of(dataset.kind),
                      *shape, {labels.begin() + 1, labels.end()}, dataset.unit, dataset.description);
  }
  if (!table) throw Error(ErrorKind::kInternal, cat("trajectory: /", group, " has no columns"));
  return std::move(*table);
}

void write(const hdf5::Id& file, std::string_view path, std::span<const double> values) {
  write_numbers(file, path, Kind::kFloat64, values);
}

void write(const hdf5::Id& file, std::string_view path, std::span<const std::int64_t> values) {
  write_numbers(file, path, Kind::kInt64, values);
}

void write(const hdf5::Id& file, std::string_view path, std::span<const std::int32_t> values) {
  write_numbers(file, path, Kind::kInt32, values);
}

void write(const hdf5::Id& file, std::string_view path, std::span<const std::uint8_t> values) {
  write_numbers(file, path, Kind::kUint8, values);
}

void write(const hdf5::Id& file, std::string_view path, std::span<const std::string> texts) {
  const Dataset& dataset = known(path, {Kind::kText});
  hdf5::write_texts(file, dataset.path(), texts, about(dataset));
}

void write(const hdf5::Id& file, std::string_view path, std::string_view text) {
  const Dataset& dataset = known(path, {Kind::kText, Kind::kDigest});
  if (dataset.kind == Kind::kText) return hdf5::write_text(file, dataset.path(), text, about(dataset));
  const hdf5::Id type = hdf5::digest_type();
  const hsize_t count = text.size() / hdf5::kDigestChars;
  hdf5::write_array(file, dataset.path(), {type.get(), type.get(), hdf5::kDigestChars}, std::span(&count, 1),
                    text.data(), about(dataset));
}

}  // namespace tandem::format
