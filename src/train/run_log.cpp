#include "src/train/run_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

// tandem-mpirun passes the ranks' stderr through a pipe, and says so where it ends on a terminal.
bool ends_on_terminal() {
  return isatty(STDERR_FILENO) || std::getenv("TANDEM_STDERR_IS_TERMINAL") != nullptr;
}

// One write, so that a line is whole whoever else writes and whenever this process is killed. A log that
// cannot be written ends no run.
void write_whole(int file, const std::string& text) {
  if (file < 0 || text.empty()) return;
  if (::write(file, text.data(), text.size()) < 0 && errno == EINTR)
    (void)!::write(file, text.data(), text.size());
}

}  // namespace

RunLog::RunLog(bool speaks) : speaks_(speaks), terminal_(speaks && ends_on_terminal()) {}

RunLog::~RunLog() {
  if (progress_shown_) std::fputc('\n', stderr);
  if (file_ >= 0) close(file_);
}

void RunLog::open(const std::filesystem::path& file) {
  if (!speaks_) return;
  file_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0)
    throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be opened: ", std::strerror(errno)));
  if (lseek(file_, 0, SEEK_END) > 0) write_whole(file_, cat("run.log continued at ", utc_now(), "\n"));
  write_whole(file_, before_file_);
  before_file_.clear();
}

void RunLog::to_file(const std::string& text) {
  if (file_ >= 0)
    write_whole(file_, text + "\n");
  else
    before_file_ += text + "\n";
}

void RunLog::line(const std::string& text) {
  if (!speaks_) return;
  const std::string shown = cat(progress_shown_ ? "\r\x1b[K" : "", text, "\n");
  progress_shown_ = false;
  std::fwrite(shown.data(), 1, shown.size(), stderr);
  to_file(text);
}

void RunLog::progress(const std::string& text, bool keep) {
  if (keep && !terminal_) return line(text);
  if (!terminal_) return;
  const std::string shown = "\r\x1b[K" + text;
  std::fwrite(shown.data(), 1, shown.size(), stderr);
  std::fflush(stderr);
  progress_shown_ = true;
  if (keep) to_file(text);
}

void append_line(const std::filesystem::path& file, const std::string& text) {
  const int opened = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  write_whole(opened, text + "\n");
  if (opened >= 0) close(opened);
}

}  // namespace tandem
