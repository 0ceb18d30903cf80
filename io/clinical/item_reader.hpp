// The rows of one source file, one at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "io/clinical/item.hpp"

namespace tandem {

class ItemReader {
 public:
  virtual ~ItemReader() = default;
  // None at the end. Throws kInput: one line with file, line and, for bad JSON, column.
  virtual std::optional<ClinicalItem> next() = 0;
  // What was found out about the file before its first row; "" where there was nothing to find out.
  virtual std::string evidence() const { return {}; }
};

// MedMCQA: JSON Lines with question, opa-opd, cop, exp, id (the files end in .json all the same). `cop` is
// the right option, counted from 1 in the authors' release and from 0 in other copies. A row with 0 or with 4
// shows which; else the letters that explanations announce ("Ans. B"), where there are enough and they agree;
// else `cop_base`, 0 or 1, must be given: kUsage. A cop that the base excludes is an error.
std::unique_ptr<ItemReader> read_medmcqa(const std::filesystem::path& file, std::optional<int> cop_base);

// MedQA: JSON Lines with question, options ({"A": text, ...}, a list of {"key", "value"} or a list of texts)
// and answer (text), answer_idx (letter) or both; four or five options, or another number.
std::unique_ptr<ItemReader> read_medqa(const std::filesystem::path& file);

// PubMedQA: one JSON object of rows by PMID with QUESTION, CONTEXTS, LABELS, LONG_ANSWER (the explanation),
// final_decision (yes, no or maybe: the answer).
std::unique_ptr<ItemReader> read_pubmedqa(const std::filesystem::path& file);

}  // namespace tandem
