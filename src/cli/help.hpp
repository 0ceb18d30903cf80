#pragma once

#include <string>
#include <vector>

#include "src/cli/options.hpp"

namespace tandem {

// `tandem --help`: at most 24 lines of 80 columns, so that it fits any terminal.
std::string program_help(const std::vector<Command>& commands);

// `tandem NAME --help`: usage, one working example, options and keys with units and defaults.
std::string command_help(const Command& command);

}  // namespace tandem
