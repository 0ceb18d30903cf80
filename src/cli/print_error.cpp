#include "src/cli/print_error.hpp"

#include <iostream>

#include "src/base/text.hpp"
#include "src/cli/launch_rank.hpp"

namespace tandem {

void print_error(const std::string& text) {
  const LaunchRank rank = launch_rank();
  std::string line = rank.size > 1 ? cat("[rank ", rank.rank, "/", rank.size, " ", host_name(), "] ", text)
                                   : "tandem: " + text;
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  std::cerr << line + "\n" << std::flush;
}

}  // namespace tandem
