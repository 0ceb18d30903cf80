// What a tokenizer.json comes to once read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/text/added_tokens.hpp"
#include "io/text/bpe.hpp"
#include "io/text/split_pattern.hpp"
#include "io/text/tokenizer.hpp"

namespace tandem {

// Lets a map of strings be searched by a view.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

struct Tokenizer::Parts {
  std::string name;        // of the file, for errors
  AddedTokens raw;         // cut out of the text as given
  AddedTokens normalized;  // cut out after normalising (`"normalized": true`)
  AddedTokens all;         // both
  bool nfc = false;
  std::vector<SplitPattern> splits;  // one after the other
  Bpe bpe;
  // ignore_merges: a piece that is a vocabulary entry as a whole is that token. Empty otherwise.
  std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>> whole_pieces;
  std::vector<std::string> bytes;  // of each id
  std::vector<bool> special;       // of each id: added tokens that are no text for people
};

}  // namespace tandem
