// Half-open ranges [begin, end) of byte offsets in a text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace tandem {

struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const Span&) const = default;
};

// True where `range` and one of `spans` (sorted, not overlapping) have a byte in common.
inline bool touches(Span range, std::span<const Span> spans) {
  const auto place =
      std::partition_point(spans.begin(), spans.end(), [&](Span s) { return s.end <= range.begin; });
  return place != spans.end() && place->begin < range.end;
}

}  // namespace tandem
