#include "src/cli/launch_rank.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace tandem {

namespace {

std::optional<int> number(const char* name) {
  const char* text = std::getenv(name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, value);
  if (result.ec != std::errc() || result.ptr != end || value < 0) return std::nullopt;
  return value;
}

}  // namespace

LaunchRank launch_rank() {
  constexpr std::array<std::array<const char*, 2>, 3> kVariables = {
      {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
       {"PMI_RANK", "PMI_SIZE"},
       {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}};
  for (const auto& [rank_name, size_name] : kVariables) {
    const auto rank = number(rank_name), size = number(size_name);
    if (rank && size && *rank < *size) return {*rank, *size};
  }
  return {};
}

}  // namespace tandem
