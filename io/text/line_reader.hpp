// A text file line by line, in blocks, with what errors need to name a place. Lines end with LF or CR LF.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tandem {

// Open behind a UTF-8 byte order mark, where there is one. Throws kInput naming the file where it cannot be
// read, is no regular file, is compressed or is UTF-16 or UTF-32.
std::ifstream open_text_file(const std::filesystem::path& file);

struct Line {
  std::string text;         // without its end
  std::int64_t number = 0;  // 1-based
  std::int64_t offset = 0;  // of its first byte in the file
};

class LineReader {
 public:
  // Throws kInput as open_text_file does.
  explicit LineReader(const std::filesystem::path& file);

  // The next lines, about `bytes` of them together, blank ones (white space only) left out; empty at the end.
  std::vector<Line> next_block(std::size_t bytes);
  std::int64_t blank() const { return blank_; }
  // Of the file's bytes, 0 to 1.
  double share_read() const;

 private:
  std::string name_;
  std::ifstream in_;
  std::int64_t number_ = 0, offset_ = 0, blank_ = 0, bytes_ = 0;
};

}  // namespace tandem
