// Holds a file to io/FORMAT.md: everything that a reader could trip over, told at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "io/format/findings.hpp"
#include "io/format/rules.hpp"

namespace tandem {

struct Validity {
  std::vector<format::Problem> problems;
  std::vector<std::string> present, absent;  // groups of the format
  std::vector<std::string> ignored;          // names that are none of it
  bool valid() const { return problems.empty(); }
};

// The caller reads the canonical texts of spec and execution, which are empty where the file has none.
using ReadPlan = std::function<format::RunPlan(const std::string& spec, const std::string& execution)>;

// A trajectory with the snapshots it links, or a snapshot by itself. Each file is read by a child process
// with bounded memory and time (contained.hpp). Throws nothing for what a file holds: also one that is no
// HDF5 file is a problem. Not for a process that runs MPI.
Validity validate_trajectory(const std::filesystem::path& file, const ReadPlan& read_plan);

// The same in this process, and without the snapshots' files: for files whose HDF5 is sound.
Validity validate_in_process(const std::filesystem::path& file, const ReadPlan& read_plan);

}  // namespace tandem
