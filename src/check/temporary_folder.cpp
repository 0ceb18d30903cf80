#include "src/check/temporary_folder.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr unsigned char kDone = 0;  // in the pipe: no signal, the folder's time is over

// A handler may do no more than write; the thread that reads does the rest.
std::atomic<int> write_end{-1};
static_assert(std::atomic<int>::is_always_lock_free);
int read_end = -1;

void pass_on(int signal) {
  const int error = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t written = write(write_end.load(), &byte, 1);
  errno = error;
}

void handle(void (*from)(int), void (*to)(int)) {
  for (const int signal : kSignals) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler != from) continue;
    action.sa_handler = to;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }
}

// The work goes on while it is removed: what it writes meanwhile goes in a further round.
void clear_away(const fs::path& folder) {
  std::error_code ignored;
  for (int round = 0; round < 5 && fs::exists(folder, ignored); ++round) fs::remove_all(folder, ignored);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) throw Error(ErrorKind::kInput, cat("TMPDIR: no folder for temporary files: ", error.message()));
  std::string name = (parent / "tandem-check-XXXXXX").string();
  if (!mkdtemp(name.data()))
    throw Error(ErrorKind::kInput, cat(name, ": no temporary folder (TMPDIR): ", std::strerror(errno)));
  path_ = name;
  watch();
}

TemporaryFolder::~TemporaryFolder() {
  if (watcher_.joinable()) {
    handle(pass_on, SIG_DFL);
    [[maybe_unused]] const ssize_t written = write(write_end.load(), &kDone, 1);
    watcher_.join();
    close(write_end.exchange(-1));
    close(read_end);
  }
  clear_away(path_);
}

void TemporaryFolder::watch() {
  int ends[2];
  if (write_end.load() >= 0 || pipe2(ends, O_CLOEXEC) != 0) return;  // a signal leaves the folder then
  read_end = ends[0];
  write_end = ends[1];
  watcher_ = std::thread([this] {
    unsigned char signal = kDone;
    while (read(read_end, &signal, 1) < 0 && errno == EINTR) {
    }
    if (signal == kDone) return;
    clear_away(path_);
    handle(pass_on, SIG_DFL);
    kill(getpid(), signal);
  });
  handle(SIG_DFL, pass_on);
}

}  // namespace tandem
