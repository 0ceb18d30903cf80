// Added tokens ("<|im_end|>"): found in a text from left to right, the longest one first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/span.hpp"

namespace tandem {

class AddedTokens {
 public:
  struct Match {
    Span span;
    std::int32_t id;
  };

  // Content must not be empty, nor known already.
  void add(std::string content, std::int32_t id);
  std::optional<std::int32_t> id_of(std::string_view content) const;
  std::optional<Match> longest_at(std::string_view text, std::size_t at) const;
  // First match that begins at `from` or after it.
  std::optional<Match> find(std::string_view text, std::size_t from) const;
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    std::string content;
    std::int32_t id;
  };
  std::vector<Entry> entries_;  // sorted by content, so a common prefix is a range
  std::string first_bytes_;     // those with which an entry begins
};

}  // namespace tandem
