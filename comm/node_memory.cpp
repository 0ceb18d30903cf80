#include "comm/node_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

NodeMemory::NodeMemory(Communicator& node, std::size_t bytes, const std::string& what) {
  if (node.size() > 1 && share(node, bytes)) {
    fills_ = node.rank() == 0;
    return;
  }
  private_ = Arena(bytes, what.c_str());
  block_ = private_.block();
}

NodeMemory::~NodeMemory() {
  if (mapping_) munmap(mapping_, block_.size());
}

// The first rank makes a shared segment and fills it with pages (so a small /dev/shm is found here and not by
// a bus error later), the others map it, and its name is gone before anything is computed: nothing outlives
// the ranks.
bool NodeMemory::share(Communicator& node, std::size_t bytes) {
  std::array<char, 64> name{};
  int file = -1;
  std::string failure;
  if (node.rank() == 0) {
    const std::string own = cat("/tandem-weights-", getpid());
    own.copy(name.data(), name.size() - 1);
    shm_unlink(name.data());
    file = shm_open(name.data(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    int error = file < 0 ? errno : posix_fallocate(file, 0, static_cast<off_t>(bytes));
    if (error != 0) failure = std::strerror(error);
  }
  node.broadcast(std::as_writable_bytes(std::span(name)), 0);
  const bool made = node.all_gather_text(failure)[0].empty();
  if (made && node.rank() != 0) {
    file = shm_open(name.data(), O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) failure = std::strerror(errno);
  }
  if (made && file >= 0) {
    mapping_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapping_ == MAP_FAILED) {
      mapping_ = nullptr;
      failure = std::strerror(errno);
    }
  }
  if (file >= 0) close(file);
  std::string first;
  for (const std::string& text : node.all_gather_text(failure))
    if (first.empty()) first = text;
  if (node.rank() == 0) shm_unlink(name.data());
  if (!first.empty()) {
    if (mapping_) munmap(mapping_, bytes);
    mapping_ = nullptr;
    warning_ = cat("the ranks of this node cannot share ", bytes >> 20, " MiB of weights (", first,
                   "): each keeps a copy; a larger /dev/shm would do");
    return false;
  }
  block_ = {static_cast<std::byte*>(mapping_), bytes};
  return true;
}

}  // namespace tandem
