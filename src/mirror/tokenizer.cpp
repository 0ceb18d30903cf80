#include "src/mirror/tokenizer.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "src/mirror/check.hpp"
#include "src/mirror/json_file.hpp"
#include "src/mirror/unicode.hpp"

namespace tandem::mirror {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

// GPT-2's alphabet: bytes that print stand for themselves, the others for the code points from 256 on.
void fill_letters(std::string (&letters)[256]) {
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    letters[byte] = to_utf8(prints ? static_cast<char32_t>(byte) : next++);
  }
}

// Settings that would change ids; each is refused unless it is off.
void refuse_settings(const nlohmann::json& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = object.find(name);
    const bool off =
        found == object.end() || found->is_null() || *found == false || *found == "" || *found == 0.0;
    if (!off) throw std::invalid_argument(cat("`", name, "` = ", found->dump(), " is not supported"));
  }
}

bool read_normalizer(const nlohmann::json& normalizer) {
  if (normalizer.is_null()) return false;
  const std::string type = normalizer.at("type");
  if (type == "NFC") return true;
  if (type == "Sequence") {
    bool nfc = false;
    for (const auto& part : normalizer.at("normalizers")) nfc |= read_normalizer(part);
    return nfc;
  }
  throw std::invalid_argument(cat("the normaliser ", type, " is not supported"));
}

}  // namespace

// A text with the marks of its parts, byte by byte.
struct Tokenizer::Marked {
  std::string text;
  std::vector<bool> target, from_row;

  void append(std::string_view more, bool is_target, bool is_from_row) {
    text += more;
    target.resize(text.size(), is_target);
    from_row.resize(text.size(), is_from_row);
  }
  Marked slice(std::size_t begin, std::size_t end) const {
    const auto cut_bits = [&](const std::vector<bool>& bits) {
      return std::vector<bool>(bits.begin() + static_cast<std::ptrdiff_t>(begin),
                               bits.begin() + static_cast<std::ptrdiff_t>(end));
    };
    return {text.substr(begin, end - begin), cut_bits(target), cut_bits(from_row)};
  }
};

Tokenizer::Tokenizer(const std::filesystem::path& file) {
  fill_letters(letters_);
  const auto json = read_json_file(file);
  try {
    read(json);
  } catch (const std::invalid_argument& error) {
    throw Error(ErrorKind::kInput, cat(file.string(), ": ", error.what()));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kInput, cat(file.string(), ": is no tokenizer: ", error.what()));
  }
}

void Tokenizer::read(const nlohmann::json& json) {
  if (!json.is_object()) throw std::invalid_argument("is no JSON object");
  // `truncation` and `padding` are not used: data.max_tokens says what is cut.
  nfc_ = read_normalizer(json.value("normalizer", nlohmann::json()));
  splits_ = read_splits(json.value("pre_tokenizer", nlohmann::json()));
  // ByteLevel's moves offsets only; another could add tokens.
  const auto after = json.value("post_processor", nlohmann::json());
  if (!after.is_null() && after.at("type") != "ByteLevel")
    throw std::invalid_argument(cat("the post-processor ", after.at("type").dump(), " is not supported"));
  read_model(json.at("model"));
  read_added(json.value("added_tokens", nlohmann::json::array()));
}

void Tokenizer::read_added(const nlohmann::json& list) {
  for (const auto& token : list) {
    refuse_settings(token, {"single_word", "lstrip", "rstrip"});
    const bool special = token.value("special", false);
    added_.push_back({token.at("content"), token.at("id"), token.value("normalized", !special)});
    if (added_.back().content.empty()) throw std::invalid_argument("an added token is empty");
    begins_added_[static_cast<unsigned char>(added_.back().content.front())] = true;
  }
  std::stable_sort(added_.begin(), added_.end(),
                   [](const Added& a, const Added& b) { return a.content.size() > b.content.size(); });
}

void Tokenizer::read_model(const nlohmann::json& model) {
  if (model.at("type") != "BPE") throw std::invalid_argument("its model is no BPE");
  refuse_settings(model, {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"});
  ignore_merges_ = model.value("ignore_merges", false);
  for (const auto& [token, id] : model.at("vocab").items()) vocabulary_[token] = id;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = vocabulary_.find(letters_[byte]);
    letter_ids_[byte] = found == vocabulary_.end() ? -1 : found->second;
  }
  // It would come into play for a byte without a token.
  if (std::find(std::begin(letter_ids_), std::end(letter_ids_), -1) != std::end(letter_ids_))
    refuse_settings(model, {"unk_token"});
  std::int32_t rank = 0;
  for (const auto& merge : model.at("merges")) {
    std::string left, right;
    if (merge.is_array()) {
      left = merge.at(0), right = merge.at(1);
    } else {
      const std::string text = merge;
      const auto blank = text.find(' ');
      if (blank == std::string::npos) throw std::invalid_argument(cat("the merge `", text, "` is no pair"));
      left = text.substr(0, blank), right = text.substr(blank + 1);
    }
    const auto id = [&](const std::string& token) {
      const auto found = vocabulary_.find(token);
      if (found == vocabulary_.end())
        throw std::invalid_argument(cat("`", token, "` is merged, but has no id"));
      return found->second;
    };
    merges_[pair_key(id(left), id(right))] = {rank++, id(left + right)};
  }
}

bool Tokenizer::is_added(const std::string& token) const {
  return std::any_of(added_.begin(), added_.end(),
                     [&](const Added& added) { return added.content == token; });
}

// The longest added token that starts at byte i.
const Tokenizer::Added* Tokenizer::added_at(const Marked& text, std::size_t i, bool normalized,
                                            bool spell_out) const {
  if (!begins_added_[static_cast<unsigned char>(text.text[i])]) return nullptr;
  for (const Added& token : added_) {
    if (token.normalized != normalized) continue;
    if (text.text.compare(i, token.content.size(), token.content) != 0) continue;
    const auto begin = text.from_row.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = begin + static_cast<std::ptrdiff_t>(token.content.size());
    if (!spell_out || std::find(begin, end, true) == end) return &token;
  }
  return nullptr;
}

// Added tokens become ids, from the left; what lies between them is handed to `on_text`.
template <class OnText>
void Tokenizer::cut(const Marked& text, bool normalized, bool spell_out, Encoded& out, OnText on_text) const {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.text.size();) {
    const Added* token = added_at(text, i, normalized, spell_out);
    if (!token) {
      ++i;
      continue;
    }
    if (i > begin) on_text(text.slice(begin, i));
    out.ids.push_back(token->id);
    out.targets.push_back(text.target[i]);
    begin = i += token->content.size();
  }
  if (begin == 0 && !text.text.empty())
    on_text(text);
  else if (begin < text.text.size())
    on_text(text.slice(begin, text.text.size()));
}

// Runs of equal marks are normalised one by one, so that the marks stay known. Templates put a line end
// before and an added token behind what rows say, and nothing composes with those.
Tokenizer::Marked Tokenizer::normalise(const Marked& text) const {
  Marked normal;
  for (std::size_t begin = 0; begin < text.text.size();) {
    std::size_t end = begin + 1;
    while (end < text.text.size() && text.target[end] == text.target[begin] &&
           text.from_row[end] == text.from_row[begin])
      ++end;
    normal.append(nfc(std::string_view(text.text).substr(begin, end - begin)), text.target[begin],
                  text.from_row[begin]);
    begin = end;
  }
  return normal;
}

Encoded Tokenizer::encode(const std::vector<Part>& parts, bool spell_out) const {
  Marked whole;
  for (const Part& part : parts) whole.append(part.text, part.target, part.from_row);
  Encoded out;
  cut(whole, false, spell_out, out, [&](const Marked& raw) {
    cut(nfc_ ? normalise(raw) : raw, true, spell_out, out,
        [&](const Marked& text) { encode_words(text, out); });
  });
  return out;
}

std::vector<std::int32_t> Tokenizer::encode(const std::string& text) const {
  return encode({Part{text}}).ids;
}

std::optional<std::string> Tokenizer::added_in_row(const std::vector<Part>& parts) const {
  Marked whole;
  for (const Part& part : parts) whole.append(part.text, part.target, part.from_row);
  for (std::size_t i = 0; i < whole.text.size();) {
    const Added* token = added_at(whole, i, false, false);
    if (!token) token = added_at(whole, i, true, false);
    if (token && whole.from_row[i]) return token->content;
    i += token ? token->content.size() : 1;
  }
  return std::nullopt;
}

void Tokenizer::encode_words(const Marked& text, Encoded& out) const {
  std::vector<std::string_view> pieces{text.text};
  for (const Split how : splits_) {
    std::vector<std::string_view> finer;
    for (const std::string_view piece : pieces)
      for (const std::string_view part : split(how, piece)) finer.push_back(part);
    pieces = std::move(finer);
  }
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> begins;
  for (const std::string_view piece : pieces) {
    ids.clear(), begins.clear();
    merge_piece(piece, ids, begins);
    const auto offset = static_cast<std::size_t>(piece.data() - text.text.data());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      out.ids.push_back(ids[i]);
      out.targets.push_back(text.target[offset + begins[i]]);
    }
  }
}

void Tokenizer::merge_piece(std::string_view piece, std::vector<std::int32_t>& ids,
                            std::vector<std::size_t>& begins) const {
  if (ignore_merges_) {
    std::string spelled;
    for (const char c : piece) spelled += letters_[static_cast<unsigned char>(c)];
    if (const auto whole = vocabulary_.find(spelled); whole != vocabulary_.end()) {
      ids = {whole->second}, begins = {0};
      return;
    }
  }
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const std::int32_t id = letter_ids_[static_cast<unsigned char>(piece[i])];
    if (id < 0) continue;  // as published: a byte that has no token vanishes
    ids.push_back(id);
    begins.push_back(i);
  }
  for (;;) {
    std::size_t best = 0;
    Merge lowest{std::numeric_limits<std::int32_t>::max(), 0};
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto merge = merges_.find(pair_key(ids[i], ids[i + 1]));
      if (merge != merges_.end() && merge->second.rank < lowest.rank) best = i, lowest = merge->second;
    }
    if (lowest.rank == std::numeric_limits<std::int32_t>::max()) return;
    ids[best] = lowest.result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    begins.erase(begins.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace tandem::mirror
