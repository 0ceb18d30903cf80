// A half-open range [begin, end) of byte offsets in a text.
#pragma once

#include <cstddef>

namespace tandem {

struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const Span&) const = default;
};

}  // namespace tandem
