#include "io/text/split_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cctype>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

// Unicode's White_Space, and all the rest, as the inside of a class.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

constexpr std::size_t kJitStackBegin = 32 * 1024;
constexpr std::size_t kJitStackLimit = 64 * 1024 * 1024;

// Reads a pattern from left to right and copies what means the same in both languages.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string translate() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        bracket();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        repeat();
      } else if (c == '^' || c == '$') {
        refuse(std::string(1, c));  // Ruby's match at every line
      } else {
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::kInput, cat("split pattern: \"", what, "\" at offset ", at_, " is not supported"));
  }
  std::string_view rest() const { return pattern_.substr(at_); }
  void copy(std::size_t count) {
    out_ += rest().substr(0, count);
    at_ += count;
  }

  void escape(bool in_bracket) {
    if (at_ + 1 == pattern_.size()) refuse("\\");
    const char c = pattern_[at_ + 1];
    if (c == 's' || c == 'S') {
      const std::string_view list = c == 's' ? kSpace : kNotSpace;
      out_ += in_bracket ? std::string(list) : cat('[', list, ']');
      at_ += 2;
    } else if (c == 'p' || c == 'P') {
      property();
    } else if (c == 'r' || c == 'n' || c == 't' || c == 'f' || c == 'd' ||
               std::ispunct(static_cast<unsigned char>(c))) {
      copy(2);
    } else {
      refuse(std::string(rest().substr(0, 2)));
    }
  }

  // \p{L}, \P{Lu}: general categories; names of scripts and other properties differ.
  void property() {
    const auto end = rest().find('}');
    const std::string_view all = rest().substr(0, end == std::string_view::npos ? end : end + 1);
    const std::string_view name = all.size() > 4 ? all.substr(3, all.size() - 4) : std::string_view();
    constexpr std::string_view kCategories =
        " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp ";
    if (all.size() < 5 || all[2] != '{' || kCategories.find(cat(' ', name, ' ')) == std::string_view::npos)
      refuse(std::string(all.substr(0, 20)));
    copy(all.size());
  }

  void bracket() {
    copy(1);
    if (rest().starts_with('^')) copy(1);
    if (rest().starts_with(']')) refuse("[]");
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        escape(true);
      } else if (pattern_[at_] == '[' || rest().starts_with("&&")) {
        refuse(std::string(rest().substr(0, 2)));  // nested classes, intersections
      } else {
        copy(1);
      }
    }
    if (at_ == pattern_.size()) refuse("[ without ]");
    copy(1);
  }

  void group() {
    if (!rest().starts_with("(?")) return copy(1);
    for (const std::string_view known : {"(?i:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"})
      if (rest().starts_with(known)) return copy(known.size());
    refuse(std::string(rest().substr(0, 4)));
  }

  // {n}, {n,}, {n,m}; what may follow (?, +) does not mean the same in both languages.
  void repeat() {
    const auto end = rest().find('}');
    if (end == std::string_view::npos) refuse("{ without }");
    const std::string_view inside = rest().substr(1, end - 1);
    bool good = !inside.empty() && inside.front() != ',';
    int commas = 0;
    for (const char c : inside) {
      commas += c == ',';
      good = good && (c == ',' || std::isdigit(static_cast<unsigned char>(c)));
    }
    const std::string_view after = rest().substr(end + 1);
    if (!good || commas > 1 || after.starts_with('?') || after.starts_with('+'))
      refuse(std::string(rest().substr(0, end + 2)));
    copy(end + 1);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
};

std::string pcre2_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

}  // namespace

std::string translate_pattern(std::string_view pattern) { return Translator(pattern).translate(); }

struct SplitPattern::Code {
  std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> code;
};

SplitPattern::SplitPattern(std::string_view pattern) : code_(std::make_unique<Code>()) {
  const std::string translated = translate_pattern(pattern);
  const std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                  PCRE2_UTF | PCRE2_UCP, &error, &offset, context.get()));
  if (!code_->code)
    throw Error(ErrorKind::kInput,
                cat("split pattern: ", pcre2_text(error), " at offset ", offset, " of ", translated));
  // Without JIT (not built in on some machines) the interpreter gives the same matches.
  pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE);
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(code_->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty)
    throw Error(ErrorKind::kInput, "split pattern: may match the empty string; not supported");
}

SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

struct Splitter::Room {
  std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> match{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> context{
      pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>> stack{
      pcre2_jit_stack_create(kJitStackBegin, kJitStackLimit, nullptr)};
};

Splitter::Splitter() : room_(std::make_unique<Room>()) {
  pcre2_jit_stack_assign(room_->context.get(), nullptr, room_->stack.get());
}

Splitter::Splitter(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

void Splitter::split(const SplitPattern& pattern, std::string_view text, Span range,
                     std::vector<Span>& pieces) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data() + range.begin);
  const std::size_t size = range.end - range.begin;
  std::size_t at = 0;
  while (at < size) {
    const int found = pcre2_match(pattern.code_->code.get(), subject, size, at, PCRE2_NO_UTF_CHECK,
                                  room_->match.get(), room_->context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      throw Error(ErrorKind::kInput, cat("splitting a text of ", size,
                                         " bytes by the tokenizer's pattern: ", pcre2_text(found)));
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(room_->match.get());
    // A look-behind could place a match's begin before `at` only with \K, which is refused.
    if (match[0] > at) pieces.push_back({range.begin + at, range.begin + match[0]});
    pieces.push_back({range.begin + match[0], range.begin + match[1]});
    at = match[1];
  }
  if (at < size) pieces.push_back({range.begin + at, range.end});
}

}  // namespace tandem
