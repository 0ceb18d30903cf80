#include "src/base/arena.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

Arena::Arena(std::size_t bytes, const char* what) : ArenaView({}, what) {
  const std::size_t size = ArenaPlan::padded(bytes);
  if (size == 0) return;
  mapping_bytes_ = (size + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw Error(ErrorKind::kDevice,
                cat("out of memory: ", size >> 20, " MiB for ", what, ": ", std::strerror(errno)));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  block_ = {reinterpret_cast<std::byte*>((address + kHugePage - 1) / kHugePage * kHugePage), size};
  madvise(block_.data(), mapping_bytes_ - kHugePage,
          MADV_HUGEPAGE);  // a wish: without huge pages all still works
  std::memset(block_.data(), 0, size);
}

Arena::~Arena() {
  if (mapping_) munmap(mapping_, mapping_bytes_);
}

Arena::Arena(Arena&& other) noexcept : Arena() { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(block_, other.block_);
  std::swap(used_, other.used_);
  std::swap(what_, other.what_);
  return *this;
}

void* ArenaView::take_bytes(std::size_t bytes) {
  const std::size_t size = ArenaPlan::padded(bytes);
  if (size > block_.size() - used_)
    throw Error(ErrorKind::kInternal, cat("arena of ", what_, " is full: ", used_, " of ", block_.size(),
                                          " bytes used, ", size, " asked for"));
  void* piece = block_.data() + used_;
  used_ += size;
  return piece;
}

}  // namespace tandem
