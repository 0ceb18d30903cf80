// A comparison for people and for programs.
#pragma once

#include <iosfwd>
#include <span>
#include <string>

#include "src/compare/compare.hpp"

namespace tandem {

struct ViewOptions {
  bool colour = false;
  bool all = false;  // every observation, not only those that failed or were not checked
};

void write_view(const Comparison& comparison, const ViewOptions& options, std::ostream& out);
void write_json(const Comparison& comparison, std::ostream& out);

// One character a value, from the lowest block (-largest) to the highest (+largest); of more than `width`
// values, means of neighbours.
std::string block_line(std::span<const double> values, std::size_t width);

}  // namespace tandem
