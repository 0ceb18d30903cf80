// What people read while a run goes on: lines on stderr and in run.log, and one changing line on a terminal.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace tandem {

// Only rank 0 has a speaking log; on the others every call does nothing.
class RunLog {
 public:
  explicit RunLog(bool speaks);
  ~RunLog();

  // From now on lines go to this file too, those already said included. Throws kInput.
  void open(const std::filesystem::path& file);
  void line(const std::string& text);
  void warning(const std::string& text) { line("warning: " + text); }
  // Replaces the terminal's last line; nothing where stderr is no terminal.
  void progress(const std::string& text);
  bool terminal() const { return terminal_; }

 private:
  void write_file(const std::string& text);

  bool speaks_, terminal_;
  bool progress_shown_ = false;
  std::string before_file_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace tandem
