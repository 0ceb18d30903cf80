#include "tests/emulation/grid.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/emulated.hpp"
#include "src/base/text.hpp"
#include "tests/emulation/emulation.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace tandem::cuda::emulated {
constinit thread_local Place here;
}

namespace tandem::emulation {

namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;
using cuda::emulated::here;
using cuda::emulated::LaneBytes;
using cuda::emulated::violation;

constexpr int kMaxThreads = 1024, kLanes = 32;
constexpr std::size_t kPage = 4096, kStackBytes = std::size_t{256} << 10;  // the lowest page is a guard
constexpr std::size_t kMaxShared = std::size_t{256} << 10;

Order order_now;

struct LateCopy {
  void* to;
  const void* from;
  std::size_t taken, bytes;
};

// A fiber runs threads one after the other, and another fiber takes over when its thread has to wait.
struct Fiber {
  fcontext_t context = nullptr;
  int thread = -1;
  std::byte* stack = nullptr;
  void* fake_stack = nullptr;  // the address sanitizer's
};

struct Warp {
  int waiting = 0, ended = 0;
  const char* operation = nullptr;
  int turn = 0;
  LaneBytes given[2][kLanes];
};

struct LateCopies {
  std::vector<LateCopy> open;
  std::vector<std::vector<LateCopy>> groups;
};

// Runs blocks on one host thread.
class Scheduler {
 public:
  Scheduler();
  ~Scheduler();

  void run(const std::string& name, const GridShape& shape, const std::function<void()>& thread);

  void barrier();
  const LaneBytes* gather(const char* operation, const void* mine, std::size_t bytes);
  void* shared(std::size_t bytes);
  LateCopies& copies() { return copies_[static_cast<std::size_t>(here.thread)]; }
  bool is_running() const { return body_ != nullptr; }
  const std::string& name() const { return name_; }
  bool is_stack_guard(const void* address) const;

 private:
  void run_block();
  void shuffle_threads(std::uint64_t block);
  void make_ready(int thread) { ready_.push_back(fiber_of_[static_cast<std::size_t>(thread)]); }
  void wait();
  Fiber* next();
  void switch_to(Fiber* to);
  void arrived(transfer_t from);
  Fiber* idle_fiber();
  static void entry(transfer_t from);
  [[noreturn]] void run_threads();
  void thread_ended();
  std::size_t padded_shared_bytes() const { return (shape_.shared_bytes + 15) / 16 * 16; }
  std::byte* shared_begin() const { return shared_ + kMaxShared - padded_shared_bytes(); }

  std::byte* stacks_ = nullptr;
  std::byte* shared_ = nullptr;  // ends at a guard page
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<Fiber*> ready_;  // the last is the next
  Fiber main_;
  Fiber* running_ = nullptr;
#ifdef __SANITIZE_ADDRESS__
  Fiber* before_ = nullptr;
  const void* main_bottom_ = nullptr;
  std::size_t main_bytes_ = 0;
#endif

  std::string name_;
  GridShape shape_;
  const std::function<void()>* body_ = nullptr;
  std::vector<int> order_;        // of threads
  std::vector<int> warp_order_;   // of threads, those of a warp together
  std::vector<Fiber*> fiber_of_;  // by thread
  std::size_t n_started_ = 0;
  int n_ended_ = 0, at_barrier_ = 0, at_exchange_ = 0;
  std::vector<Warp> warps_;
  std::vector<LateCopies> copies_;
};

Scheduler& scheduler() {
  static thread_local Scheduler it;
  return it;
}
// Also for the signal handler, which must not make one.
constinit thread_local Scheduler* scheduler_here = nullptr;

void* map_or_die(std::size_t bytes) {
  void* const at =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) violation("no memory for the fibers");
  return at;
}

Scheduler::Scheduler() {
  stacks_ = static_cast<std::byte*>(map_or_die(kMaxThreads * kStackBytes));
  shared_ = static_cast<std::byte*>(map_or_die(kMaxShared + kPage));
  mprotect(shared_ + kMaxShared, kPage, PROT_NONE);
  fiber_of_.resize(kMaxThreads);
  copies_.resize(kMaxThreads);
  scheduler_here = this;
}

Scheduler::~Scheduler() {
  scheduler_here = nullptr;
  munmap(stacks_, kMaxThreads * kStackBytes);
  munmap(shared_, kMaxShared + kPage);
}

bool Scheduler::is_stack_guard(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  if (at < stacks_ || at >= stacks_ + kMaxThreads * kStackBytes) return false;
  return static_cast<std::size_t>(at - stacks_) % kStackBytes < kPage;
}

// ---- fibers ----

void Scheduler::arrived(transfer_t from) {
  *static_cast<fcontext_t*>(from.data) = from.fctx;
#ifdef __SANITIZE_ADDRESS__
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(running_->fake_stack, &bottom, &bytes);
  if (before_ == &main_) {
    main_bottom_ = bottom;
    main_bytes_ = bytes;
  }
#endif
}

void Scheduler::switch_to(Fiber* to) {
  Fiber* const self = running_;
  running_ = to;
  here.thread = to->thread;
#ifdef __SANITIZE_ADDRESS__
  before_ = self;
  if (to == &main_)
    __sanitizer_start_switch_fiber(&self->fake_stack, main_bottom_, main_bytes_);
  else
    __sanitizer_start_switch_fiber(&self->fake_stack, to->stack + kPage, kStackBytes - kPage);
#endif
  const transfer_t from = jump_fcontext(to->context, &self->context);
  arrived(from);
}

Fiber* Scheduler::idle_fiber() {
  if (!idle_.empty()) {
    Fiber* const fiber = idle_.back();
    idle_.pop_back();
    return fiber;
  }
  auto fiber = std::make_unique<Fiber>();
  fiber->stack = stacks_ + fibers_.size() * kStackBytes;
  mprotect(fiber->stack, kPage, PROT_NONE);
  fiber->context = make_fcontext(fiber->stack + kStackBytes, kStackBytes - kPage, entry);
  fibers_.push_back(std::move(fiber));
  return fibers_.back().get();
}

void Scheduler::entry(transfer_t from) {
  Scheduler& self = scheduler();
  self.arrived(from);
  self.run_threads();
}

// A thread that others wait for is carried on first, so that a warp runs ahead of the others as far as it
// can: that shows a missing barrier.
Fiber* Scheduler::next() {
  if (!ready_.empty()) {
    Fiber* const fiber = ready_.back();
    ready_.pop_back();
    return fiber;
  }
  if (n_started_ < order_.size()) return idle_fiber();
  return &main_;
}

void Scheduler::wait() {
  Fiber* const to = next();
  if (to != running_) switch_to(to);
}

void Scheduler::run_threads() {
  Fiber* const self = running_;
  for (;;) {
    while (ready_.empty() && n_started_ < order_.size()) {
      self->thread = order_[n_started_++];
      here.thread = self->thread;
      fiber_of_[static_cast<std::size_t>(self->thread)] = self;
      (*body_)();
      thread_ended();
    }
    idle_.push_back(self);
    Fiber* const to = next();
    if (to == self) continue;
    switch_to(to);
  }
}

void Scheduler::thread_ended() {
  ++n_ended_;
  Warp& warp = warps_[static_cast<std::size_t>(here.thread / kLanes)];
  ++warp.ended;
  if (at_barrier_ > 0) violation("has ended while others of its block wait at a barrier");
  if (warp.waiting > 0) violation("has ended while other lanes of its warp wait at a shuffle");
  LateCopies& late = copies();
  late.open.clear();
  late.groups.clear();
}

// ---- blocks ----

void Scheduler::shuffle_threads(std::uint64_t block) {
  const auto threads = static_cast<std::size_t>(shape_.threads);
  order_.resize(threads);
  std::iota(order_.begin(), order_.end(), 0);
  if (order_now.kind == Order::kReverse) std::reverse(order_.begin(), order_.end());
  if (order_now.kind == Order::kShuffled) {
    std::mt19937_64 random(order_now.seed * 0x9E3779B97F4A7C15u + block);
    std::shuffle(order_.begin(), order_.end(), random);
  }
  warp_order_ = order_;
  std::stable_sort(warp_order_.begin(), warp_order_.end(),
                   [](int a, int b) { return a / kLanes < b / kLanes; });
}

void Scheduler::run(const std::string& name, const GridShape& shape, const std::function<void()>& thread) {
  name_ = name;
  shape_ = shape;
  body_ = &thread;
  here = {};
  here.threads = shape.threads;
  std::copy(std::begin(shape.blocks), std::end(shape.blocks), here.grid);
  const std::uint64_t blocks = std::uint64_t{shape.blocks[0]} * shape.blocks[1] * shape.blocks[2];
  std::vector<std::uint32_t> block_order(blocks);
  std::iota(block_order.begin(), block_order.end(), 0u);
  if (order_now.kind == Order::kReverse) std::reverse(block_order.begin(), block_order.end());
  if (order_now.kind == Order::kShuffled) {
    std::mt19937_64 random(order_now.seed);
    std::shuffle(block_order.begin(), block_order.end(), random);
  }
  bool first = true;
  for (const std::uint32_t block : block_order) {
    here.block[0] = block % shape.blocks[0];
    here.block[1] = block / shape.blocks[0] % shape.blocks[1];
    here.block[2] = block / shape.blocks[0] / shape.blocks[1];
    if (first || (order_now.kind == Order::kShuffled && block % 16 == 0)) shuffle_threads(block);
    first = false;
    run_block();
  }
  body_ = nullptr;
  here = {};
}

void Scheduler::run_block() {
  n_started_ = 0;
  n_ended_ = at_barrier_ = at_exchange_ = 0;
  warps_.resize(static_cast<std::size_t>((shape_.threads + kLanes - 1) / kLanes));
  for (Warp& warp : warps_) warp.waiting = warp.ended = 0;
  if (shape_.shared_bytes > 0) std::memset(shared_begin(), 0xFF, padded_shared_bytes());
  running_ = &main_;
  switch_to(idle_fiber());
  if (n_ended_ == shape_.threads) {
    for (std::size_t i = shape_.shared_bytes; i < padded_shared_bytes(); ++i)
      if (shared_begin()[i] != std::byte{0xFF})
        violation("or another of its block wrote past its shared memory");
    return;
  }
  here.thread = 0;
  for (const Warp& warp : warps_)
    if (warp.waiting > 0) violation("or others wait at a shuffle that not all lanes of their warp reach");
  violation("or others wait at a barrier that not all threads of the block reach");
}

void Scheduler::barrier() {
  if (n_ended_ > 0) violation("comes to a barrier after others of its block have ended");
  if (++at_barrier_ == shape_.threads) {
    at_barrier_ = 0;
    for (auto thread = order_.rbegin(); thread != order_.rend(); ++thread) make_ready(*thread);
  }
  wait();
}

const LaneBytes* Scheduler::gather(const char* operation, const void* mine, std::size_t bytes) {
  const int number = here.thread / kLanes, lane = here.thread % kLanes;
  Warp& warp = warps_[static_cast<std::size_t>(number)];
  if (warp.ended > 0) violation("comes to a shuffle after other lanes of its warp have ended");
  if (shape_.threads < (number + 1) * kLanes) violation("is of a warp that is not whole");
  if (warp.waiting == 0) warp.operation = operation;
  if (warp.operation != operation && std::strcmp(warp.operation, operation) != 0)
    violation(cat("is at ", operation, ", another lane of its warp at ", warp.operation).c_str());
  const int turn = warp.turn;
  std::memcpy(warp.given[turn][lane], mine, bytes);
  if (++warp.waiting == kLanes) {
    warp.waiting = 0;
    warp.turn = 1 - turn;
    for (int i = (number + 1) * kLanes - 1; i >= number * kLanes; --i)
      make_ready(warp_order_[static_cast<std::size_t>(i)]);
  }
  wait();
  return warp.given[turn];
}

void* Scheduler::shared(std::size_t bytes) {
  if (bytes > shape_.shared_bytes)
    violation(cat("uses ", bytes, " bytes of shared memory, ", shape_.shared_bytes, " were given").c_str());
  return shared_begin();
}

}  // namespace

void set_order(Order order) { order_now = order; }

void run_grid(const std::string& name, const GridShape& shape, const std::function<void()>& thread) {
  scheduler().run(name, shape, thread);
}

std::string running_place() {
  if (!scheduler_here || !scheduler_here->is_running()) return "";
  return cat("kernel ", scheduler_here->name(), ", block (", here.block[0], ", ", here.block[1], ", ",
             here.block[2], "), thread ", here.thread);
}

bool is_stack_guard(const void* address) { return scheduler_here && scheduler_here->is_stack_guard(address); }

}  // namespace tandem::emulation

namespace tandem::cuda::emulated {

using emulation::scheduler;

void barrier() { scheduler().barrier(); }

void warp_barrier() {
  const char nothing = 0;
  scheduler().gather("a warp's barrier", &nothing, 0);
}

const LaneBytes* gather(const char* operation, const void* mine, std::size_t bytes) {
  return scheduler().gather(operation, mine, bytes);
}

std::uint64_t exchange(std::uint64_t bits, Shuffle how, int operand) {
  const char* const name = how == Shuffle::kXor    ? "shuffle_xor"
                           : how == Shuffle::kDown ? "shuffle_down"
                                                   : "shuffle";
  const LaneBytes* const given = scheduler().gather(name, &bits, sizeof(bits));
  const int lane = here.thread % 32;
  int from = how == Shuffle::kXor ? lane ^ operand : how == Shuffle::kDown ? lane + operand : operand % 32;
  if (from < 0 || from > 31) from = lane;
  std::uint64_t result;
  std::memcpy(&result, given[from], sizeof(result));
  return result;
}

void copy_later(void* shared, const void* source, std::size_t taken, std::size_t bytes) {
  check_aligned(shared, bytes);
  if (taken > 0) check_aligned(source, bytes);
  scheduler().copies().open.push_back({shared, source, taken, bytes});
}

void close_copies() {
  auto& late = scheduler().copies();
  late.groups.push_back(std::move(late.open));
  late.open.clear();
}

void finish_copies(int pending_groups) {
  auto& groups = scheduler().copies().groups;
  while (groups.size() > static_cast<std::size_t>(pending_groups)) {
    for (const auto& copy : groups.front()) {
      std::memset(copy.to, 0, copy.bytes);
      if (copy.taken > 0) std::memcpy(copy.to, copy.from, copy.taken);
    }
    groups.erase(groups.begin());
  }
}

void* shared_memory(std::size_t bytes) { return scheduler().shared(bytes); }

void check_aligned(const void* pointer, std::size_t alignment) {
  if ((reinterpret_cast<std::uintptr_t>(pointer) & (alignment - 1)) != 0)  // a power of two
    violation(
        cat("accesses ", alignment, " bytes at once at an address that is no multiple of them").c_str());
}

void violation(const char* what) {
  const std::string place = emulation::running_place();
  const std::string line = cat("emulated CUDA: ", place, place.empty() ? "" : " ", what, "\n");
  [[maybe_unused]] const auto written = write(2, line.data(), line.size());
  std::abort();
}

}  // namespace tandem::cuda::emulated
