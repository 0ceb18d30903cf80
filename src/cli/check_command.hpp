// `tandem check`: what differs between the stacks before anything is trained (src/check).
#pragma once

#include <filesystem>
#include <iosfwd>

#include "src/spec/run_spec.hpp"

namespace tandem {

struct CheckView {
  std::filesystem::path out;  // trajectory file to write; empty: none
  double seconds = 20.0;      // CheckOptions::seconds
  bool json = false, colour = false;
};

// Returns the exit code: 0, or 5 where something differs. Throws what run_check throws.
int check_command(Config config, const CheckView& view, std::ostream& out);

}  // namespace tandem
