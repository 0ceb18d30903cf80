// The regular expressions by which tokenizers split text, written for Oniguruma (Ruby syntax) and run by
// PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/span.hpp"

namespace tandem {

// `pattern` for PCRE2: \s and \S become explicit classes of Unicode's White_Space (PCRE2 counts U+180E too).
// Throws kInput naming the construct where the two languages differ or may differ.
std::string translate_pattern(std::string_view pattern);

// Immutable and shared by threads.
class SplitPattern {
 public:
  // Throws kInput where the pattern does not compile, or could match the empty string.
  explicit SplitPattern(std::string_view pattern);
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

 private:
  friend class Splitter;
  struct Code;
  std::unique_ptr<Code> code_;
};

// One thread's room for matching.
class Splitter {
 public:
  Splitter();
  Splitter(Splitter&&) noexcept;
  ~Splitter();

  // Appends to `pieces` what lies in `range` of `text`: each match a piece and each stretch between matches
  // one
  // ("Isolated"). The pattern sees nothing outside the range. Throws kInput at the matcher's limits.
  void split(const SplitPattern& pattern, std::string_view text, Span range, std::vector<Span>& pieces);

 private:
  struct Room;
  std::unique_ptr<Room> room_;
};

}  // namespace tandem
