// The visible alphabet in which byte-level vocabularies spell their 256 bytes (Radford et al. 2019, GPT-2):
// printable Latin-1 stands for itself, the 68 others are U+0100 upwards in byte order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

std::string to_byte_alphabet(std::string_view bytes);
// None where a character outside the alphabet occurs. `spelled` must be valid UTF-8.
std::optional<std::string> from_byte_alphabet(std::string_view spelled);

}  // namespace tandem
