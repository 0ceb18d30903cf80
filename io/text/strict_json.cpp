#include "io/text/strict_json.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "io/text/utf8.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDepth = 100;

// Tells how far the parser has read, which its events do not.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** seen) : at_(at), seen_(seen) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** seen_;
};

// Builds the value; refuses what the library would let pass.
class Builder {
 public:
  Builder(std::string_view text, const char** seen) : text_(text), seen_(seen) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(json::object()); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    const auto [slot, added] = stack_.back()->get_ref<json::object_t&>().emplace(name, nullptr);
    if (!added) return fail(key_begin(), cat("the key ", json(name).dump(), " stands twice in one object"));
    slot_ = &slot->second;
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const json::exception& error) {
    const std::string what = error.what();
    const auto colon = what.find(": ");
    return fail(byte == 0 ? 0 : byte - 1, colon == std::string::npos ? what : what.substr(colon + 2));
  }

  json& value() { return root_; }
  std::size_t error_at() const { return error_at_; }
  const std::string& error() const { return error_; }

 private:
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  json* place(json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (stack_.back()->is_array()) {
      auto& array = stack_.back()->get_ref<json::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    *slot_ = std::move(value);
    return slot_;
  }
  bool open(json value) {
    if (stack_.size() == kMaxDepth)
      return fail(consumed() - 1, cat("nested deeper than ", kMaxDepth, " levels"));
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }
  bool fail(std::size_t at, std::string what) {
    error_at_ = at;
    error_ = std::move(what);
    return false;
  }
  std::size_t consumed() const { return static_cast<std::size_t>(*seen_ - text_.data()); }
  // The parser has just read the key's closing quote; escapes make the key's length in the text unknown.
  std::size_t key_begin() const {
    std::size_t at = consumed() - 1;
    while (at > 0) {
      --at;
      if (text_[at] != '"') continue;
      std::size_t backslashes = 0;
      while (backslashes < at && text_[at - 1 - backslashes] == '\\') ++backslashes;
      if (backslashes % 2 == 0) break;
    }
    return at;
  }

  std::string_view text_;
  const char** seen_;
  json root_;
  std::vector<json*> stack_;
  json* slot_ = nullptr;
  std::size_t error_at_ = 0;
  std::string error_;
};

struct Place {
  const std::string& file;
  std::int64_t line, column;
};

[[noreturn]] void fail_at(std::string_view text, std::size_t at, const Place& place,
                          const std::string& what) {
  at = std::min(at, text.size());
  const std::string_view before = text.substr(0, at);
  const auto line = place.line + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const std::int64_t column = newline == std::string_view::npos ? place.column + static_cast<std::int64_t>(at)
                                                                : static_cast<std::int64_t>(at - newline);
  throw Error(ErrorKind::kInput, cat(place.file, " line ", line, " column ", column, ": ", what));
}

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, const std::string& file, std::int64_t line,
                                 std::int64_t column) {
  const Place place{file, line, column};
  if (const auto bad = first_invalid_utf8(text)) fail_at(text, *bad, place, "not valid UTF-8");
  // The library would skip it, on every line.
  if (text.starts_with("\xEF\xBB\xBF")) fail_at(text, 0, place, "begins with a byte order mark (U+FEFF)");
  const char* seen = text.data();
  const char* end = text.data() + text.size();
  Builder builder(text, &seen);
  const bool good =
      json::sax_parse(CountingIterator(text.data(), &seen), CountingIterator(end, &seen), &builder);
  if (!good) fail_at(text, builder.error_at(), place, without_controls(builder.error()));
  return std::move(builder.value());
}

std::string without_controls(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return text;
}

nlohmann::json read_strict_json(const std::filesystem::path& file) {
  return parse_strict_json(read_text_file(file), file.string());
}

std::string read_text_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file))
    throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be opened for reading"));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be read to its end"));
  return text;
}

}  // namespace tandem
