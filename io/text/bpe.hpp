// Byte pair encoding: of all neighbouring pairs the one of lowest rank, the leftmost first, is merged until
// none is left (Sennrich et al. 2016).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

class Bpe {
 public:
  struct Symbol {
    std::int32_t id;
    std::uint32_t begin;  // offset of its first byte in the piece
    std::int32_t prev, next;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;  // index of the left symbol
    std::int32_t left_id, right_id;
  };
  // Room that calls share, one per thread.
  struct Room {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // id of the token of one byte; -1: the vocabulary has none, and the byte leaves no trace.
  void set_byte(unsigned char byte, std::int32_t id) { byte_ids_[byte] = id; }
  // A pair given again takes the later rank, as in the reference implementation. Before the first call of
  // encode().
  void add_merge(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t merged);
  void reserve(std::size_t n_merges);

  // Appends the piece's ids and the offset of each one's first byte, plus `offset`. Returns the number of
  // bytes without a token. O(n log n).
  std::size_t encode(std::string_view piece, std::size_t offset, Room& room, std::vector<std::int32_t>& ids,
                     std::vector<std::size_t>& first_byte) const;

  Bpe() { byte_ids_.fill(-1); }

 private:
  struct Merge {
    std::uint64_t pair = kNoPair;
    std::uint32_t rank = 0;
    std::int32_t merged = -1;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  const Merge* find(std::int32_t left, std::int32_t right) const;
  std::size_t slot_of(std::uint64_t pair) const;
  void grow(std::size_t slots);
  void offer(std::int32_t left, Room& room) const;

  std::array<std::int32_t, 256> byte_ids_;
  std::vector<Merge> table_;  // open addressing; the size is a power of two, at most half full
  std::size_t n_merges_ = 0;
};

}  // namespace tandem
