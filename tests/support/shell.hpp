// Runs a line of shell and keeps what it printed and how it ended.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temp_folder.hpp"

namespace tandem::support {

struct ShellResult {
  int code = 0;  // -1: ended by a signal
  std::string out, err;
};

// In `folder`; the files `out` and `err` there are the line's own.
inline ShellResult run_shell(const TempFolder& folder, const std::string& line) {
  // The test's own launcher, if any, must not be taken for the line's.
  const std::string clean = "for v in ${!OMPI_*} ${!PMIX_*} ${!SLURM_*}; do unset $v; done; ";
  write_text(folder / "line.sh",
             clean + "cd '" + folder.path().string() + "'; {\n" + line + "\n} >out 2>err\n");
  const int status = std::system(("bash '" + (folder / "line.sh").string() + "'").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(folder / "out"), read_text(folder / "err")};
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace tandem::support
