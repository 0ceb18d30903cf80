#include "io/clinical/answer_letter.hpp"

#include <initializer_list>

namespace tandem {
namespace {

constexpr std::size_t kOptions = 5;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_high(char c) { return static_cast<unsigned char>(c) >= 0x80; }
char lower(char c) { return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c; }

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  std::size_t at() const { return at_; }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void step() { ++at_; }

  // One of `words`, whatever its case; the longest must come first.
  bool take(std::initializer_list<std::string_view> words) {
    for (const std::string_view word : words) {
      if (text_.size() - at_ < word.size()) continue;
      bool same = true;
      for (std::size_t i = 0; i < word.size(); ++i) same = same && lower(text_[at_ + i]) == word[i];
      if (same) {
        at_ += word.size();
        return true;
      }
    }
    return false;
  }
  void skip(std::initializer_list<std::string_view> words) {
    while (take(words)) {
    }
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

// The letter must not be a word's beginning.
bool stands_alone(const Cursor& cursor) {
  const char next = cursor.peek(1);
  const bool glued =
      is_upper(cursor.peek()) && is_upper(next) && is_lower(cursor.peek(2)) && is_lower(cursor.peek(3));
  // "a patient ..." and "A patient ..." are sentences; "D All" is an announcement.
  if (next == ' ') {
    const char after = cursor.peek(2);
    const bool sign = after == '(' || after == '.' || after == ':' || (after == 'i' && cursor.peek(3) == '.');
    return sign || (is_upper(cursor.peek()) && is_upper(after));
  }
  // "B-cell", "C3": names. "c- Pyruvate", "C-": announcements.
  if (next == '-') return cursor.peek(2) == ' ' || cursor.peek(2) == '\0';
  return glued ||
         !(is_lower(next) || is_upper(next) || is_digit(next) || is_high(next) || next == '+' || next == '/');
}

// False, and the cursor anywhere, where the text begins otherwise.
bool take_announcing_words(Cursor& cursor) {
  cursor.skip({" ", "*", "\"", "(", "[", "{"});
  if (!cursor.take({"the correct answer", "correct answer", "correct option", "the answer", "answer", "ans"}))
    return false;
  if (is_lower(lower(cursor.peek()))) return false;  // "answers", "Anseriform"
  cursor.skip({" ", ".", ":", "-", "=", "\xE2\x80\x93"});
  if (cursor.take({"is "})) cursor.skip({" ", ":", "-"});
  cursor.skip({"option "});
  return true;
}

}  // namespace

std::size_t announcing_words(std::string_view text) {
  Cursor cursor(text);
  return take_announcing_words(cursor) ? cursor.at() : 0;
}

std::optional<AnnouncedOption> announced_option(std::string_view text) {
  Cursor cursor(text);
  if (!take_announcing_words(cursor)) return std::nullopt;
  const bool quoted = cursor.take({"'", "\"", "(", "[", "\xE2\x80\x98", "\xE2\x80\x9C"});
  const std::size_t option = static_cast<std::size_t>(lower(cursor.peek()) - 'a');
  if (option >= kOptions) return std::nullopt;
  if (!quoted && !stands_alone(cursor)) return std::nullopt;
  cursor.step();
  if (quoted && !cursor.take({"'", "\"", ")", "]", "\xE2\x80\x99", "\xE2\x80\x9D"})) return std::nullopt;
  Cursor rest = cursor;
  rest.skip({" "});
  if (rest.take({"&", "+", "and ", ",'", ", '", ",\"", ", \""})) return std::nullopt;  // a list of options
  if (rest.take({","}) && rest.peek() == ' ' && !is_lower(lower(rest.peek(2)))) return std::nullopt;
  cursor.skip({" "});
  cursor.take({")", "]"});
  // A minus sign may belong to what follows: "C. -2".
  if (!cursor.take({"- "})) cursor.skip({".", ":", ","});
  cursor.skip({" "});
  if (cursor.take({"i.e.", "i.e", "ie."})) cursor.skip({" ", ",", ".", ":"});
  return AnnouncedOption{option, cursor.at()};
}

}  // namespace tandem
