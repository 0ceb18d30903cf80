#include "src/spec/nearest.hpp"

#include <algorithm>
#include <limits>

namespace tandem {

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the dynamic programme: i-2, i-1 and i.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  int best_distance = std::numeric_limits<int>::max();
  for (const std::string& candidate : candidates) {
    int distance = 2 * edit_distance(name, candidate);
    // `rank` for `lora.rank`: the last part of a dotted key alone is a near miss, whatever its prefix's
    // length.
    const std::size_t dot = candidate.find('.');
    if (dot != std::string::npos)
      distance = std::min(distance, 2 * edit_distance(name, std::string_view(candidate).substr(dot + 1)) + 1);
    // So is the beginning of a name.
    if (!name.empty() && candidate.starts_with(name)) distance = std::min(distance, 2);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tandem
