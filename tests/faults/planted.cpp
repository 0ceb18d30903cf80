// Which fault is planted: asked of the environment once, since attention asks in every pass.
#include <cstdlib>
#include <string>

#include "src/base/fault.hpp"

namespace tandem {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

bool planted(const char* name) {
  static const std::string fault = variable("TANDEM_FAULT");
  return fault == name;
}

bool strikes(int rank, std::int64_t update) {
  static const std::string only_rank = variable("TANDEM_FAULT_RANK"),
                           only_update = variable("TANDEM_FAULT_UPDATE");
  return (only_rank.empty() || only_rank == std::to_string(rank)) &&
         (only_update.empty() || only_update == std::to_string(update));
}

}  // namespace tandem
