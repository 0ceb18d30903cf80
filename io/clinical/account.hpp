// Where every row of the sources went: rows in = converted + duplicates + rejected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/clinical/item.hpp"

namespace tandem {

// The fates that are no rejection; a row's fate is one of them or a Reason behind them.
enum class Fate {
  kTrainExplanation,
  kTrainAnswer,
  kHeldOutExplanation,
  kHeldOutAnswer,
  kExactSameFile,   // both turns equal those of an earlier row
  kFoldedSameFile,  // the same question under folding
  kExactOtherFile,
  kFoldedOtherFile,
  kHeldOutText,  // left out of train: its explanation or abstract is that of a held-out row
  kRejected,     // the first Reason
};
constexpr std::size_t kFates = static_cast<std::size_t>(Fate::kRejected) + kReasons;
std::string name_of_fate(std::size_t fate);

struct Tally {
  std::int64_t rows = 0;
  std::int64_t first_line = 0;  // 0: none
  void add(std::int64_t line) {
    if (rows++ == 0) first_line = line;
  }
  void add(const Tally& other) { rows += other.rows; }
};

struct SourceAccount {
  SourceKind kind = SourceKind::kMedmcqa;
  std::string file;      // as given
  std::string digest;    // SHA-256 of its bytes
  std::string evidence;  // ItemReader::evidence
  std::int64_t rows = 0;
  std::array<Tally, kFates> fates;

  // Observations on rows that were not rejected.
  Tally changed;           // by clean_text
  Tally equal_options;     // two options with the same text
  Tally letters_left_out;  // explanations that began by announcing an option's letter
  Tally letters_disagree;  // of those: another letter than the right option's
  Tally conflicting;       // duplicates of a row with the same options and another right one

  const Tally& fate(Fate which) const { return fates[static_cast<std::size_t>(which)]; }
  std::int64_t train() const { return fate(Fate::kTrainExplanation).rows + fate(Fate::kTrainAnswer).rows; }
  std::int64_t held_out() const {
    return fate(Fate::kHeldOutExplanation).rows + fate(Fate::kHeldOutAnswer).rows;
  }
  std::int64_t accounted() const;
};

struct OutputFile {
  std::string name;
  std::int64_t rows = 0;
  std::string digest;  // SHA-256 of its bytes
};

struct PrepareReport {
  std::vector<SourceAccount> sources;
  std::vector<OutputFile> outputs;
  std::string target;  // data.target
  double held_out_share = 0;
  std::vector<std::pair<std::string, std::string>> prompts;  // file name, SHA-256

  SourceAccount total() const;  // sums; its kind, file, digest, evidence and first lines mean nothing
};

// Aligned columns, one a source and one for all, with percentages that add up to 100.0; fates that no row met
// are left out. Then what else is worth knowing of the rows.
std::string table_of(const PrepareReport& report);
// One JSON object; all fates.
std::string json_of(const PrepareReport& report);

// Where the sources have just the rows of the study that configs/README.md tells of: how far its numbers and
// these differ. Else empty.
std::string study_deviation(const PrepareReport& report);

// Tenths of per cent of each part, rounded so that they add up to 1000 (largest remainder; the parts must not
// all be 0).
std::vector<std::int64_t> tenths_of(const std::vector<std::int64_t>& parts);

}  // namespace tandem
