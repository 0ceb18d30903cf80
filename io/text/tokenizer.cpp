#include "io/text/tokenizer.hpp"

#include <algorithm>
#include <utility>

#include "io/text/nfc.hpp"
#include "io/text/tokenizer_parts.hpp"
#include "io/text/utf8.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(parts_->bytes.size()); }

std::string_view Tokenizer::bytes(std::int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return parts_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const auto index = static_cast<std::size_t>(id);
    if (id >= 0 && index < parts_->special.size() && parts_->special[index]) continue;
    text += bytes(id);
  }
  return replace_invalid_utf8(text);
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view content) const {
  return parts_->all.id_of(content);
}

std::vector<Span> Tokenizer::find_added(std::string_view text) const {
  std::vector<Span> found;
  for (auto match = parts_->all.find(text, 0); match; match = parts_->all.find(text, match->span.end))
    found.push_back(match->span);
  return found;
}

struct Encoder::Scratch {
  Splitter splitter;
  Bpe::Room room;
  std::vector<Span> pieces, finer;
};

Encoder::Encoder(const Tokenizer& tokenizer)
    : parts_(tokenizer.parts()), scratch_(std::make_unique<Scratch>()) {}
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder::~Encoder() = default;

Encoding Encoder::encode(std::string_view text, std::span<const Span> plain) {
  if (const auto bad = first_invalid_utf8(text))
    throw Error(ErrorKind::kInput, cat("text is not valid UTF-8 at byte offset ", *bad));
  Encoding result;

  // Calls stretch(begin, end) for what lies between the added tokens of `known`, and adds their ids.
  // origin(i): offset of byte i of `where` in the text as given.
  const auto cut_out = [&](const AddedTokens& known, std::string_view where, auto&& origin, auto&& stretch) {
    std::size_t done = 0;
    std::size_t from = 0;
    while (const auto match = known.find(where, from)) {
      const Span given{origin(match->span.begin), origin(match->span.end - 1) + 1};
      if (touches(given, plain)) {
        from = match->span.begin + 1;
        continue;
      }
      stretch(done, match->span.begin);
      result.ids.push_back(match->id);
      result.first_byte.push_back(given.begin);
      done = from = match->span.end;
    }
    stretch(done, where.size());
  };

  const auto encode_normalized = [&](std::string_view where, auto&& origin, std::size_t begin,
                                     std::size_t end) {
    auto& [splitter, room, pieces, finer] = *scratch_;
    pieces.clear();
    if (begin < end) pieces.push_back({begin, end});
    for (const SplitPattern& pattern : parts_.splits) {
      finer.clear();
      for (const Span piece : pieces) splitter.split(pattern, where, piece, finer);
      std::swap(pieces, finer);
    }
    for (const Span piece : pieces) {
      const std::string_view bytes = where.substr(piece.begin, piece.end - piece.begin);
      const std::size_t first = result.ids.size();
      if (const auto whole = parts_.whole_pieces.find(bytes); whole != parts_.whole_pieces.end()) {
        result.ids.push_back(whole->second);
        result.first_byte.push_back(piece.begin);
      } else {
        result.lost_bytes += parts_.bpe.encode(bytes, piece.begin, room, result.ids, result.first_byte);
      }
      for (std::size_t i = first; i < result.ids.size(); ++i)
        result.first_byte[i] = origin(result.first_byte[i]);
    }
  };

  cut_out(
      parts_.raw, text, [](std::size_t at) { return at; },
      [&](std::size_t begin, std::size_t end) {
        if (begin == end) return;
        const std::string_view given = text.substr(begin, end - begin);
        const Normalized normal = parts_.nfc ? normalize_nfc(given) : Normalized{std::string(given), {}};
        const auto origin = [&](std::size_t at) { return begin + normal.origin_of(at); };
        cut_out(parts_.normalized, normal.text, origin, [&](std::size_t first, std::size_t last) {
          encode_normalized(normal.text, origin, first, last);
        });
      });
  return result;
}

}  // namespace tandem
