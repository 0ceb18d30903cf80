// One block of memory for all ranks of a node: what is the same on all of them is kept once.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "comm/communicator.hpp"
#include "src/base/arena.hpp"

namespace tandem {

class NodeMemory {
 public:
  // Collective over `node` (Communicator::node()). A single rank, and ranks whose node has too little shared
  // memory
  // (/dev/shm), get a block of their own each. Throws kDevice naming `what` where even that cannot be had.
  NodeMemory(Communicator& node, std::size_t bytes, const std::string& what);
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  std::span<std::byte> block() const { return block_; }
  // Whether this rank is to fill the block; the others wait at a barrier of the node and then read.
  bool fills() const { return fills_; }
  // "" or why the ranks could not share.
  const std::string& warning() const { return warning_; }

 private:
  bool share(Communicator& node, std::size_t bytes);

  std::span<std::byte> block_;
  bool fills_ = true;
  std::string warning_;
  void* mapping_ = nullptr;
  Arena private_;
};

}  // namespace tandem
