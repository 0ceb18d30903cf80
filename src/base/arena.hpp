// One block of memory, sized before the run and touched at its start: no allocation and no page fault in an
// update.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

// A dry run of the takes, marks and releases that an Arena will see: bytes() is what it must hold.
class ArenaPlan {
 public:
  template <class T>
  std::span<T> take(std::int64_t count) {
    used_ += padded(static_cast<std::size_t>(count) * sizeof(T));
    bytes_ = std::max(bytes_, used_);
    return {static_cast<T*>(nullptr), static_cast<std::size_t>(0)};
  }
  std::size_t mark() const { return used_; }
  void release(std::size_t mark) { used_ = mark; }
  std::size_t bytes() const { return bytes_; }

  // Pieces start at multiples of 64 bytes (a cache line, a vector register).
  static constexpr std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  std::size_t used_ = 0;
  std::size_t bytes_ = 0;
};

// Takes pieces of a block that belongs to somebody else.
class ArenaView {
 public:
  ArenaView(std::span<std::byte> block, const char* what) : block_(block), what_(what) {}

  // The next `count` elements; throws kInternal when the plan was too small.
  template <class T>
  std::span<T> take(std::int64_t count) {
    return {static_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T))),
            static_cast<std::size_t>(count)};
  }
  // Temporaries: what was taken since `mark` is free again after release(mark).
  std::size_t mark() const { return used_; }
  void release(std::size_t mark) { used_ = mark; }

 protected:
  void* take_bytes(std::size_t bytes);

  std::span<std::byte> block_;
  std::size_t used_ = 0;
  const char* what_ = "";
};

class Arena : public ArenaView {
 public:
  Arena() : ArenaView({}, "") {}
  // Maps `bytes` at a 2 MiB boundary, asks for huge pages and writes zeros to every page.
  // Throws kDevice naming `what` and the size if the system refuses.
  Arena(std::size_t bytes, const char* what);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::span<std::byte> block() const { return block_; }
  std::size_t bytes() const { return block_.size(); }
  std::size_t used() const { return used_; }

 private:
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
};

}  // namespace tandem
