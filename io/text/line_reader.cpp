#include "io/text/line_reader.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

std::ifstream open_text_file(const std::filesystem::path& file) {
  const auto refuse = [&](const char* what) {
    throw Error(ErrorKind::kInput, cat(file.string(), ": ", what));
  };
  std::ifstream in(file, std::ios::binary);
  if (!in) refuse("cannot be opened for reading");
  // Data files are read more than once: for their digest, for their rows.
  if (!std::filesystem::is_regular_file(file)) refuse("is no regular file");
  std::array<char, 4> buffer{};
  in.read(buffer.data(), buffer.size());
  const std::string_view begin(buffer.data(), static_cast<std::size_t>(in.gcount()));
  if (begin.starts_with("\x1F\x8B")) refuse("is compressed (gzip); unpack it with gunzip");
  if (begin.starts_with("\x28\xB5\x2F\xFD")) refuse("is compressed (zstd); unpack it with unzstd");
  if (begin.starts_with("\xFF\xFE") || begin.starts_with("\xFE\xFF") ||
      begin.find('\0') != std::string_view::npos)
    refuse("is UTF-16 or UTF-32 (or no text) at byte offset 0; convert it to UTF-8");
  in.clear();
  in.seekg(begin.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  return in;
}

LineReader::LineReader(const std::filesystem::path& file)
    : name_(file.string()),
      in_(open_text_file(file)),
      offset_(in_.tellg()),
      bytes_(static_cast<std::int64_t>(std::filesystem::file_size(file))) {}

double LineReader::share_read() const {
  return bytes_ > 0 ? std::min(1.0, static_cast<double>(offset_) / static_cast<double>(bytes_)) : 1.0;
}

std::vector<Line> LineReader::next_block(std::size_t bytes) {
  std::vector<Line> block;
  std::size_t size = 0;
  std::string text;
  while (size < bytes && std::getline(in_, text)) {
    const auto offset = offset_;
    offset_ += static_cast<std::int64_t>(text.size()) + 1;
    ++number_;
    if (text.ends_with('\r')) text.pop_back();
    if (text.find_first_not_of(" \t\r") == std::string::npos) {
      ++blank_;
      continue;
    }
    size += text.size();
    block.push_back({std::move(text), number_, offset});
  }
  if (in_.bad()) throw Error(ErrorKind::kInput, cat(name_, ": cannot be read behind line ", number_));
  return block;
}

}  // namespace tandem
