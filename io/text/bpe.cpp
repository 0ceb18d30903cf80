#include "io/text/bpe.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/random.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

// For a heap whose top is the lowest rank, the leftmost of equal ones.
bool later(const Bpe::Candidate& a, const Bpe::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

}  // namespace

void Bpe::reserve(std::size_t n_merges) { grow(std::bit_ceil(2 * n_merges + 2)); }

void Bpe::grow(std::size_t slots) {
  if (slots <= table_.size()) return;
  const std::vector<Merge> old = std::exchange(table_, std::vector<Merge>(slots));
  for (const Merge& merge : old)
    if (merge.pair != kNoPair) table_[slot_of(merge.pair)] = merge;
}

void Bpe::add_merge(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t merged) {
  if (2 * (n_merges_ + 1) > table_.size()) grow(std::max<std::size_t>(16, 2 * table_.size()));
  Merge& slot = table_[slot_of(pair_of(left, right))];
  n_merges_ += slot.pair == kNoPair;
  slot = {pair_of(left, right), rank, merged};
}

// Where the pair stands, or the free slot where it would.
std::size_t Bpe::slot_of(std::uint64_t pair) const {
  std::size_t slot = splitmix64(pair) & (table_.size() - 1);
  while (table_[slot].pair != pair && table_[slot].pair != kNoPair) slot = (slot + 1) & (table_.size() - 1);
  return slot;
}

const Bpe::Merge* Bpe::find(std::int32_t left, std::int32_t right) const {
  if (table_.empty()) return nullptr;
  const Merge& merge = table_[slot_of(pair_of(left, right))];
  return merge.pair == kNoPair ? nullptr : &merge;
}

void Bpe::offer(std::int32_t left, Room& room) const {
  if (left < 0) return;
  const Symbol& symbol = room.symbols[static_cast<std::size_t>(left)];
  if (symbol.next < 0) return;
  const std::int32_t right_id = room.symbols[static_cast<std::size_t>(symbol.next)].id;
  const Merge* merge = find(symbol.id, right_id);
  if (!merge) return;
  room.heap.push_back({merge->rank, left, symbol.id, right_id});
  std::push_heap(room.heap.begin(), room.heap.end(), later);
}

std::size_t Bpe::encode(std::string_view piece, std::size_t offset, Room& room,
                        std::vector<std::int32_t>& ids, std::vector<std::size_t>& first_byte) const {
  if (piece.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw Error(ErrorKind::kInput,
                cat("a text of ", piece.size(), " bytes without a place to split; at most 2^31 - 1"));
  auto& symbols = room.symbols;
  symbols.clear();
  room.heap.clear();
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(piece[i])];
    if (id < 0) continue;
    const auto index = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, static_cast<std::uint32_t>(i), index - 1, index + 1});
  }
  const std::size_t lost = piece.size() - symbols.size();
  if (symbols.empty()) return lost;
  symbols.back().next = -1;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) offer(i, room);

  constexpr std::int32_t kGone = -1;  // id of a symbol that its left neighbour swallowed
  while (!room.heap.empty()) {
    const Candidate best = room.heap.front();
    std::pop_heap(room.heap.begin(), room.heap.end(), later);
    room.heap.pop_back();
    Symbol& left = symbols[static_cast<std::size_t>(best.left)];
    if (left.id != best.left_id || left.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (right.id != best.right_id) continue;
    left.id = find(best.left_id, best.right_id)->merged;
    left.next = right.next;
    right.id = kGone;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].prev = best.left;
    offer(left.prev, room);
    offer(best.left, room);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    const Symbol& symbol = symbols[static_cast<std::size_t>(i)];
    ids.push_back(symbol.id);
    first_byte.push_back(offset + symbol.begin);
  }
  return lost;
}

}  // namespace tandem
