#include "io/format/findings.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include "io/text/utf8.hpp"
#include "src/base/text.hpp"

namespace tandem::format {

namespace {

// A file's own text may be of any length.
std::string shortened(const std::string& text) {
  constexpr std::size_t kMost = 300;
  return text.size() <= kMost ? text : replace_invalid_utf8(text.substr(0, kMost)) + "...";
}

}  // namespace

std::string Problem::line() const {
  std::string text = where;
  if (row >= 0) text += cat(", row ", row);
  if (!text.empty()) text += ": ";
  text += shortened(found);
  if (!expected.empty()) text += ", expected " + shortened(expected);
  if (more > 0) text += cat(" (and ", more, more == kMostCounted ? " or more)" : " more)");
  return printable_line(text);
}

std::string digits(double value) {
  if (std::isnan(value)) return "NaN";
  std::array<char, 32> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

void Findings::add(const Error& error, const std::string& file) {
  std::string text = error.what();
  if (const std::string prefix = printable_line(file) + ": "; text.starts_with(prefix))
    text.erase(0, prefix.size());
  const std::size_t colon = text.find(": ");
  const bool names_object = text.starts_with('/') || text.starts_with("attribute ");
  if (!names_object || colon == text.npos) return add("", text, "");
  add(text.substr(0, colon), text.substr(colon + 2), "");
}

}  // namespace tandem::format
