// For LD_PRELOAD: the process is killed before the K-th call that changes files while it saves a checkpoint.
//
// TANDEM_KILL_AT=K. Counted are the calls on what lies in a folder `checkpoints`, from the making of the
// temporary folder of checkpoint TANDEM_KILL_SAVING on. TANDEM_KILL_TRACE names a file that takes a line for
// each of them.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace {

bool saving = false;
long calls = 0;

std::string name_of(int file) {
  char link[64], path[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t n = readlink(link, path, sizeof(path));
  return n > 0 ? std::string(path, static_cast<std::size_t>(n)) : "";
}

void called(const char* what, const std::string& path) {
  const std::size_t begin = path.find("/checkpoints");
  if (begin == path.npos) return;
  const char* const number = std::getenv("TANDEM_KILL_SAVING");
  if (!saving && number && std::strcmp(what, "mkdir") == 0)
    saving = path.find("/checkpoints/" + std::string(number) + ".tandem-") != path.npos;
  if (!saving) return;
  ++calls;
  if (const char* const trace = std::getenv("TANDEM_KILL_TRACE"))
    if (std::FILE* const file = std::fopen(trace, "a")) {
      std::fprintf(file, "%s %s\n", what, path.c_str() + begin + 1);
      std::fclose(file);
    }
  if (const char* const at = std::getenv("TANDEM_KILL_AT"); at && calls == std::atol(at))
    kill(getpid(), SIGKILL);
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* data, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  called("write", name_of(file));
  return real(file, data, bytes);
}

int fsync(int file) {
  static auto* const real = next<int(int)>("fsync");
  called("fsync", name_of(file));
  return real(file);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  called("mkdir", path);
  return real(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  called("rename", to);
  return real(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  static auto* const real = next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  called("renameat2", to);
  return real(from_folder, from, to_folder, to, flags);
}

int link(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("link");
  called("link", to);
  return real(from, to);
}

int unlink(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("unlink");
  called("unlink", path);
  return real(path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static auto* const real = next<int(int, const char*, int)>("unlinkat");
  called("unlinkat", path[0] == '/' ? path : name_of(folder) + "/" + path);
  return real(folder, path, flags);
}

int remove(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("remove");
  called("remove", path);
  return real(path);
}

}  // extern "C"
