#include "src/cli/print_error.hpp"

#include <iostream>

#include "src/base/host.hpp"
#include "src/base/text.hpp"
#include "src/cli/launch_rank.hpp"

namespace tandem {

std::string error_line(const std::string& text) {
  const LaunchRank rank = launch_rank();
  const std::string who =
      rank.size > 1 ? cat("[rank ", rank.rank, "/", rank.size, " ", short_host_name(), "] ") : "tandem: ";
  return who + printable_line(text);
}

void print_error(const std::string& text) { std::cerr << error_line(text) + "\n" << std::flush; }

}  // namespace tandem
