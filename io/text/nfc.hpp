// Unicode normalisation form C as Hugging Face tokenizers does it, with the way back to the text as given.
// Its tables are older than utf8proc's, whose they are here but for the code points of nfc_unknown.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct Normalized {
  std::string text;
  // Offset in the text as given of each byte of `text`; empty where nothing changed (then offset = position).
  std::vector<std::size_t> origin;

  std::size_t origin_of(std::size_t at) const { return origin.empty() ? at : origin[at]; }
};

// `text` must be valid UTF-8. A starter and its marks are normalised together; what NFC changes in them
// counts as beginning at the first changed byte.
Normalized normalize_nfc(std::string_view text);

}  // namespace tandem
