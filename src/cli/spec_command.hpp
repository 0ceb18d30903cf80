// `tandem spec`: the canonical text of a configuration, or every key with its value and where it comes from.
#pragma once

#include <iosfwd>

#include "src/spec/settings.hpp"

namespace tandem {

// Digests the inputs, renders the training rows where T depends on their number, writes the canonical text.
int spec_command(Config config, std::ostream& out);

// One line a key, itself a configuration file; a value that is computed later stands in a comment.
int show_all_command(const Settings& file, const Settings& options, std::ostream& out);

}  // namespace tandem
