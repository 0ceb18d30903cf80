// JSONL rows -> samples: conversations in one of the forms of io/text/row.hpp (rendered and tokenised with
// the model's own files), or already tokenised `ids` + `targets` (these need no tokenizer in the model's
// folder).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/samples.hpp"

namespace tandem {

struct RenderOptions {
  std::string chat_template = "auto";      // data.template
  std::int64_t max_tokens = 1024;          // data.max_tokens
  std::string truncate = "right";          // data.truncate: right | drop
  std::string targets = "all";             // data.targets: all | last
  std::string special_in_text = "encode";  // data.special_in_text: encode | refuse | plain
  std::int64_t vocab_size = 0;             // ids must be below it; 0: not checked
  int threads = 0;  // 0: as many as the process may use; the result does not depend on it
};

// What happened to the rows, for the log: every one accounted for.
struct DatasetReport {
  std::int64_t rows = 0;  // non-blank lines
  std::int64_t blank = 0;
  std::int64_t alpaca = 0, sharegpt = 0;  // rows written as these data sets write them (RowForm)
  std::int64_t cut = 0;                   // longer than max_tokens, cut on the right
  std::int64_t dropped = 0;               // longer than max_tokens, left out
  std::int64_t without_targets = 0;
  std::int64_t reasoning_dropped = 0;  // think parts the template leaves out
  std::int64_t text_dropped = 0;       // messages of which it leaves out other text
  std::int64_t special_in_text = 0;    // rows whose text holds a control token
  std::int64_t first_special_line = 0;
  std::int64_t lost_bytes = 0;  // bytes that the tokenizer has no token for (Encoding::lost_bytes)
  std::int64_t first_lost_line = 0;
  std::int64_t tokens = 0, target_tokens = 0, longest = 0;
  // "" and false where no row was rendered.
  std::string template_name;              // qwen3, smollm2, ...
  std::string template_digest;            // SHA-256 of the model's own chat_template
  bool template_overrides_model = false;  // data.template names another one than the model's own

  bool from_cache = false;    // the samples were read, not rendered
  std::string cache_trouble;  // why the cache could not be used or written; "" = nothing to say

  // One line for each thing that a user should know of.
  std::vector<std::string> warnings() const;
  // "" or, where rows have another form than Tandem's own, one line that says how they were read.
  std::string form_note() const;
};

struct Dataset {
  SampleSet samples;
  DatasetReport report;
};

// Called on the caller's thread with the share of the file that is done, 0 to 1.
using Progress = std::function<void(double share)>;

// What changes no sample.
struct LoadAids {
  std::filesystem::path cache;  // folder of the token cache (sample_cache.hpp); empty: none
  bool write_cache = true;      // false: only read it, where another process writes it
  std::string data_digest;      // SHA-256 of the data file, where it is known already
  Progress progress;
};

// Reads the rows in a stream and renders them on several threads; samples stand in file order.
// Throws kInput: one line with file, line and, where it has one, column or byte offset; also where no sample
// is left. A cache that is damaged or cannot be written is a matter for the report.
Dataset load_dataset(const std::filesystem::path& file, const std::filesystem::path& model_dir,
                     const RenderOptions& options, const LoadAids& aids = {});

struct RenderedRow {
  std::int64_t line = 0;            // 1-based, physical, blanks counted
  std::optional<std::string> text;  // none for tokenised rows
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> targets;
};

// The same row by row, in file order; `sink` is called on the caller's thread only and ends the reading by
// false (the report then counts the rows up to there). Rows left out do not reach it.
DatasetReport for_each_row(const std::filesystem::path& file, const std::filesystem::path& model_dir,
                           const RenderOptions& options, const std::function<bool(RenderedRow&&)>& sink,
                           const Progress& progress = {});

}  // namespace tandem
