// JSONL rows -> samples: `messages`, `prompt`/`completion` (rendered and tokenised with the model's own files), or
// already tokenised `ids` + `targets` (these need no tokenizer in the model's folder).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/samples.hpp"

namespace tandem {

struct RenderOptions {
  std::string chat_template = "auto";     // data.template
  std::int64_t max_tokens = 1024;         // data.max_tokens
  std::string truncate = "right";         // data.truncate: right | drop
  std::string targets = "all";            // data.targets: all | last
  std::string special_in_text = "encode";  // data.special_in_text: encode | refuse | plain
  std::int64_t vocab_size = 0;            // ids must be below it; 0: not checked
};

// What happened to the rows, for the log: every one accounted for.
struct DatasetReport {
  std::int64_t rows = 0;     // non-blank lines
  std::int64_t blank = 0;
  std::int64_t cut = 0;      // longer than max_tokens, cut on the right
  std::int64_t dropped = 0;  // longer than max_tokens, left out
  std::int64_t without_targets = 0;
  std::int64_t reasoning_dropped = 0;  // earlier turns' think parts the template leaves out
  std::int64_t special_in_text = 0;    // rows whose text holds a control token
  std::int64_t first_special_line = 0;
  std::int64_t tokens = 0, target_tokens = 0, longest = 0;
  std::string template_digest;  // SHA-256 of the model's chat_template; "" where no row was rendered
};

struct Dataset {
  SampleSet samples;
  DatasetReport report;
};

// Throws kInput: one line with file, line and, where it has one, column or byte offset.
Dataset load_dataset(const std::filesystem::path& file, const std::filesystem::path& model_dir,
                     const RenderOptions& options);

}  // namespace tandem
