// `tandem check`: levels 1 to 3 of a run before it begins, native against the mirror, in one process.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "kernels/context.hpp"
#include "src/check/report.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

struct CheckOptions {
  std::filesystem::path out;                 // trajectory file to write: /load, /render, /ops; empty: none
  std::map<std::string, std::string> facts;  // versions and build: go to its /provenance
  double seconds = 20.0;   // that the mirror may take for a held-out loss, and for a gradient
  std::int64_t shown = 3;  // samples of CheckReport::shown
  std::function<void(const std::string&)> progress = {};  // is given what is being looked at
  std::function<void(const std::string&)> warning = {};
};

// Throws kInput and kUsage for inputs that cannot be read or that the mirror does not compute, kDevice where
// the run would not fit into memory.
CheckReport run_check(Config config, const CpuContext& ctx, const CheckOptions& options);

}  // namespace tandem
