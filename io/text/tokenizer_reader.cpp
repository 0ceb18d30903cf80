// tokenizer.json -> Tokenizer::Parts: what the file asks for is done or refused by name.
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/text/byte_level.hpp"
#include "io/text/nfc.hpp"
#include "io/text/strict_json.hpp"
#include "io/text/tokenizer_parts.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

using nlohmann::json;

// GPT-2's published pattern, which ByteLevel means by use_regex.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Ids index tables; a wild one must not make them huge. Published vocabularies have up to 2^18 entries.
constexpr std::int64_t kMaxId = 1 << 21;

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  std::unique_ptr<Tokenizer::Parts> read(const json& file) {
    parts_->name = name_;
    if (!file.is_object()) fail("is no JSON object");
    if (const json version = get(file, "version"); !version.is_null() && version != "1.0")
      fail(cat("version ", version.dump(), " is not known (1.0 is)"));
    model(get(file, "model"));
    added_tokens(get(file, "added_tokens"));
    normalizer(get(file, "normalizer"));
    pre_tokenizer(get(file, "pre_tokenizer"));
    only_byte_level("post_processor", get(file, "post_processor"));
    only_byte_level("decoder", get(file, "decoder"));
    return std::move(parts_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kInput, without_controls(cat(name_, ": ", what)));
  }

  // Null where the key is absent.
  static json get(const json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() ? json() : *found;
  }

  std::string type_of(const char* part, const json& object) const {
    if (!object.is_object() || !get(object, "type").is_string()) fail(cat(part, " has no \"type\""));
    return object["type"];
  }

  bool flag(const char* part, const json& object, const char* key, bool if_absent) const {
    const json value = get(object, key);
    if (value.is_null()) return if_absent;
    if (!value.is_boolean()) fail(cat(part, ": \"", key, "\" is not true or false"));
    return value.get<bool>();
  }

  void refuse_flag(const char* part, const json& object, const char* key) const {
    if (flag(part, object, key, false)) fail(cat(part, ": \"", key, "\": true is not supported"));
  }

  void model(const json& model) {
    if (!model.is_object()) fail("has no \"model\"");
    if (const json type = get(model, "type"); !type.is_null() && type != "BPE")
      fail(cat("model type ", type.dump(), " is not supported (BPE is)"));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const json value = get(model, key); !value.is_null() && value != "")
        fail(cat("model: \"", key, "\": ", value.dump(), " is not supported"));
    if (const json dropout = get(model, "dropout"); !dropout.is_null() && dropout != 0.0)
      fail("model: \"dropout\" would make the ids random; not supported");
    refuse_flag("model", model, "byte_fallback");
    read_vocabulary(get(model, "vocab"));
    read_bytes(get(model, "unk_token"));
    read_merges(get(model, "merges"));
    if (flag("model", model, "ignore_merges", false))
      for (const auto& [spelled, id] : ids_)
        if (const auto bytes = from_byte_alphabet(spelled)) parts_->whole_pieces.emplace(*bytes, id);
  }

  void read_vocabulary(const json& vocabulary) {
    if (!vocabulary.is_object() || vocabulary.empty()) fail("model: \"vocab\" is no object or empty");
    for (const auto& [spelled, id] : vocabulary.items()) {
      claim(read_id(id, spelled), from_byte_alphabet(spelled).value_or(spelled), spelled);
      ids_.emplace(spelled, id.get<std::int32_t>());
    }
  }

  // Without a token for some byte and without unk_token the reference implementation drops that byte, and so
  // do we (Encoding::lost_bytes); unk_token would come into play.
  void read_bytes(const json& unk_token) {
    int missing = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
      if (found != ids_.end())
        parts_->bpe.set_byte(static_cast<unsigned char>(byte), found->second);
      else
        ++missing;
    }
    if (missing == 256)
      fail("model: \"vocab\" has no single bytes; only byte-level vocabularies are supported");
    if (missing > 0 && !unk_token.is_null())
      fail(cat("model: \"unk_token\" with ", missing, " of 256 bytes missing in \"vocab\" is not supported"));
  }

  void read_merges(const json& merges) {
    if (!merges.is_array()) fail("model: \"merges\" is no array");
    parts_->bpe.reserve(merges.size());
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const auto [left, right] = read_pair(merges[i], i);
      if (left.starts_with("#version")) continue;
      parts_->bpe.add_merge(entry(left, i), entry(right, i), rank++, entry(left + right, i));
    }
  }

  // "a b" or ["a", "b"].
  std::pair<std::string, std::string> read_pair(const json& merge, std::size_t index) const {
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const auto space = text.find(' ');
      if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
        return {text.substr(0, space), text.substr(space + 1)};
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return {merge[0], merge[1]};
    }
    fail(cat("model: merges[", index, "] is neither \"a b\" nor [\"a\", \"b\"]"));
  }

  std::int32_t entry(const std::string& spelled, std::size_t index) const {
    const auto found = ids_.find(spelled);
    if (found == ids_.end())
      fail(cat("model: merges[", index, "] needs ", json(spelled).dump(), ", which is not in \"vocab\""));
    return found->second;
  }

  std::int32_t read_id(const json& id, const std::string& content) const {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > kMaxId)
      fail(cat("the id of ", json(content).dump(), " is no integer from 0 to ", kMaxId));
    return id.get<std::int32_t>();
  }

  void claim(std::int32_t id, std::string bytes, const std::string& content) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= parts_->bytes.size()) parts_->bytes.resize(index + 1);
    if (!parts_->bytes[index].empty())
      fail(cat("id ", id, " stands for two tokens; one is ", json(content).dump()));
    parts_->bytes[index] = std::move(bytes);
  }

  void added_tokens(const json& list) {
    if (list.is_null()) return;
    if (!list.is_array()) fail("\"added_tokens\" is no array");
    for (const json& token : list) {
      const json content = token.is_object() ? get(token, "content") : json();
      if (!content.is_string() || content == "") fail("an entry of \"added_tokens\" has no \"content\"");
      const std::string text = content;
      const std::string part = cat("added token ", content.dump());
      for (const char* key : {"lstrip", "rstrip", "single_word"}) refuse_flag(part.c_str(), token, key);
      const std::int32_t id = read_id(get(token, "id"), text);
      if (parts_->all.id_of(text)) fail(cat(part, " stands twice"));
      if (const auto known = ids_.find(text); known == ids_.end()) {
        claim(id, text, text);
      } else if (known->second != id) {
        fail(cat(part, " has id ", id, ", but ", known->second, " in \"vocab\""));
      }
      parts_->bytes[static_cast<std::size_t>(id)] = text;
      parts_->all.add(text, id);
      const bool special = flag(part.c_str(), token, "special", false);
      parts_->special.resize(parts_->bytes.size());
      parts_->special[static_cast<std::size_t>(id)] = special;
      (flag(part.c_str(), token, "normalized", !special) ? parts_->normalized : parts_->raw).add(text, id);
    }
  }

  void normalizer(const json& normalizer) {
    if (normalizer.is_null()) return;
    const std::string type = type_of("normalizer", normalizer);
    if (type == "Sequence" && get(normalizer, "normalizers").is_array()) {
      for (const json& step : normalizer["normalizers"]) this->normalizer(step);
    } else if (type == "NFC") {
      parts_->nfc = true;
    } else {
      fail(cat("normalizer ", type, " is not supported (NFC is)"));
    }
  }

  void pre_tokenizer(const json& pre_tokenizer) {
    byte_level_seen_ = false;
    if (!pre_tokenizer.is_null()) step(pre_tokenizer);
    if (!byte_level_seen_)
      fail("pre_tokenizer: ByteLevel is missing; only byte-level tokenizers are supported");
  }

  void step(const json& step) {
    const std::string type = type_of("pre_tokenizer", step);
    if (byte_level_seen_) fail(cat("pre_tokenizer: ", type, " after ByteLevel is not supported"));
    if (type == "Sequence" && get(step, "pretokenizers").is_array()) {
      for (const json& part : step["pretokenizers"]) this->step(part);
    } else if (type == "Split") {
      split(step);
    } else if (type == "Digits") {
      add_pattern(flag("Digits", step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    } else if (type == "ByteLevel") {
      refuse_flag("ByteLevel", step, "add_prefix_space");
      if (flag("ByteLevel", step, "use_regex", true)) add_pattern(kGpt2Pattern);
      byte_level_seen_ = true;
    } else {
      fail(cat("pre_tokenizer ", type, " is not supported (Sequence, Split, Digits, ByteLevel are)"));
    }
  }

  void split(const json& split) {
    if (get(split, "behavior") != "Isolated")
      fail(cat("pre_tokenizer Split: behavior ", get(split, "behavior").dump(),
               " is not supported (Isolated is)"));
    refuse_flag("pre_tokenizer Split", split, "invert");
    const json pattern = get(split, "pattern");
    if (!pattern.is_object() || !get(pattern, "Regex").is_string())
      fail("pre_tokenizer Split: \"pattern\" has no \"Regex\"");
    add_pattern(pattern["Regex"].get<std::string>());
  }

  void add_pattern(std::string_view pattern) {
    try {
      parts_->splits.emplace_back(pattern);
    } catch (const Error& error) {
      fail(error.what());
    }
  }

  // Such a post-processor only moves offsets; another could add tokens.
  void only_byte_level(const char* part, const json& value) const {
    if (value.is_null()) return;
    const std::string type = type_of(part, value);
    if (type != "ByteLevel") fail(cat(part, " ", type, " is not supported (ByteLevel is)"));
  }

  std::string name_;
  std::unique_ptr<Tokenizer::Parts> parts_ = std::make_unique<Tokenizer::Parts>();
  std::unordered_map<std::string, std::int32_t> ids_;  // as spelled in the file
  bool byte_level_seen_ = false;
};

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& model_dir) {
  const auto file = model_dir / "tokenizer.json";
  return parse(read_text_file(file), file.string());
}

Tokenizer Tokenizer::parse(std::string_view text, const std::string& name) {
  return Tokenizer(Reader(name).read(parse_strict_json(text, name)));
}

}  // namespace tandem
