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

Arena::Arena(std::size_t bytes, const char* what) : bytes_(ArenaPlan::padded(bytes)), what_(what) {
  if (bytes_ == 0) return;
  mapping_bytes_ = (bytes_ + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw Error(ErrorKind::kDevice, cat("out of memory: ", bytes_ >> 20, " MiB for ", what, ": ", std::strerror(errno)));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  begin_ = reinterpret_cast<std::byte*>((address + kHugePage - 1) / kHugePage * kHugePage);
  madvise(begin_, mapping_bytes_ - kHugePage, MADV_HUGEPAGE);  // a wish: without huge pages all still works
  std::memset(begin_, 0, bytes_);
}

Arena::~Arena() {
  if (mapping_) munmap(mapping_, mapping_bytes_);
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(begin_, other.begin_);
  std::swap(bytes_, other.bytes_);
  std::swap(used_, other.used_);
  std::swap(what_, other.what_);
  return *this;
}

void* Arena::take_bytes(std::size_t bytes) {
  const std::size_t size = ArenaPlan::padded(bytes);
  if (size > bytes_ - used_)
    throw Error(ErrorKind::kInternal, cat("arena of ", what_, " is full: ", used_, " of ", bytes_, " bytes used, ", size, " asked for"));
  void* piece = begin_ + used_;
  used_ += size;
  return piece;
}

}  // namespace tandem
