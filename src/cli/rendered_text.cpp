#include "src/cli/rendered_text.hpp"

#include "io/text/utf8.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

constexpr const char* kScored = "\x1b[32m";
constexpr const char* kControl = "\x1b[4m";
constexpr const char* kPlain = "\x1b[0m";
constexpr const char* kOpen = "\u27E6";
constexpr const char* kClose = "\u27E7";

std::string hex_byte(char byte) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  return {'\\', 'x', kDigits[value >> 4], kDigits[value & 15]};
}

// U+0000 to U+001F, U+007F and the C1 controls, which terminals obey too.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return character.size() == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

bool is_added(std::int64_t id, std::string_view bytes, const Tokenizer& tokenizer) {
  return !bytes.empty() && tokenizer.added_token(bytes) == id;
}

std::string_view bytes_of(std::int64_t id, const Tokenizer* tokenizer) {
  return tokenizer && id >= 0 && id < tokenizer->size() ? tokenizer->bytes(static_cast<std::int32_t>(id))
                                                        : std::string_view();
}

}  // namespace

std::optional<Tokenizer> tokenizer_of(const std::filesystem::path& model_dir) {
  if (!std::filesystem::exists(model_dir / "tokenizer.json")) return std::nullopt;
  return Tokenizer::load(model_dir);
}

std::string sample_heading(std::int64_t index, const SampleSet& samples, std::int64_t i) {
  return cat("sample ", index, ", line ", samples.line(i), ": ", samples.length(i), " tokens, ",
             samples.n_scored(i), " scored, digest ", samples.digest(i));
}

std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t good = first_invalid_utf8(bytes).value_or(bytes.size());
    for (std::size_t at = 0; at < good;) {
      const std::string_view character = bytes.substr(at, utf8_length(bytes[at]));
      if (character != "\n" && character != "\t" && is_control(character))
        for (const char byte : character) text += hex_byte(byte);
      else
        text += character;
      at += character.size();
    }
    bytes.remove_prefix(good);
    if (bytes.empty()) break;
    text += hex_byte(bytes.front());
    bytes.remove_prefix(1);
  }
  return text;
}

std::string sample_text(const SampleSet& samples, std::int64_t i, const Tokenizer* tokenizer, bool colour) {
  enum class Kind { kText, kControl, kUnknown };
  const auto ids = samples.ids(i);
  const auto marks = samples.targets(i);
  std::string text, run;
  bool scored = false;
  Kind kind = Kind::kText;
  // Tokens of one kind are written together: a character may be spread over several of them.
  const auto flush = [&] {
    if (run.empty()) return;
    if (colour && scored) text += kScored;
    if (colour && kind == Kind::kControl) text += kControl;
    text += printable(run);
    if (colour && (scored || kind == Kind::kControl)) text += kPlain;
    run.clear();
  };
  for (std::size_t p = 0; p < ids.size(); ++p) {
    const std::string_view bytes = bytes_of(ids[p], tokenizer);
    const bool is_scored = p > 0 && marks[p] != 0;
    const Kind is = bytes.empty()                         ? Kind::kUnknown
                    : is_added(ids[p], bytes, *tokenizer) ? Kind::kControl
                                                          : Kind::kText;
    if (is_scored != scored || is != kind) flush();
    if (!colour && is_scored != scored) text += is_scored ? kOpen : kClose;
    scored = is_scored;
    kind = is;
    run += bytes.empty() ? cat("<", ids[p], ">") : std::string(bytes);
  }
  flush();
  if (!colour && scored) text += kClose;
  return text;
}

std::string quoted_token(std::int64_t id, const Tokenizer* tokenizer) {
  const std::string_view bytes = bytes_of(id, tokenizer);
  if (bytes.empty()) return cat("<", id, ">");
  std::string text = "\"";
  for (const char c : printable(bytes)) {
    if (c == '\n')
      text += "\\n";
    else if (c == '\t')
      text += "\\t";
    else
      text += c;
  }
  return text + "\"";
}

}  // namespace tandem
