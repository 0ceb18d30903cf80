#include "comm/watchdog.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <future>
#include <mutex>
#include <sstream>
#include <thread>

#include "src/base/host.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kExitCode = 4;

// One write, so that no other rank's line comes between; nothing of C++'s streams, which the training thread
// may hold.
[[noreturn]] void end_process(const std::string& line) {
  const std::string text = line + '\n';
  [[maybe_unused]] const auto n = write(STDERR_FILENO, text.data(), text.size());
  _exit(kExitCode);
}

// A thread that no signal interrupts: they have a thread of their own.
template <class Work>
std::thread silent_thread(Work&& work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Work>(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

struct Message {
  static constexpr std::uint32_t kAsk = 1, kAnswer = 2;
  std::uint64_t job = 0;
  std::uint32_t kind = 0;
  std::uint32_t rank = 0;
  std::uint64_t sequence = 0;
  std::uint64_t waits = 0;
};

struct Peer {
  std::string host;
  std::vector<sockaddr_in> addresses;  // one, once it has answered
  bool known = false;                  // has answered
  int asked = 0;                       // rounds since its last answer
  bool waits = false;
  std::uint64_t sequence = 0;
};

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one; one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || !(one->ifa_flags & IFF_UP)) continue;
    char text[INET_ADDRSTRLEN];
    sockaddr_in address{};
    std::memcpy(&address, one->ifa_addr, sizeof address);
    if (inet_ntop(AF_INET, &address.sin_addr, text, sizeof text)) found.emplace_back(text);
  }
  freeifaddrs(all);
  return found;
}

Peer parse(const std::string& text) {
  Peer peer;
  std::istringstream words(text);
  unsigned port = 0;
  std::string ip;
  words >> peer.host >> port;
  while (words >> ip) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (inet_pton(AF_INET, ip.c_str(), &address.sin_addr) == 1) peer.addresses.push_back(address);
  }
  return peer;
}

}  // namespace

std::string Waiting::text() const {
  const char* what = what_.load(std::memory_order_relaxed);
  const std::int64_t update = update_.load(std::memory_order_relaxed);
  return cat(what ? what : "no collective", "(", count_.load(std::memory_order_relaxed), ")",
             update > 0 ? cat(" update ", update) : std::string());
}

struct TimeLimit::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread thread;
};

TimeLimit::TimeLimit(std::string line, double seconds) : state_(std::make_unique<State>()) {
  state_->thread = silent_thread([state = state_.get(), line = std::move(line), seconds] {
    std::unique_lock lock(state->mutex);
    if (!state->changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return state->over; }))
      end_process(line);
  });
}

// Where one rank speaks, its end is that of the others: a launcher takes some seconds for it.
StartLimit::StartLimit(const std::string& what, double seconds, int rank)
    : TimeLimit(cat("tandem: ", what, " did not bring the ranks together in ", seconds, " s, seen from ",
                    short_host_name(),
                    ": look whether the nodes reach one another over the network that MPI uses (Open MPI: "
                    "--mca btl_tcp_if_include NETWORK)"),
                seconds + 4 * std::min(rank, 2)) {}

TimeLimit::~TimeLimit() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

struct Watchdog::State {
  int rank = 0;
  WatchdogLimits limits;
  Waiting waiting;
  int socket = -1;
  std::array<int, 2> wake{-1, -1};  // a pipe: its end wakes the thread
  std::string address, host;
  std::uint64_t job = 0;
  std::vector<Peer> peers;
  std::thread thread;

  std::promise<void> met;

  void meet();
  void run();
  void receive();
  void ask(Peer& peer);
  void judge(double stuck_s);
  std::string who() const { return cat("[rank ", rank, "/", peers.size(), " ", host, "] "); }
};

Watchdog::Watchdog(int rank, WatchdogLimits limits) : state_(std::make_unique<State>()) {
  state_->rank = rank;
  state_->limits = limits;
  state_->host = short_host_name();
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  sockaddr_in own{};
  own.sin_family = AF_INET;
  socklen_t size = sizeof own;
  if (bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      pipe2(state_->wake.data(), O_CLOEXEC) != 0) {
    close(fd);
    return;
  }
  state_->socket = fd;
  state_->address = cat(state_->host, " ", ntohs(own.sin_port));
  for (const std::string& ip : own_addresses()) state_->address += " " + ip;
}

Watchdog::~Watchdog() {
  if (state_->wake[1] >= 0) close(state_->wake[1]);
  if (state_->thread.joinable()) state_->thread.join();
  if (state_->wake[0] >= 0) close(state_->wake[0]);
  if (state_->socket >= 0) close(state_->socket);
}

const std::string& Watchdog::address() const { return state_->address; }
Waiting& Watchdog::waiting() { return state_->waiting; }

void Watchdog::start(const std::vector<std::string>& addresses, std::uint64_t job) {
  if (state_->socket < 0 || addresses.size() < 2) return;
  for (const std::string& address : addresses) {
    state_->peers.push_back(parse(address));
    // Loopback reaches this host's ranks only; there, a stranger's port says nothing, for it has another
    // job's number.
    Peer& peer = state_->peers.back();
    if (peer.host != state_->host)
      std::erase_if(peer.addresses,
                    [](const sockaddr_in& a) { return ntohl(a.sin_addr.s_addr) >> 24 == 127; });
  }
  state_->job = job;
  state_->thread = silent_thread([state = state_.get()] {
    state->meet();
    state->run();
  });
  state_->met.get_future().wait();
}

// Asks everybody which address answers, for 2 s at most: who was never heard cannot be missed later.
void Watchdog::State::meet() {
  for (int round = 0; round < 20; ++round) {
    bool all_known = true;
    for (std::size_t p = 0; p < peers.size(); ++p) {
      if (static_cast<int>(p) == rank || peers[p].known) continue;
      ask(peers[p]);
      all_known = false;
    }
    if (all_known) break;
    const auto until = Clock::now() + std::chrono::milliseconds(100);
    while (Clock::now() < until) {
      pollfd file{socket, POLLIN, 0};
      poll(&file, 1, 20);
      receive();
    }
  }
  met.set_value();
}

// Rounds of a second. A round that took much longer means that this process itself was stopped or starved (a
// job that Slurm suspends stops everywhere): then nobody else is blamed.
void Watchdog::State::run() {
  constexpr double kRound = 1.0, kStarved = 3.0;
  double waited_s = 0, stuck_s = 0, since_start_s = 0;
  const pid_t launcher = getppid();
  constexpr unsigned kKeepOpen = 10;  // rounds: a firewall that tracks connections forgets silent ones
  unsigned round = 0;
  std::uint64_t sequence = waiting.sequence();
  auto last = Clock::now();
  while (true) {
    const auto until =
        last + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kRound));
    while (Clock::now() < until) {
      std::array<pollfd, 2> files{{{socket, POLLIN, 0}, {wake[0], POLLIN, 0}}};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
      poll(files.data(), files.size(), static_cast<int>(std::max<long long>(left + 1, 0)));
      if (files[1].revents) return;
      if (files[0].revents) receive();
    }
    // A launcher that was killed outright ends nobody.
    if (getppid() != launcher) end_process(cat(who(), "the launcher is gone (process ", launcher, ")"));
    const auto now = Clock::now();
    const double round_s = std::chrono::duration<double>(now - last).count();
    last = now;
    since_start_s += round_s;
    const bool starved = round_s > kStarved;
    const std::uint64_t current = waiting.sequence();
    if (starved || current != sequence || !waiting.now()) {
      sequence = current;
      waited_s = stuck_s = 0;
      for (Peer& peer : peers) peer.asked = 0;
    } else {
      waited_s += round_s;
    }
    // At first also those that have not been heard yet.
    const bool asks = waited_s >= limits.ask_s;
    for (std::size_t p = 0; p < peers.size(); ++p) {
      if (static_cast<int>(p) == rank) continue;
      if (asks || round % kKeepOpen == 0 || (!peers[p].known && since_start_s < 60)) ask(peers[p]);
    }
    ++round;
    if (!asks) continue;
    const bool all_wait = std::all_of(peers.begin(), peers.end(), [&](const Peer& peer) {
      return &peer == &peers[static_cast<std::size_t>(rank)] || (peer.known && peer.asked <= 2 && peer.waits);
    });
    stuck_s = all_wait ? stuck_s + round_s : 0;
    judge(stuck_s);
  }
}

void Watchdog::State::receive() {
  Message message;
  sockaddr_in from{};
  while (true) {
    socklen_t size = sizeof from;
    const auto n = recvfrom(socket, &message, sizeof message, 0, reinterpret_cast<sockaddr*>(&from), &size);
    if (n < 0) return;
    if (n != sizeof message || message.job != job || message.rank >= peers.size()) continue;
    if (message.kind == Message::kAsk) {
      const Message answer{job, Message::kAnswer, static_cast<std::uint32_t>(rank), waiting.sequence(),
                           waiting.now() ? std::uint64_t{1} : std::uint64_t{0}};
      sendto(socket, &answer, sizeof answer, 0, reinterpret_cast<sockaddr*>(&from), size);
      continue;
    }
    Peer& peer = peers[message.rank];
    if (!peer.known) peer.addresses = {from};
    peer.known = true;
    peer.asked = 0;
    // One that has gone on since the last answer does not hang.
    peer.waits = message.waits != 0 && message.sequence == peer.sequence;
    peer.sequence = message.sequence;
  }
}

void Watchdog::State::ask(Peer& peer) {
  const Message message{job, Message::kAsk, static_cast<std::uint32_t>(rank), 0, 0};
  for (const sockaddr_in& to : peer.addresses)
    sendto(socket, &message, sizeof message, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  ++peer.asked;
}

void Watchdog::State::judge(double stuck_s) {
  std::string lost;
  for (std::size_t p = 0; p < peers.size(); ++p)
    if (peers[p].known && peers[p].asked > limits.silent_s)
      lost += cat(lost.empty() ? "" : ", ", "rank ", p, " on ", peers[p].host);
  std::string line;
  if (!lost.empty())
    line = cat(who(), lost, " no longer answers (", limits.silent_s,
               " s): stopped, lost or without memory? waiting in ", waiting.text());
  else if (stuck_s > limits.stuck_s)
    line = cat(who(), "every rank lives and waits, none has gone on for ", limits.stuck_s,
               " s: the network or MPI hangs; waiting in ", waiting.text());
  if (line.empty()) return;
  // The first rank that lives speaks; the others' same words are wanted only where the job does not end at
  // once.
  for (int p = 0; p < rank; ++p)
    if (peers[static_cast<std::size_t>(p)].known && peers[static_cast<std::size_t>(p)].asked <= 2) {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      break;
    }
  end_process(line);
}

}  // namespace tandem
