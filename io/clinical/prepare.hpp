// Public clinical sources -> train.jsonl and held_out.jsonl as conversations, every row accounted for.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "io/clinical/account.hpp"

namespace tandem {

struct PrepareOptions {
  struct Source {
    SourceKind kind;
    std::filesystem::path file;
  };
  std::vector<Source> sources;
  std::filesystem::path out;
  double held_out_share = 0.02;   // >= 0 and < 1; 0: no held_out.jsonl
  bool answers = true;            // data.target = explanation_or_answer; false: explanation
  std::optional<int> cop_base;    // --cop-base
  std::filesystem::path prompts;  // empty: the built-in ones
  bool overwrite = false;         // replace what an earlier call left in `out`
};

// Reads the sources in order, in a stream, and publishes the folder `out` whole: train.jsonl, held_out.jsonl
// and the report, prepare.json. Rows stand in the order read; each has `messages` and, for people, `source`,
// `id`, `line` and `target`.
//
// Of rows that are the same question (ConvertedItem) the first is kept. A row is held out by its own
// question's text alone (split_point), so it never changes sides when a source is added, and one question is
// never on both. Rows of train that share an explanation or an abstract with a held-out row are left out.
//
// Throws kInput: a bad file (file, line, column), `out` that is not empty or cannot be written, no row left
// for train; kUsage: options out of range, a --cop-base that is needed.
PrepareReport prepare_clinical(const PrepareOptions& options);

}  // namespace tandem
