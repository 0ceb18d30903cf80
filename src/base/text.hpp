// Small text helpers; GCC 12 has no <format>.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

namespace tandem {

// cat("layer ", 3, ": ", 0.5) == "layer 3: 0.5"
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// counted(1, "update") == "1 update", counted(2, "update") == "2 updates"
template <class Number>
std::string counted(Number n, const char* what) {
  return cat(n, " ", what, n == 1 ? "" : "s");
}

// joined({3, 17}, ", ") == "3, 17"
template <class Range>
std::string joined(const Range& parts, const char* between = ", ") {
  std::ostringstream out;
  const char* before = "";
  for (const auto& part : parts) {
    out << before << part;
    before = between;
  }
  return std::move(out).str();
}

// The number that a file's or link's name is: one that std::to_string writes so, 0 or more.
inline std::optional<std::int64_t> number_in_name(const std::string& name) {
  std::int64_t value = -1;
  const char* const end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data(), end, value);
  if (error != std::errc() || last != end || value < 0 || name != std::to_string(value)) return std::nullopt;
  return value;
}

// One line that a terminal shows and a C string carries: line ends become blanks, other control characters
// \xNN.
inline std::string printable_line(const std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      line += ' ';
    else if (byte < 0x20 || byte == 0x7f)
      line += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    else
      line += c;
  }
  return line;
}

}  // namespace tandem
