#include "io/clinical/json_lines.hpp"

#include "io/text/strict_json.hpp"

namespace tandem {

namespace {
constexpr std::size_t kBlockBytes = 1 << 20;
}

JsonLines::JsonLines(const std::filesystem::path& file) : name_(file.string()), reader_(file) {}

std::optional<JsonLines::Value> JsonLines::next() {
  if (at_ == block_.size()) {
    block_ = reader_.next_block(kBlockBytes);
    at_ = 0;
    if (block_.empty()) return std::nullopt;
  }
  const Line& line = block_[at_++];
  return Value{parse_strict_json(line.text, name_, line.number), line.number};
}

}  // namespace tandem
