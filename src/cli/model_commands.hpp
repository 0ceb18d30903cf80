// Entries of the program's table for the commands that use a trained model: export, generate, eval.
#pragma once

#include <vector>

#include "src/cli/options.hpp"

namespace tandem {

std::vector<Command> model_commands();

}  // namespace tandem
