#include "io/text/own_tokenizer.hpp"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "io/text/byte_level.hpp"
#include "io/text/own_template.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr std::int32_t kBytes = 256;

struct Added {
  const char* content;
  bool special;  // left out when text is decoded for people
};

// Qwen3's, in its order.
constexpr std::array<Added, 26> kAdded = {{
    {"<|endoftext|>", true},      {"<|im_start|>", true},
    {"<|im_end|>", true},         {"<|object_ref_start|>", true},
    {"<|object_ref_end|>", true}, {"<|box_start|>", true},
    {"<|box_end|>", true},        {"<|quad_start|>", true},
    {"<|quad_end|>", true},       {"<|vision_start|>", true},
    {"<|vision_end|>", true},     {"<|vision_pad|>", true},
    {"<|image_pad|>", true},      {"<|video_pad|>", true},
    {"<tool_call>", false},       {"</tool_call>", false},
    {"<|fim_prefix|>", false},    {"<|fim_middle|>", false},
    {"<|fim_suffix|>", false},    {"<|fim_pad|>", false},
    {"<|repo_name|>", false},     {"<|file_sep|>", false},
    {"<tool_response>", false},   {"</tool_response>", false},
    {"<think>", false},           {"</think>", false},
}};
constexpr std::size_t kPad = 0, kEnd = 2;

ordered_json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
}

ordered_json tokenizer_file() {
  ordered_json vocabulary = ordered_json::object();
  for (std::int32_t byte = 0; byte < kBytes; ++byte)
    vocabulary[to_byte_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  ordered_json added = ordered_json::array();
  for (std::size_t i = 0; i < kAdded.size(); ++i)
    added.push_back({{"id", kBytes + static_cast<std::int32_t>(i)},
                     {"content", kAdded[i].content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", kAdded[i].special}});
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", byte_level()},
          {"post_processor", nullptr},
          {"decoder", byte_level()},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary},
            {"merges", ordered_json::array()}}}};
}

ordered_json config_file() {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},
          {"bos_token", nullptr},
          {"eos_token", kAdded[kEnd].content},
          {"pad_token", kAdded[kPad].content},
          {"clean_up_tokenization_spaces", false},
          {"chat_template", std::string(kOwnTemplate)}};
}

void write(const std::filesystem::path& file, const ordered_json& value) {
  std::ofstream out(file, std::ios::binary);
  out << value.dump(2) << '\n';
  out.close();
  if (!out) throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be written"));
}

}  // namespace

OwnTokenizer write_byte_level_tokenizer(const std::filesystem::path& dir) {
  write(dir / "tokenizer.json", tokenizer_file());
  write(dir / "tokenizer_config.json", config_file());
  return {kBytes + static_cast<std::int64_t>(kAdded.size()), kBytes + static_cast<std::int32_t>(kEnd),
          kBytes + static_cast<std::int32_t>(kPad)};
}

}  // namespace tandem
