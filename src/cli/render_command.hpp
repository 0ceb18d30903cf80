// `tandem render --model DIR FILE`: each sample as one JSON object a line: line, text, ids, targets, digest.
#pragma once

#include <filesystem>
#include <iosfwd>

#include "io/dataset.hpp"

namespace tandem {

// Returns the exit code; throws what load_dataset throws.
int render_command(const std::filesystem::path& model_dir, const std::filesystem::path& file,
                   const RenderOptions& options, std::ostream& out, std::ostream& warnings);

}  // namespace tandem
