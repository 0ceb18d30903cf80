#include "io/text/added_tokens.hpp"

#include <algorithm>

namespace tandem {

void AddedTokens::add(std::string content, std::int32_t id) {
  if (first_bytes_.find(content.front()) == std::string::npos) first_bytes_ += content.front();
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), content,
                       [](const Entry& entry, const std::string& key) { return entry.content < key; });
  entries_.insert(place, {std::move(content), id});
}

std::optional<std::int32_t> AddedTokens::id_of(std::string_view content) const {
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), content,
                       [](const Entry& entry, std::string_view key) { return entry.content < key; });
  if (place == entries_.end() || place->content != content) return std::nullopt;
  return place->id;
}

// Narrows the range of entries that share text[at, at + depth) byte by byte; the shortest stands first.
std::optional<AddedTokens::Match> AddedTokens::longest_at(std::string_view text, std::size_t at) const {
  std::optional<Match> longest;
  auto begin = entries_.begin();
  auto end = entries_.end();
  for (std::size_t depth = 0; begin != end; ++depth) {
    if (begin->content.size() == depth) {
      if (depth > 0) longest = Match{{at, at + depth}, begin->id};
      ++begin;
    }
    if (at + depth == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[at + depth]);
    const auto byte_of = [depth](const Entry& entry) {
      return static_cast<unsigned char>(entry.content[depth]);
    };
    begin = std::partition_point(begin, end, [&](const Entry& entry) { return byte_of(entry) < byte; });
    end = std::partition_point(begin, end, [&](const Entry& entry) { return byte_of(entry) == byte; });
  }
  return longest;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, std::size_t from) const {
  for (std::size_t at = text.find_first_of(first_bytes_, from); at != std::string_view::npos;
       at = text.find_first_of(first_bytes_, at + 1))
    if (const auto match = longest_at(text, at)) return match;
  return std::nullopt;
}

}  // namespace tandem
