// `tandem render --model DIR FILE`: what training sees of the rows, as JSON lines, on the terminal, as a file
// of digests, or against another stack's.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>

#include "io/dataset.hpp"

namespace tandem {

struct RenderJob {
  std::filesystem::path model_dir, file;
  std::filesystem::path held_out;  // --held-out: rendered behind FILE's rows; empty: none
  std::filesystem::path cache;     // data.cache, for --digest and --against; empty: none
  RenderOptions options;
};

// Each sample as one JSON object a line: line, text, ids, targets, digest. The four return the exit code and
// throw what load_dataset throws, and kInput where `out` cannot be written.
int render_rows(const RenderJob& job, std::ostream& out, std::ostream& warnings);

// The first `count` samples for people: the text that the ids stand for, what is scored in colour or, without
// colour, between brackets.
int render_show(const RenderJob& job, std::int64_t count, bool colour, std::ostream& out,
                std::ostream& warnings);

// Every sample's digest (with_ids: ids and marks too) as a trajectory file of rendering alone (io/FORMAT.md).
int render_digest(const RenderJob& job, const std::filesystem::path& file, bool with_ids, std::ostream& out,
                  std::ostream& warnings);

// Compares with the samples that a trajectory file tells of. Throws kDisagreement at a difference, after
// showing the first differing sample on `out`: token by token where the file holds the ids.
int render_against(const RenderJob& job, const std::filesystem::path& file, std::ostream& out,
                   std::ostream& warnings);

}  // namespace tandem
