// One question of a clinical source, whatever the source: what a reader hands on and what a row is made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

enum class SourceKind { kMedmcqa, kMedqa, kPubmedqa };
const char* name_of(SourceKind kind);
// None for a word that is no source's name.
std::optional<SourceKind> source_kind(const std::string& name);

// Why a row is left out; the order is that of the report.
enum class Reason {
  kNoQuestion,     // nothing in it but blanks and signs
  kNoAnswer,       // neither an answer nor, for PubMedQA, a conclusion is given
  kFewOptions,     // a multiple choice of less than two
  kEmptyOption,    // one of the options is blank
  kContradiction,  // MedQA: `answer` is not the option that `answer_idx` names
  kNoContext,      // PubMedQA: no abstract
  kNoExplanation,  // data.target = explanation only
};
constexpr std::size_t kReasons = 7;
const char* name_of(Reason reason);

struct ContextPart {
  std::string label;  // "METHODS"; may be empty
  std::string text;
};

// Texts stand as in the file. Multiple choice where there are options; else the answer is answer_text.
struct ClinicalItem {
  std::string id;         // the source's own name of the row; may be empty
  std::int64_t line = 0;  // 1-based, where the row begins
  std::string question;
  std::vector<ContextPart> context;
  std::vector<std::string> options;
  std::optional<std::size_t> right_option;
  std::string answer_text;
  std::string explanation;       // empty: none is given
  std::optional<Reason> reason;  // what the reader already knows to be wrong
};

}  // namespace tandem
