// Writes what io/format/table.hpp describes: names, types, units, descriptions and labels come from there.
// For io/trajectory.cpp. Errors: kInternal for a path that the table lacks or values of another type.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/format/table.hpp"
#include "io/hdf5.hpp"

namespace tandem::format {

// Sizes of the dimensions that are the file's own, by symbol.
using Sizes = std::map<std::string, std::int64_t>;

// The columns of `group` whose rows are `rows` ("U") and whose other dimensions are fixed or in `sizes`; in
// the table's order, which is that of a row's values.
hdf5::Table growing_table(const hdf5::Id& file, const char* group, const char* rows, const Sizes& sizes,
                          std::int64_t chunk_rows);

// A whole dataset at once; its group must exist.
void write(const hdf5::Id& file, std::string_view path, std::span<const double> values);
void write(const hdf5::Id& file, std::string_view path, std::span<const std::int64_t> values);
void write(const hdf5::Id& file, std::string_view path, std::span<const std::int32_t> values);
void write(const hdf5::Id& file, std::string_view path, std::span<const std::uint8_t> values);
void write(const hdf5::Id& file, std::string_view path, std::span<const std::string> texts);
// One text or, for digests, one after the other.
void write(const hdf5::Id& file, std::string_view path, std::string_view text);

}  // namespace tandem::format
