#include "io/sample_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "io/text/strict_json.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "tandem-samples 1\n";
constexpr std::size_t kDigestChars = 64;
constexpr std::size_t kMostText = 1 << 20;  // of key and report; a damaged length must not ask for gigabytes
constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 40;

std::string digest_or_none(const fs::path& file) { return fs::exists(file) ? sha256_file(file) : "none"; }

// Every field of a report that belongs to the samples, by name; a new one does not compile until it is here.
template <class Report, class Visit>
void visit_fields(Report& report, Visit visit) {
  auto& [rows, blank, alpaca, sharegpt, cut, dropped, without_targets, reasoning_dropped, text_dropped,
         special_in_text, first_special_line, lost_bytes, first_lost_line, tokens, target_tokens, longest,
         template_name, template_digest, template_overrides_model, from_cache, cache_trouble] = report;
  static_cast<void>(from_cache);  // these two are of one loading, not of the samples
  static_cast<void>(cache_trouble);
  visit("rows", rows);
  visit("blank", blank);
  visit("alpaca", alpaca);
  visit("sharegpt", sharegpt);
  visit("cut", cut);
  visit("dropped", dropped);
  visit("without_targets", without_targets);
  visit("reasoning_dropped", reasoning_dropped);
  visit("text_dropped", text_dropped);
  visit("special_in_text", special_in_text);
  visit("first_special_line", first_special_line);
  visit("lost_bytes", lost_bytes);
  visit("first_lost_line", first_lost_line);
  visit("tokens", tokens);
  visit("target_tokens", target_tokens);
  visit("longest", longest);
  visit("template_name", template_name);
  visit("template_digest", template_digest);
  visit("template_overrides_model", template_overrides_model);
}

// Hashes all it passes on.
class Input {
 public:
  explicit Input(const fs::path& file) : name_(file.string()), in_(file, std::ios::binary), left_(0) {
    if (!in_ || !fs::is_regular_file(file)) fail("cannot be opened for reading");
    left_ = fs::file_size(file);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kInput, cat(name_, ": ", what));
  }
  void read(void* data, std::uint64_t bytes) {
    if (bytes > left_) fail("is shorter than it says");
    in_.read(static_cast<char*>(data), static_cast<std::streamsize>(bytes));
    if (!in_) fail("cannot be read to its end");
    hash_.update(data, bytes);
    left_ -= bytes;
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    read(&value, sizeof value);
    return value;
  }
  std::string text(std::uint64_t bytes) {
    if (bytes > kMostText) fail("is damaged (length of a text)");
    std::string value(bytes, '\0');
    read(value.data(), bytes);
    return value;
  }
  template <class T>
  std::vector<T> array(std::uint64_t count) {
    if (count > left_ / sizeof(T)) fail("is shorter than it says");
    std::vector<T> values(count);
    read(values.data(), count * sizeof(T));
    return values;
  }
  // What remains must be the digest of all before.
  void check_digest() {
    const std::string computed = hash_.hex();
    std::string stored(kDigestChars, '\0');
    if (left_ != kDigestChars || !in_.read(stored.data(), kDigestChars) || stored != computed)
      fail("is damaged (its digest does not fit)");
  }

 private:
  std::string name_;
  std::ifstream in_;
  std::uint64_t left_;
  Sha256 hash_;
};

DatasetReport parse_report(const std::string& text, const std::string& file) {
  const nlohmann::json object = parse_strict_json(text, file);
  DatasetReport report;
  visit_fields(report, [&](const char* name, auto& field) { object.at(name).get_to(field); });
  return report;
}

std::string random_word() {
  std::random_device source;
  return cat(std::hex, source(), source());
}

// A file under a name of its own beside `path`, so that processes which write the same cache do not meet.
class Output {
 public:
  explicit Output(const fs::path& path) : path_(path), temporary_(path.string() + ".tmp-" + random_word()) {
    remove_left_behind();
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) fail("create");
  }
  ~Output() {
    if (file_ >= 0) {
      close(file_);
      unlink(temporary_.c_str());
    }
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(const void* data, std::size_t bytes) {
    hash_.update(data, bytes);
    write_plain(data, bytes);
  }
  void write(std::string_view text) { write(text.data(), text.size()); }
  void number(std::uint64_t value) { write(&value, sizeof value); }
  void text(std::string_view text) {
    number(text.size());
    write(text);
  }
  template <class T>
  void array(const std::vector<T>& values) {
    write(values.data(), values.size() * sizeof(T));
  }
  void publish() {
    const std::string digest = hash_.hex();
    write_plain(digest.data(), digest.size());
    if (fsync(file_) != 0) fail("fsync");
    if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename into place");
    close(std::exchange(file_, -1));
  }

 private:
  [[noreturn]] void fail(const char* step) const {
    throw Error(ErrorKind::kInput,
                cat(path_.string(), ": cannot be written: ", step, ": ", std::strerror(errno)));
  }
  void write_plain(const void* data, std::size_t bytes) {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(file_, next, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write");
      next += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }
  // Temporaries of processes that were killed; those of the last hour may be at work.
  void remove_left_behind() const {
    constexpr std::time_t kHour = 3600;
    std::error_code error;
    for (fs::directory_iterator entry(path_.parent_path(), error), end; !error && entry != end;
         entry.increment(error)) {
      struct stat about {};
      const std::string name = entry->path().filename().string();
      if (name.find(".samples.tmp-") != std::string::npos && lstat(entry->path().c_str(), &about) == 0 &&
          about.st_mtime + kHour < std::time(nullptr))
        unlink(entry->path().c_str());
    }
  }

  fs::path path_;
  std::string temporary_;
  int file_ = -1;
  Sha256 hash_;
};

}  // namespace

std::string cache_key(const std::string& data_digest, const fs::path& model_dir,
                      const RenderOptions& options) {
  std::string key = cat("render ", kRenderVersion, "\ndata ", data_digest, "\n");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    key += cat(name, " ", digest_or_none(model_dir / name), "\n");
  key += cat("data.template ", options.chat_template, "\ndata.max_tokens ", options.max_tokens,
             "\ndata.truncate ", options.truncate, "\ndata.targets ", options.targets,
             "\ndata.special_in_text ", options.special_in_text, "\nvocab_size ", options.vocab_size, "\n");
  return key;
}

fs::path cache_file(const fs::path& folder, const std::string& key) {
  return folder / (sha256_hex(key) + ".samples");
}

std::optional<Dataset> read_cached(const fs::path& file, const std::string& key) {
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  Input in(file);
  std::string magic(kMagic.size(), '\0');
  in.read(magic.data(), magic.size());
  if (magic != kMagic) in.fail("is no token cache of this version");
  if (in.text(in.number()) != key) in.fail("belongs to other inputs");
  const std::string report = in.text(in.number());
  const std::uint64_t n_samples = in.number();
  const std::uint64_t n_tokens = in.number();
  if (n_samples > kMostSamples) in.fail("is damaged (number of samples)");
  auto begin = in.array<std::int64_t>(n_samples + 1);
  auto line = in.array<std::int64_t>(n_samples);
  auto ids = in.array<std::int32_t>(n_tokens);
  auto targets = in.array<std::uint8_t>(n_tokens);
  in.check_digest();
  Dataset dataset;
  try {
    dataset.samples = SampleSet(std::move(begin), std::move(ids), std::move(targets), std::move(line));
    dataset.report = parse_report(report, file.string());
  } catch (const Error& bad) {
    in.fail(bad.what());
  } catch (const nlohmann::json::exception& bad) {
    in.fail(bad.what());
  }
  dataset.report.from_cache = true;
  return dataset;
}

void write_cached(const fs::path& file, const std::string& key, const Dataset& dataset) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error)
    throw Error(ErrorKind::kInput, cat(file.parent_path().string(), ": cannot be made: ", error.message()));
  nlohmann::json report;
  visit_fields(dataset.report, [&](const char* name, const auto& field) { report[name] = field; });
  const SampleSet& samples = dataset.samples;
  Output out(file);
  out.write(kMagic);
  out.text(key);
  out.text(report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  out.number(static_cast<std::uint64_t>(samples.size()));
  out.number(samples.all_ids().size());
  out.array(samples.all_begins());
  out.array(samples.all_lines());
  out.array(samples.all_ids());
  out.array(samples.all_targets());
  out.publish();
}

}  // namespace tandem
