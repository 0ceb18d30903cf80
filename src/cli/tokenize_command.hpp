// `tandem tokenize --model DIR`: one JSON string a line in, one JSON array of ids a line out.
#pragma once

#include <filesystem>
#include <iosfwd>

namespace tandem {

// Blank lines are skipped. Returns the exit code; throws kInput with line and column for a line that is no
// JSON string.
int tokenize_command(const std::filesystem::path& model_dir, std::istream& in, std::ostream& out);

}  // namespace tandem
