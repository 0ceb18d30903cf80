#include "io/contained.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

// The sanitizers reserve terabytes of address space and report to stderr.
#if defined(__SANITIZE_ADDRESS__)
#define TANDEM_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TANDEM_SANITIZED 1
#endif
#endif
#ifndef TANDEM_SANITIZED
#define TANDEM_SANITIZED 0
#endif

namespace tandem {

namespace {

constexpr rlim_t kBytesPerByte = 16, kBytesPerSecond = 10'000'000;
constexpr unsigned kWaitingFactor = 10;  // wall-clock time to processor time: a slow or a busy machine

// Exit status of a child whose first byte says how its work ended.
enum class Ending : char { kDone = 'd', kError = 'e', kNoMemory = 'm', kUnknown = 'u' };

rlim_t bytes_in_use() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

// At most what the process was given.
void limit(int resource, rlim_t most) {
  rlimit now{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &now) != 0) return;
  now.rlim_cur = std::min(most, now.rlim_max);
  setrlimit(static_cast<__rlimit_resource_t>(resource), &now);
}

void write_all(int file, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = write(file, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

std::string read_all(int file) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t n = read(file, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

// Ending, then the text; of an error its kind stands before the text.
std::string result_of(const std::function<std::string()>& work) {
  try {
    return static_cast<char>(Ending::kDone) + work();
  } catch (const Error& error) {
    return {static_cast<char>(Ending::kError) + std::string(1, static_cast<char>(error.kind())) +
            error.what()};
  } catch (const std::bad_alloc&) {
    return std::string(1, static_cast<char>(Ending::kNoMemory));
  } catch (const std::exception& error) {
    return static_cast<char>(Ending::kUnknown) + std::string(error.what());
  }
}

[[noreturn]] void be_the_child(int out, rlim_t file_bytes, const ContainedLimits& limits,
                               const std::function<std::string()>& work) {
  limit(RLIMIT_CORE, 0);
  const rlim_t seconds = limits.seconds + file_bytes / kBytesPerSecond;
  limit(RLIMIT_CPU, seconds);
  alarm(kWaitingFactor * static_cast<unsigned>(seconds));
  for (const int signal : {SIGALRM, SIGXCPU, SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) std::signal(signal, SIG_DFL);
  if (!TANDEM_SANITIZED) {
    limit(RLIMIT_AS, bytes_in_use() + limits.bytes + kBytesPerByte * file_bytes);
    // The C library's last words are no line for a user.
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
  }
  write_all(out, result_of(work));
  _exit(0);
}

}  // namespace

std::string run_contained(const std::filesystem::path& file, const std::function<std::string()>& work,
                          const ContainedLimits& limits) {
  const auto refusal = [&](const std::string& what) {
    return Error(ErrorKind::kInput, cat(file.string(), ": ", what));
  };
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  int ends[2] = {};
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw refusal(cat("no pipe for a process to read it: ", std::strerror(errno)));
  const pid_t child = fork();
  if (child == 0) be_the_child(ends[1], error ? 0 : static_cast<rlim_t>(size), limits, work);
  const int cause = errno;
  close(ends[1]);
  std::string result;
  if (child > 0) result = read_all(ends[0]);
  close(ends[0]);
  if (child < 0) throw refusal(cat("no process to read it with: ", std::strerror(cause)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGXCPU))
    throw refusal("is a damaged HDF5 file (reading it takes too long)");
  if (status != 0 || result.empty())
    throw refusal("is a damaged HDF5 file (reading it made the HDF5 library crash)");
  const std::string text = result.substr(1);
  switch (static_cast<Ending>(result[0])) {
    case Ending::kDone:
      return text;
    case Ending::kError:
      throw Error(static_cast<ErrorKind>(text.at(0)), text.substr(1));
    case Ending::kNoMemory:
      throw refusal("announces more than the memory that a file of its size may take");
    case Ending::kUnknown:
      throw Error(ErrorKind::kInternal, cat(file.string(), ": ", text));
  }
  throw Error(ErrorKind::kInternal, cat(file.string(), ": an answer of another kind"));
}

}  // namespace tandem
