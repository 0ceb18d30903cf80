#pragma once

#include <string>

namespace tandem {

// One line on stderr, whole even where several ranks write at once: who and where, then the text.
void print_error(const std::string& text);

// The same line without its end, not printed.
std::string error_line(const std::string& text);

}  // namespace tandem
