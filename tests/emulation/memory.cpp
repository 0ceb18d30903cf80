#include "tests/emulation/memory.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/emulated.hpp"
#include "src/base/text.hpp"
#include "tests/emulation/emulation.hpp"
#include "tests/emulation/grid.hpp"

namespace tandem::emulation {

namespace {

using cuda::emulated::violation;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kGuard = std::size_t{1} << 20;
constexpr std::size_t kReserve = std::size_t{1} << 40;  // addresses, which are never used twice
constexpr std::size_t kAlignment = 256;
// Large allocations lie in huge pages: to close and open them page by page takes milliseconds.
constexpr std::size_t kHugePage = std::size_t{2} << 20, kLarge = kHugePage / 2;
constexpr std::size_t kCheckedBefore = std::size_t{16} << 10;

struct Allocation {
  std::byte* pages;
  std::size_t pages_bytes;
  std::byte* begin;
  std::size_t bytes;
  int device;

  std::byte* end() const { return begin + bytes; }
  std::string named() const { return cat("an allocation of ", bytes, " bytes"); }
};

struct Memory {
  std::recursive_mutex lock;
  std::byte* reserve = nullptr;
  std::size_t used = 0;
  int open = 0;
  std::map<const std::byte*, Allocation> allocations;  // by `pages`
  std::map<int, std::size_t> in_use;

  Memory();
  bool contains(const void* pointer) const {
    const auto* const at = static_cast<const std::byte*>(pointer);
    return at >= reserve && at < reserve + kReserve;
  }
  const Allocation* before(const void* pointer) const {
    auto after = allocations.upper_bound(static_cast<const std::byte*>(pointer));
    return after == allocations.begin() ? nullptr : &std::prev(after)->second;
  }
};

Memory& memory() {
  static auto* const it = new Memory;  // outlives static objects that free device memory
  return *it;
}

std::string access_line(const void* at) {
  const auto* const address = static_cast<const std::byte*>(at);
  const Allocation* const nearest = memory().before(at);
  if (!nearest) return "accesses device memory that is not allocated";
  if (address >= nearest->end())
    return cat("accesses device memory ", address - nearest->end(), " bytes past the end of ",
               nearest->named(), " (or one since freed)");
  if (address < nearest->begin)
    return cat("accesses device memory ", nearest->begin - address, " bytes before ", nearest->named());
  return cat("accesses device memory, byte ", address - nearest->begin, " of ", nearest->named());
}

struct sigaction handler_before;

// Anything may be done here: the program ends.
void on_fault(int, siginfo_t* info, void*) {
  const bool in_kernel = !running_place().empty();
  if (in_kernel && is_stack_guard(info->si_addr)) violation("has used up its stack");
  if (memory().contains(info->si_addr))
    violation(((in_kernel ? "" : "host code ") + access_line(info->si_addr)).c_str());
  if (in_kernel) violation("accesses memory that is not mapped");
  sigaction(SIGSEGV, &handler_before, nullptr);  // the access is made again, and not ours
}

Memory::Memory() {
  void* const at =
      mmap(nullptr, kReserve + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) violation("no addresses for the devices' memory");
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  reserve = reinterpret_cast<std::byte*>((address + kHugePage - 1) / kHugePage * kHugePage);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &handler_before);
}

// A fault on a fiber's guard has no stack left for its handler.
void give_signal_stack() {
  static thread_local std::unique_ptr<std::byte[]> stack;
  if (stack) return;
  constexpr std::size_t kBytes = std::size_t{64} << 10;
  stack = std::make_unique<std::byte[]>(kBytes);
  stack_t now = {};
  sigaltstack(nullptr, &now);
  if (!(now.ss_flags & SS_DISABLE)) return;
  now = {};
  now.ss_sp = stack.get();
  now.ss_size = kBytes;
  sigaltstack(&now, nullptr);
}

void protect(const Allocation& allocation, bool open) {
  mprotect(allocation.pages, allocation.pages_bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

bool untouched(const std::byte* begin, const std::byte* end) {
  static const std::vector<std::byte> blank(kCheckedBefore, std::byte{0xFF});
  return std::memcmp(begin, blank.data(), static_cast<std::size_t>(end - begin)) == 0;
}

}  // namespace

void* allocate(int device, std::size_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.lock);
  if (bytes > facts().memory_bytes || m.in_use[device] > facts().memory_bytes - bytes) return nullptr;
  Allocation allocation;
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t page = bytes < kLarge ? kPage : kHugePage;
  allocation.pages_bytes = (padded + kAlignment + page - 1) / page * page;
  m.used = (m.used + kGuard + page - 1) / page * page;
  if (m.used + allocation.pages_bytes + kGuard > kReserve) violation("has used up all device addresses");
  allocation.pages = m.reserve + m.used;
  allocation.begin = allocation.pages + allocation.pages_bytes - padded;
  allocation.bytes = bytes;
  allocation.device = device;
  if (mprotect(allocation.pages, allocation.pages_bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
  if (page == kHugePage) madvise(allocation.pages, allocation.pages_bytes, MADV_HUGEPAGE);  // a wish
  std::memset(allocation.pages, 0xFF, allocation.pages_bytes);
  if (m.open == 0) protect(allocation, false);
  m.used += allocation.pages_bytes;
  m.in_use[device] += bytes;
  m.allocations[allocation.pages] = allocation;
  return allocation.begin;
}

bool release(void* pointer) {
  Memory& m = memory();
  const std::lock_guard lock(m.lock);
  const Allocation* const found = m.contains(pointer) ? m.before(pointer) : nullptr;
  if (!found || found->begin != pointer) return false;
  const Allocation allocation = *found;
  mmap(allocation.pages, allocation.pages_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  m.in_use[allocation.device] -= allocation.bytes;
  m.allocations.erase(allocation.pages);
  return true;
}

std::size_t bytes_in_use(int device) {
  const std::lock_guard lock(memory().lock);
  return memory().in_use[device];
}

void check_surroundings(const std::string& writer) {
  Memory& m = memory();
  const std::lock_guard lock(m.lock);
  for (const auto& [pages, allocation] : m.allocations) {
    if (!untouched(std::max(allocation.pages, allocation.begin - kCheckedBefore), allocation.begin))
      violation(cat(writer, " wrote before ", allocation.named()).c_str());
    if (!untouched(allocation.end(), allocation.pages + allocation.pages_bytes))
      violation(cat(writer, " wrote past the end of ", allocation.named()).c_str());
  }
}

std::mutex& device_lock() {
  static std::mutex lock;
  return lock;
}

MemoryAccess::MemoryAccess() {
  give_signal_stack();
  Memory& m = memory();
  const std::lock_guard lock(m.lock);
  if (m.open++ > 0) return;
  for (const auto& [pages, allocation] : m.allocations) protect(allocation, true);
}

MemoryAccess::~MemoryAccess() {
  Memory& m = memory();
  const std::lock_guard lock(m.lock);
  if (--m.open > 0) return;
  for (const auto& [pages, allocation] : m.allocations) protect(allocation, false);
}

bool is_device_address(const void* pointer) { return memory().contains(pointer); }

void check_device_range(const char* what, const void* pointer, std::size_t bytes) {
  if (bytes == 0) return;
  Memory& m = memory();
  const std::lock_guard lock(m.lock);
  if (!m.contains(pointer)) violation(cat(what, " is given host memory where it needs a device's").c_str());
  const auto* const begin = static_cast<const std::byte*>(pointer);
  const Allocation* const found = m.before(pointer);
  if (!found || begin < found->begin || begin > found->end())
    violation(cat(what, " is given device memory that is not allocated").c_str());
  if (bytes > static_cast<std::size_t>(found->end() - begin))
    violation(
        cat(what, " is given ", bytes, " bytes from byte ", begin - found->begin, " of ", found->named())
            .c_str());
}

}  // namespace tandem::emulation

namespace tandem::cuda::emulated {

void check_argument(const char* kernel, const void* argument, std::size_t bytes) {
  constexpr std::uintptr_t kLowest = std::uintptr_t{1} << 32, kHighest = std::uintptr_t{1} << 47;
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes; at += sizeof(std::uintptr_t)) {
    std::uintptr_t word;
    std::memcpy(&word, static_cast<const std::byte*>(argument) + at, sizeof(word));
    if (word < kLowest || word >= kHighest) continue;
    const auto* const pointer = reinterpret_cast<const void*>(word);
    if (emulation::is_device_address(pointer)) continue;
    unsigned char resident;
    auto* const page = reinterpret_cast<void*>(word / emulation::kPage * emulation::kPage);
    if (mincore(page, 1, &resident) == 0)
      violation(cat("kernel ", kernel, " is given a pointer to the host's memory").c_str());
  }
}

}  // namespace tandem::cuda::emulated
