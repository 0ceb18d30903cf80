// Byte-level byte-pair encoding (Sennrich et al. 2016, section 3.2; Radford et al. 2019, section 2.2) as a
// tokenizer.json describes it. Plain: the pair with the lowest rank is searched for and merged, again and
// again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/mirror/split.hpp"

namespace tandem::mirror {

// Text with what is known about it. Parts that follow each other are one string to the tokenizer.
struct Part {
  std::string text;
  bool target = false;    // scored
  bool from_row = false;  // written by the row's author, not by the template
};

struct Encoded {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;  // 1: the token's first byte lies in a target part
};

class Tokenizer {
 public:
  // kInput naming the file and what is not supported.
  explicit Tokenizer(const std::filesystem::path& file);

  // spell_out: added tokens within text of rows do not act but are spelled as other text is.
  Encoded encode(const std::vector<Part>& parts, bool spell_out = false) const;
  std::vector<std::int32_t> encode(const std::string& text) const;
  bool is_added(const std::string& token) const;
  // The first added token that the row's author wrote.
  std::optional<std::string> added_in_row(const std::vector<Part>& parts) const;

 private:
  struct Added {
    std::string content;
    std::int32_t id;
    bool normalized;  // looked for after normalisation, not before
  };
  struct Merge {
    std::int32_t rank, result;
  };
  struct Marked;

  void read(const nlohmann::json& json);
  void read_added(const nlohmann::json& list);
  void read_model(const nlohmann::json& model);
  const Added* added_at(const Marked& text, std::size_t i, bool normalized, bool spell_out) const;
  template <class OnText>
  void cut(const Marked& text, bool normalized, bool spell_out, Encoded& out, OnText on_text) const;
  Marked normalise(const Marked& text) const;
  void encode_words(const Marked& text, Encoded& out) const;
  void merge_piece(std::string_view piece, std::vector<std::int32_t>& ids,
                   std::vector<std::size_t>& begins) const;

  bool nfc_ = false, ignore_merges_ = false;
  std::vector<Split> splits_;
  std::vector<Added> added_;                                  // longest first
  bool begins_added_[256] = {};                               // by first byte
  std::unordered_map<std::string, std::int32_t> vocabulary_;  // in byte-level letters
  std::unordered_map<std::uint64_t, Merge> merges_;           // by pair of ids
  std::string letters_[256];                                  // byte -> its letter in the vocabulary
  std::int32_t letter_ids_[256];                              // -1: none
};

}  // namespace tandem::mirror
