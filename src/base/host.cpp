#include "src/base/host.hpp"

#include <unistd.h>

#include <array>

namespace tandem {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return name.data();
}

std::string short_host_name() {
  const std::string full = host_name();
  return full.substr(0, full.find('.'));
}

}  // namespace tandem
