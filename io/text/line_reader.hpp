// A text file line by line, in blocks, with what errors need to name a place. Lines end with LF or CR LF.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tandem {

struct Line {
  std::string text;         // without its end
  std::int64_t number = 0;  // 1-based
  std::int64_t offset = 0;  // of its first byte in the file
};

class LineReader {
 public:
  // Skips a UTF-8 byte order mark at the file's begin. Throws kInput naming the file where it cannot be read,
  // is compressed or is UTF-16 or UTF-32.
  explicit LineReader(const std::filesystem::path& file);

  // The next lines, about `bytes` of them together, blank ones (white space only) left out; empty at the end.
  std::vector<Line> next_block(std::size_t bytes);
  std::int64_t blank() const { return blank_; }
  // Of the file's bytes, 0 to 1.
  double share_read() const;

 private:
  void check_begin();

  std::string name_;
  std::ifstream in_;
  std::int64_t number_ = 0, offset_ = 0, blank_ = 0, bytes_ = 0;
};

}  // namespace tandem
