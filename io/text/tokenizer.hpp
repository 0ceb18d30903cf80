// Byte-level BPE as a Hugging Face tokenizer.json describes it: added tokens cut out, the rest normalised
// (NFC), split by the file's own pattern, its bytes merged by rank. What the file asks for and this reader
// does not do is refused by name. The file's `truncation` and `padding` are off, as they are in the published
// libraries unless a call asks for them: data.max_tokens decides. No post-processor adds tokens: a chat
// template writes its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/span.hpp"

namespace tandem {

struct Encoding {
  std::vector<std::int32_t> ids;
  // Offset in the text as given (before NFC) of each token's first byte. What NFC changed in a
  // character and its marks counts as beginning at the first changed byte.
  std::vector<std::size_t> first_byte;
  // Bytes for which the vocabulary has no token and which therefore leave no trace in ids (the reference
  // implementation drops them too). Only for vocabularies without all 256 bytes, such as SmolLM2's.
  std::size_t lost_bytes = 0;
};

// Immutable once read, so any number of threads may share it, each with an Encoder of its own.
class Tokenizer {
 public:
  // Reads FOLDER/tokenizer.json. Throws kInput naming the file and what is wrong or not supported.
  static Tokenizer load(const std::filesystem::path& model_dir);
  // The same from the file's text; `name` stands for the file in errors.
  static Tokenizer parse(std::string_view json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Largest id + 1: what the model's vocabulary must at least hold.
  std::int64_t size() const;
  // The bytes an id stands for: raw bytes of a vocabulary entry, the content of an added token; empty if
  // there is none.
  std::string_view bytes(std::int32_t id) const;
  // The text that ids stand for, without special added tokens; bytes that are no UTF-8 become U+FFFD.
  std::string decode(std::span<const std::int32_t> ids) const;
  // The id of an added token by its content, such as "<|im_end|>".
  std::optional<std::int32_t> added_token(std::string_view content) const;
  // Left to right, longest first, where added tokens stand in `text`.
  std::vector<Span> find_added(std::string_view text) const;

  struct Parts;
  const Parts& parts() const { return *parts_; }

 private:
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// One thread's tools for encoding; the tokenizer must outlive it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  Encoder(Encoder&&) noexcept;
  ~Encoder();

  // `text` must be UTF-8, U+0000 included; throws kInput with the byte offset otherwise, and where the
  // splitting pattern runs out of its limits. Added tokens that touch one of the `plain` spans (sorted, not
  // overlapping) are encoded as ordinary text.
  Encoding encode(std::string_view text, std::span<const Span> plain = {});

 private:
  struct Scratch;
  const Tokenizer::Parts& parts_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace tandem
