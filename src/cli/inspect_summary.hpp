// What `tandem inspect` says of one trajectory, for people or as JSON.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>

#include "io/trajectory_reader.hpp"

namespace tandem {

void write_summary(std::ostream& out, const Trajectory& trajectory);
nlohmann::ordered_json summary_json(const Trajectory& trajectory);

}  // namespace tandem
