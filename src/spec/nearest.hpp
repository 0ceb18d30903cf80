// Names that a mistyped one may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal string alignment
// distance).
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`; the first of equals. "" when there is none.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace tandem
