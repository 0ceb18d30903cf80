// `tandem inspect --validate`: a file held to io/FORMAT.md, for people or as JSON.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>

#include "io/trajectory_validation.hpp"

namespace tandem {

// With the run's plan from its canonical texts.
Validity validate_file(const std::filesystem::path& file);

void write_validity(std::ostream& out, const std::filesystem::path& file, const Validity& validity);
nlohmann::ordered_json validity_json(const std::filesystem::path& file, const Validity& validity);

}  // namespace tandem
