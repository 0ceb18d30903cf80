// A data file's rows as samples: token ids with target marks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/mirror/mirror.hpp"
#include "src/mirror/spec_text.hpp"

namespace tandem::mirror {

struct Sample {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;
  std::int64_t line;                 // from 1, blank lines counted
  std::vector<std::int64_t> scored;  // positions >= 1 whose mark is 1
};

class Renderer {
 public:
  Renderer(const Spec& spec, std::filesystem::path model, std::int64_t vocab_size);
  ~Renderer();

  // kInput naming file and line.
  std::vector<Sample> read(const std::filesystem::path& file);
  // SHA-256 of the model's own chat template; empty where no row asked for one.
  std::string template_digest() const;
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Text;  // tokenizer and template; read when the first row of text comes
  Sample sample(std::string_view line);
  const Text& text();

  const Spec& spec_;
  std::filesystem::path model_;
  std::int64_t vocab_size_;
  std::unique_ptr<Text> text_;
  std::vector<std::string> warnings_;
  std::int64_t n_with_control_ = 0, first_with_control_ = 0;
};

RenderedSample describe(const Sample& sample);

}  // namespace tandem::mirror
