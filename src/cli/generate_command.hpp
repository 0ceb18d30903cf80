// `tandem generate`: what a model answers, greedily, with or without an adapter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

namespace tandem {

struct GenerateOptions {
  std::filesystem::path model = {}, adapter = {};  // adapter: empty: the base model
  std::string chat_template = "auto";              // data.template
  std::optional<std::string> prompt = {};          // none: rows from `in`
  std::optional<std::string> system = {};
  std::optional<bool> thinking = {};  // none: as the model's template does by itself
  std::int64_t max_tokens = 256;      // of an answer
  bool json = false;
  int threads = 0;
};

// Answers the prompt, or each row of `in` before it reads the next. Returns 0. Throws kUsage and kInput, for
// rows with their line.
int generate_command(const GenerateOptions& options, std::istream& in, std::ostream& out, std::ostream& log);

}  // namespace tandem
