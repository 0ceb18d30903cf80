#include "src/train/run_log.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

// tandem-mpirun passes the ranks' stderr through a pipe, and says so where it ends on a terminal.
bool ends_on_terminal() {
  return isatty(STDERR_FILENO) || std::getenv("TANDEM_STDERR_IS_TERMINAL") != nullptr;
}

}  // namespace

RunLog::RunLog(bool speaks)
    : speaks_(speaks), terminal_(speaks && ends_on_terminal()), file_(nullptr, &std::fclose) {}

RunLog::~RunLog() {
  if (progress_shown_) std::fputc('\n', stderr);
}

void RunLog::open(const std::filesystem::path& file) {
  if (!speaks_) return;
  file_.reset(std::fopen(file.c_str(), "ae"));
  if (!file_)
    throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be opened: ", std::strerror(errno)));
  std::setvbuf(file_.get(), nullptr, _IONBF, 0);  // one write a line: a killed run's log is whole
  write_file(before_file_);
  before_file_.clear();
}

void RunLog::write_file(const std::string& text) {
  if (!text.empty()) std::fwrite(text.data(), 1, text.size(), file_.get());
}

void RunLog::line(const std::string& text) {
  if (!speaks_) return;
  const std::string whole = text + "\n";
  const std::string shown = (progress_shown_ ? "\r\x1b[K" : "") + whole;
  progress_shown_ = false;
  std::fwrite(shown.data(), 1, shown.size(), stderr);
  if (file_)
    write_file(whole);
  else
    before_file_ += whole;
}

void RunLog::progress(const std::string& text) {
  if (!terminal_) return;
  const std::string shown = "\r\x1b[K" + text;
  std::fwrite(shown.data(), 1, shown.size(), stderr);
  std::fflush(stderr);
  progress_shown_ = true;
}

}  // namespace tandem
