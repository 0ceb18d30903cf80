// How much memory the mirror takes beside the rank that it looks at, foretold from sizes.
#pragma once

#include <cstdint>

namespace tandem {

struct MirrorSizes {
  std::int64_t adapter_elements = 0, layers = 0, hidden = 0, intermediate = 0, heads = 0;
  std::int64_t qkv = 0;               // outputs of the query, key and value projections together
  std::int64_t longest_sample = 0;    // tokens
  std::int64_t model_file_bytes = 0;  // mapped, and widened one matrix at a time
  bool audits = false, free_run = false, snapshots = false;
};

std::int64_t mirror_memory_bytes(const MirrorSizes& sizes);

}  // namespace tandem
