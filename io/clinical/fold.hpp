// When two texts count as the same: folded, they are equal.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

// Unicode's compatibility decomposition (NFKD) and case folding, and of that the letters and digits (general
// categories L and N) alone: case, white space, punctuation, signs and accents make no difference. `text`
// must be valid UTF-8. Idempotent.
std::string fold_text(std::string_view text);

// The same for answers, where signs matter ("> 5" or "< 5"): symbols (category S) stay too.
std::string fold_answer(std::string_view text);

// The first 128 bits of SHA-256, for sets of texts.
struct TextKey {
  std::uint64_t high = 0, low = 0;
  auto operator<=>(const TextKey&) const = default;
};
TextKey key_of(std::string_view text);

struct TextKeyHash {
  std::size_t operator()(const TextKey& key) const { return static_cast<std::size_t>(key.low); }
};

// In [0, 1): the first 53 bits of SHA-256 of the folded text. A row is held out where that of its question
// lies below the share, so its side depends on nothing else.
double split_point(const TextKey& folded_question);

}  // namespace tandem
