// The datasets of a trajectory file (io/FORMAT.md), each once: what the writer names, types and describes
// them by, and what a file is held to. A test holds the page and this table to one another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::format {

enum class Kind {
  kFloat64,
  kInt64,
  kUint64,
  kInt32,
  kInt8,
  kUint8,
  kText,    // UTF-8 of any length
  kDigest,  // 64 lower-case hexadecimal characters
};
// As io/FORMAT.md writes it: "float64", ..., "text", "digest".
const char* name_of(Kind kind);

// One dimension. Datasets with the same symbol have the same size there.
struct Extent {
  const char* symbol;      // "U", "S+1", "8", ...
  const char* label;       // what one element along it is; becomes the dimension label
  std::int64_t fixed = 0;  // 0: the file's own
};

struct Dataset {
  const char* group;  // "update", "load/memory"
  const char* name;
  Kind kind;
  std::vector<Extent> extents;  // the rows first; empty: one value
  const char* unit;
  const char* description;
  bool optional = false;  // may be absent where its group is there

  std::string path() const;   // "update/step"
  std::string shape() const;  // "[U, G] int64", as io/FORMAT.md writes it
};

// Group after group; columns of a group in the order in which rows are written.
const std::vector<Dataset>& datasets();
// nullptr: not in the table.
const Dataset* find(std::string_view path);
// The groups, parents first.
std::vector<std::string> groups();

// Values of /audit/{scope, verdict} in words, as their attribute `names` has them: "batch,microbatch".
std::string scope_names();
std::string verdict_names();

// The parts of a snapshot file, each a group with one matrix per adapter tensor.
inline constexpr const char* kSnapshotParts[] = {"adapter", "m", "v", "gradient"};

}  // namespace tandem::format
