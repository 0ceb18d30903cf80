#pragma once

#include <vector>

#include "src/cli/options.hpp"

namespace tandem {

// The program's commands, in the order of its help.
const std::vector<Command>& commands();

}  // namespace tandem
