// What every text of a clinical source goes through before it is shown or compared.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// `text` must be valid UTF-8.
// - Line ends (CR LF, CR, VT, FF, U+0085, U+2028, U+2029) become LF; other control characters and invisible
//   signs (soft hyphen, zero width space and no-break space, word joiner, direction marks) vanish; joiners
//   (U+200C, U+200D) stay.
// - Tabs and all kinds of spaces become one space for a run; none stands at a line's begin or end; more than
//   one blank line becomes one; none stands at the text's begin or end.
// - Unicode normalisation form C.
// Applied twice it changes nothing more.
std::string clean_text(std::string_view text);

}  // namespace tandem
