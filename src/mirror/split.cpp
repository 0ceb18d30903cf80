#include "src/mirror/split.hpp"

#include <stdexcept>

#include "src/base/text.hpp"
#include "src/mirror/unicode.hpp"

namespace tandem::mirror {
namespace {

// The classes that the patterns distinguish. Line ends are spaces too.
enum class Class { kLetter, kNumber, kLineEnd, kSpace, kOther, kEnd };

struct Scanner {
  std::vector<CodePoint> points;
  std::vector<Class> classes;  // of each point; kEnd for the last

  explicit Scanner(std::string_view text) : points(code_points(text)) {
    for (std::size_t i = 0; i + 1 < points.size(); ++i) classes.push_back(class_of(points[i].value));
    classes.push_back(Class::kEnd);
  }

  static Class class_of(char32_t c) {
    if (c == '\r' || c == '\n') return Class::kLineEnd;
    if (is_space(c)) return Class::kSpace;
    if (is_letter(c)) return Class::kLetter;
    if (is_number(c)) return Class::kNumber;
    return Class::kOther;
  }

  std::size_t size() const { return points.size() - 1; }
  char32_t at(std::size_t i) const { return points[i].value; }
  bool is(std::size_t i, Class c) const { return classes[i] == c; }
  bool is_blank(std::size_t i) const { return is(i, Class::kSpace) || is(i, Class::kLineEnd); }
  std::size_t run(std::size_t i, Class c) const {
    while (is(i, c)) ++i;
    return i;
  }

  // Each returns where its alternative ends, or `i` where it does not match at i.

  // 's|'t|'re|'ve|'m|'ll|'d; caseless in Unicode, where the long s is an s.
  std::size_t contraction(std::size_t i, bool caseless) const {
    if (at(i) != '\'') return i;
    const auto letter = [&](std::size_t j) -> char32_t {
      if (j >= size()) return 0;
      const char32_t c = at(j);
      if (caseless && c == 0x17F) return 's';
      return caseless && c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
    };
    const char32_t a = letter(i + 1), b = a ? letter(i + 2) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    return i;
  }
  // ` ?` and one or more of a class
  std::size_t after_blank(std::size_t i, Class c) const {
    const std::size_t first = at(i) == ' ' ? i + 1 : i;
    const std::size_t end = run(first, c);
    return end > first ? end : i;
  }
  // [^\r\n\p{L}\p{N}]?\p{L}+
  std::size_t word(std::size_t i) const {
    const bool led = is(i, Class::kSpace) || is(i, Class::kOther);
    const std::size_t first = led ? i + 1 : i;
    const std::size_t end = run(first, Class::kLetter);
    return end > first ? end : i;
  }
  // \p{N}{1,most}
  std::size_t digits(std::size_t i, std::size_t most) const {
    std::size_t end = i;
    while (end - i < most && is(end, Class::kNumber)) ++end;
    return end;
  }
  //  ?[^\s\p{L}\p{N}]+[\r\n]*
  std::size_t symbols(std::size_t i) const {
    const std::size_t end = after_blank(i, Class::kOther);
    return end > i ? run(end, Class::kLineEnd) : i;
  }
  // \s*[\r\n]+: up to the last line end of the blanks
  std::size_t lines(std::size_t i) const {
    std::size_t end = i;
    for (std::size_t j = i; is_blank(j); ++j)
      if (is(j, Class::kLineEnd)) end = j + 1;
    return end;
  }
  // \s+(?!\S)|\s+: blanks, without the last one where something follows, unless it is the only one
  std::size_t blanks(std::size_t i) const {
    std::size_t end = i;
    while (is_blank(end)) ++end;
    return end < size() && end - i > 1 ? end - 1 : end;
  }

  std::size_t gpt2(std::size_t i) const {
    if (const auto end = contraction(i, false); end > i) return end;
    for (const Class c : {Class::kLetter, Class::kNumber, Class::kOther})
      if (const auto end = after_blank(i, c); end > i) return end;
    return blanks(i);
  }
  std::size_t qwen2(std::size_t i, std::size_t most_digits) const {
    if (const auto end = contraction(i, true); end > i) return end;
    if (const auto end = word(i); end > i) return end;
    if (const auto end = digits(i, most_digits); end > i) return end;
    if (const auto end = symbols(i); end > i) return end;
    if (const auto end = lines(i); end > i) return end;
    return blanks(i);
  }
  std::size_t single_numbers(std::size_t i) const {
    if (is(i, Class::kNumber)) return i + 1;
    while (i < size() && !is(i, Class::kNumber)) ++i;
    return i;
  }

  std::size_t next(Split how, std::size_t i) const {
    switch (how) {
      case Split::kGpt2:
        return gpt2(i);
      case Split::kQwen2:
        return qwen2(i, 1);
      case Split::kLlama3:
        return qwen2(i, 3);
      case Split::kDigits:
        break;
    }
    return single_numbers(i);
  }
};

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Split read_pattern(const nlohmann::json& part) {
  if (part.value("behavior", "") != "Isolated" || part.value("invert", false))
    throw std::invalid_argument("a Split that is not isolating is not supported");
  const nlohmann::json& pattern = part.at("pattern");
  const std::string regex = pattern.contains("Regex") ? pattern.at("Regex").get<std::string>() : "";
  if (regex == kGpt2Pattern) return Split::kGpt2;
  if (regex == kQwen2Pattern) return Split::kQwen2;
  if (regex == kLlama3Pattern) return Split::kLlama3;
  throw std::invalid_argument(cat("the split pattern ", pattern.dump(), " is not known"));
}

void read_part(const nlohmann::json& part, std::vector<Split>& splits, bool& byte_level) {
  const std::string type = part.at("type");
  if (byte_level)
    throw std::invalid_argument(cat("the pre-tokenizer ", type, " after ByteLevel is not supported"));
  if (type == "Sequence") {
    for (const auto& inner : part.at("pretokenizers")) read_part(inner, splits, byte_level);
  } else if (type == "Split") {
    splits.push_back(read_pattern(part));
  } else if (type == "Digits") {
    if (!part.value("individual_digits", false))
      throw std::invalid_argument("Digits that keeps numbers together is not supported");
    splits.push_back(Split::kDigits);
  } else if (type == "ByteLevel") {
    if (part.value("add_prefix_space", true))
      throw std::invalid_argument("add_prefix_space is not supported");
    if (part.value("use_regex", true)) splits.push_back(Split::kGpt2);
    byte_level = true;
  } else {
    throw std::invalid_argument(cat("the pre-tokenizer ", type, " is not known"));
  }
}

}  // namespace

std::vector<std::string_view> split(Split how, std::string_view text) {
  const Scanner scanner(text);
  std::vector<std::string_view> pieces;
  for (std::size_t i = 0; i < scanner.size();) {
    const std::size_t end = scanner.next(how, i);
    const std::size_t first = scanner.points[i].begin;
    pieces.push_back(text.substr(first, scanner.points[end].begin - first));
    i = end;
  }
  return pieces;
}

std::vector<Split> read_splits(const nlohmann::json& pre_tokenizer) {
  std::vector<Split> splits;
  bool byte_level = false;
  if (!pre_tokenizer.is_null()) read_part(pre_tokenizer, splits, byte_level);
  if (!byte_level) throw std::invalid_argument("a pre-tokenizer without ByteLevel is not supported");
  return splits;
}

}  // namespace tandem::mirror
