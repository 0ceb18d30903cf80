#include "io/clinical/json_members.hpp"

#include "io/text/line_reader.hpp"
#include "io/text/strict_json.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;
constexpr std::size_t kMaxMemberBytes = 64 << 20;
constexpr int kEndOfFile = -1;

bool is_blank(int c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

JsonMembers::JsonMembers(const std::filesystem::path& file)
    : name_(file.string()), in_(open_text_file(file)), buffer_(kBufferBytes) {}

int JsonMembers::peek() {
  if (at_ == filled_) {
    in_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    filled_ = static_cast<std::size_t>(in_.gcount());
    at_ = 0;
    if (in_.bad()) throw Error(ErrorKind::kInput, cat(name_, ": cannot be read behind line ", line_));
    if (filled_ == 0) return kEndOfFile;
  }
  return static_cast<unsigned char>(buffer_[at_]);
}

void JsonMembers::step() {
  ++column_;
  if (buffer_[at_++] == '\n') {
    ++line_;
    column_ = 1;
  }
}

void JsonMembers::skip_blanks() {
  while (is_blank(peek())) step();
}

void JsonMembers::fail(const std::string& what) const {
  throw Error(ErrorKind::kInput, cat(name_, " line ", line_, " column ", column_, ": ", what));
}

void JsonMembers::expect(char c, const char* where) {
  skip_blanks();
  const int found = peek();
  if (found == kEndOfFile)
    fail(cat("the file ends ", where, ", where `", c, "` should stand; is it complete?"));
  if (found != c) fail(cat("no `", c, "` ", where));
  step();
}

void JsonMembers::take(std::string& text) {
  if (text.size() == kMaxMemberBytes) fail(cat("a member longer than ", kMaxMemberBytes >> 20, " MiB"));
  text += buffer_[at_];
  step();
}

std::string JsonMembers::take_string() {
  std::string text;
  take(text);
  for (bool escaped = false;;) {
    const int c = peek();
    if (c == kEndOfFile) fail("the file ends inside a text; is it complete?");
    take(text);
    if (escaped)
      escaped = false;
    else if (c == '\\')
      escaped = true;
    else if (c == '"')
      return text;
  }
}

// Up to the end of the value by brackets and quotes; whether it is JSON is the parser's to say.
std::string JsonMembers::take_value() {
  std::string text;
  for (int depth = 0;;) {
    const int c = peek();
    if (c == kEndOfFile) fail("the file ends inside a row; is it complete?");
    if (c == '"') {
      text += take_string();
      if (depth == 0) return text;
      continue;
    }
    if (depth == 0 && (is_blank(c) || c == ',' || c == '}')) return text;
    take(text);
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return text;
  }
}

void JsonMembers::end() {
  state_ = State::kEnd;
  step();
  skip_blanks();
  if (peek() != kEndOfFile) fail("text behind the end of the object");
}

std::optional<JsonMembers::Member> JsonMembers::next() {
  if (state_ == State::kEnd) return std::nullopt;
  if (state_ == State::kBegin) {
    expect('{', "at the file's begin: one JSON object, a row under each key");
    skip_blanks();
    if (peek() == '}') {
      end();
      return std::nullopt;
    }
    state_ = State::kMembers;
  } else {
    skip_blanks();
    if (peek() == '}') {
      end();
      return std::nullopt;
    }
    expect(',', "between two rows");
    skip_blanks();
  }
  if (peek() != '"')
    fail(peek() == kEndOfFile ? "the file ends where a key should stand; is it complete?"
                              : "no `\"` where a key should begin");
  Member member{.key = {}, .value = nullptr, .line = line_};
  const std::int64_t key_column = column_;
  member.key = parse_strict_json(take_string(), name_, member.line, key_column).get_ref<const std::string&>();
  if (!keys_.insert(key_of(member.key)).second)
    throw Error(ErrorKind::kInput, cat(name_, " line ", member.line, " column ", key_column, ": the key ",
                                       nlohmann::json(member.key).dump(), " stands twice"));
  expect(':', "behind a key");
  skip_blanks();
  const std::int64_t line = line_, column = column_;
  member.value = parse_strict_json(take_value(), name_, line, column);
  return member;
}

}  // namespace tandem
