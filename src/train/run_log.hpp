// What people read while a run goes on: lines on stderr and in run.log, and one changing line on a terminal.
#pragma once

#include <filesystem>
#include <string>

namespace tandem {

// Only rank 0 has a speaking log; on the others every call does nothing.
class RunLog {
 public:
  explicit RunLog(bool speaks);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // From now on lines go to the end of this file too, those already said included; where it holds some of an
  // earlier process, behind a line that says so. Throws kInput.
  void open(const std::filesystem::path& file);
  void line(const std::string& text);
  void warning(const std::string& text) { line("warning: " + text); }
  // Replaces the terminal's last line; where stderr is no terminal, nothing. `keep`: it is a line of the
  // file, and of stderr where that is no terminal.
  void progress(const std::string& text, bool keep = false);

 private:
  void to_file(const std::string& text);

  bool speaks_, terminal_;
  bool progress_shown_ = false;
  std::string before_file_;
  int file_ = -1;
};

// Adds a line to a run.log that exists, whole even where several processes write there; where it cannot,
// nothing.
void append_line(const std::filesystem::path& file, const std::string& text);

}  // namespace tandem
