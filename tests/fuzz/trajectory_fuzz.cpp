// A trajectory file, in two ways. An input that begins as HDF5 does is the file itself; HDF5 has crashes of
// its own on such files, so a child process reads it first, and where that ends inside HDF5 (or loops) the
// input is passed over, as the program refuses such a file (io/contained.hpp). Any other input is a program
// that puts datasets of chosen types, shapes and values into a sound file, which HDF5 reads and our code must
// judge: a fuzzer of bytes would hardly get past HDF5's own checks.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "io/format/table.hpp"
#include "io/hdf5.hpp"
#include "io/trajectory_reader.hpp"
#include "io/trajectory_validation.hpp"
#include "tests/fuzz/fuzz.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define TANDEM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TANDEM_ASAN 1
#endif
#endif
#ifdef TANDEM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tandem {
namespace {

constexpr int kInHdf5 = 66, kInOurs = 77;  // exit status of the child

// Whichever of the two stands first in the report's stack.
[[maybe_unused]] bool is_hdf5s(const char* report) {
  const char *hdf5 = std::strstr(report, "libhdf5"), *ours = std::strstr(report, "tandem::");
  return hdf5 && (!ours || hdf5 < ours);
}

format::RunPlan plan(const std::string& spec, const std::string&) {
  if (spec.empty()) return {};
  return {.updates = 4, .eval_every = 3, .batch_global = 2, .observe_every = 2, .snapshot_every = 3};
}

// What a valid file holds can be read, and what is told of it stands on one line.
void read_and_judge(const std::string& path) {
  const Validity validity = validate_in_process(path, plan);
  for (const auto& problem : validity.problems)
    fuzz::require(problem.line().find('\n') == std::string::npos, "a problem of several lines");
  bool read = false;
  fuzz::may_refuse([&] {
    const Trajectory t = read_trajectory(path);
    read = true;
    if (t.updates && !t.updates->step.empty())
      fuzz::require(static_cast<std::int64_t>(t.updates->step.size()) == t.updates->rows,
                    "rows without steps");
    if (t.audits) fuzz::require(t.audits->n_tensors >= 0, "a negative number of tensors");
  });
  const bool snapshot = !validity.present.empty() && validity.present.front() != "spec" &&
                        std::find(std::begin(format::kSnapshotParts), std::end(format::kSnapshotParts),
                                  validity.present.front()) != std::end(format::kSnapshotParts) &&
                        validity.absent.empty();
  fuzz::require(read || !validity.valid() || snapshot, "a valid file that cannot be read");
}

// False: HDF5 itself ends or loops on it.
bool hdf5_survives(const std::string& path) {
  static std::uint64_t n_crashed = 0, n_looped = 0;
  const pid_t child = fork();
  fuzz::require(child >= 0, "no child process");
  if (child == 0) {
    for (const int signal_number : {SIGALRM, SIGABRT}) signal(signal_number, SIG_DFL);
    alarm(10);
#ifdef TANDEM_ASAN
    __sanitizer_set_death_callback([] { _exit(kInOurs); });
    __asan_set_error_report_callback([](const char* report) {
      if (is_hdf5s(report)) _exit(kInHdf5);
      (void)!write(STDERR_FILENO, report, std::strlen(report));
      _exit(kInOurs);
    });
#endif
    read_and_judge(path);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  fuzz::require(!(WIFEXITED(status) && WEXITSTATUS(status) == kInOurs), "a fault of our own, in the child");
  const bool looped = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  ++(looped ? n_looped : n_crashed);
  std::fprintf(stderr, "contained: HDF5 crashed %llu times, looped %llu times\n",
               static_cast<unsigned long long>(n_crashed), static_cast<unsigned long long>(n_looped));
  return false;
}

// Bytes one after the other; 0 beyond the end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool more() const { return left_ > 0; }
  std::uint8_t next() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

// Builds the file that a program of bytes describes.
class Builder {
 public:
  Builder(Bytes bytes, std::vector<std::byte>& image) : bytes_(bytes), file_(hdf5::create_in_memory("fuzz")) {
    root();
    for (const std::string& group : format::groups())
      if (group.find('/') == group.npos && bytes_.next() % 4 != 3) create(group);
    if (bytes_.next() % 2 == 0) create("provenance");
    while (bytes_.more()) dataset();
    hdf5::file_image(file_, image);
  }

 private:
  void root() {
    const std::uint8_t flags = bytes_.next();
    if (flags % 16 != 1) hdf5::set_attribute(file_, "format", "tandem-trajectory");
    if (flags % 16 != 2) hdf5::set_attribute(file_, "format_version", std::int64_t{flags % 16 == 3 ? 2 : 1});
    if (flags % 16 != 4) hdf5::set_attribute(file_, "stack", flags % 16 == 5 ? "" : "fuzz");
    if (flags % 16 != 6) hdf5::set_attribute(file_, "complete", std::int64_t{flags >> 4});
    hdf5::set_attribute(file_, "written_at", "2025-01-31T12:00:00Z");
  }

  void create(const std::string& group) {
    const hdf5::Id id = hdf5::create_group(file_, group);
    groups_.insert(group);
    if (group == "render") hdf5::set_attribute(id, "n_train", std::int64_t{bytes_.next() % 8});
    if (group == "load" && bytes_.next() % 2 == 0) create("load/memory");
    if (group == "provenance")
      for (const char* axis : {"arithmetic", "orchestration", "runtime"})
        hdf5::set_attribute(id, axis, "fuzz");
  }

  void dataset() {
    const auto& table = format::datasets();
    const format::Dataset& one = table[bytes_.next() % table.size()];
    const std::uint8_t how = bytes_.next();
    if (!groups_.contains(one.group) || !made_.insert(one.path()).second) return;
    std::vector<hsize_t> dims;
    std::vector<std::string> labels;
    std::size_t count = 1;
    for (const format::Extent& extent : one.extents) {
      const std::string symbol = extent.symbol;
      const auto size = extent.fixed > 0 ? static_cast<std::uint8_t>(extent.fixed) : size_of(symbol);
      dims.push_back(how % 8 == 7 ? bytes_.next() % 5 : size);
      labels.emplace_back(how % 8 == 6 ? "" : extent.label);
      count *= dims.back();
    }
    if (how % 16 == 5) dims.push_back(1);
    const hdf5::About about{how % 32 == 3 ? "" : one.unit, one.description, labels};
    const std::uint8_t kind = (how >> 5) == 7 ? bytes_.next() % 8 : static_cast<std::uint8_t>(one.kind);
    write(one.path(), static_cast<format::Kind>(kind), dims, count, about);
  }

  // Small, and the same for a letter unless the program says so.
  std::uint8_t size_of(const std::string& symbol) {
    if (symbol == "S+1") return static_cast<std::uint8_t>(size_of("S") + 1);
    const auto found = sizes_.find(symbol);
    if (found != sizes_.end()) return found->second;
    return sizes_[symbol] = bytes_.next() % 5;
  }

  void write(const std::string& path, format::Kind kind, std::span<const hsize_t> dims, std::size_t count,
             const hdf5::About& about) {
    using enum format::Kind;
    const hdf5::Id digest = hdf5::digest_type();
    std::vector<std::string> texts;
    switch (kind) {
      case kFloat64:
        return numbers<double>(path, hdf5::float64_type(), dims, count, about);
      case kInt64:
        return numbers<std::int64_t>(path, hdf5::int64_type(), dims, count, about);
      case kUint64:
        return numbers<std::uint64_t>(path, hdf5::uint64_type(), dims, count, about);
      case kInt32:
        return numbers<std::int32_t>(path, hdf5::int32_type(), dims, count, about);
      case kInt8:
        return numbers<std::int8_t>(path, hdf5::int8_type(), dims, count, about);
      case kUint8:
        return numbers<std::uint8_t>(path, hdf5::uint8_type(), dims, count, about);
      case kText:
        for (std::size_t i = 0; i < count; ++i) texts.push_back(text());
        if (dims.empty()) return hdf5::write_text(file_, path, texts[0], about);
        return hdf5::write_texts(file_, path, texts, about);
      case kDigest: {
        const std::string characters(count * hdf5::kDigestChars, "0aAz"[bytes_.next() % 4]);
        return hdf5::write_array(file_, path, {digest.get(), digest.get(), hdf5::kDigestChars}, dims,
                                 characters.data(), about);
      }
    }
  }

  template <class T>
  void numbers(const std::string& path, const hdf5::ElementType& type, std::span<const hsize_t> dims,
               std::size_t count, const hdf5::About& about) {
    std::vector<T> values(count + 1);
    const std::uint8_t rule = bytes_.next();
    for (std::size_t i = 0; i < count; ++i) {
      // Rising steps are what most columns want.
      values[i] = rule < 128 ? static_cast<T>(rule % 4 + i * (rule / 4 % 4)) : special<T>(bytes_.next());
    }
    hdf5::write_array(file_, path, type, dims, values.data(), about);
  }

  template <class T>
  T special(std::uint8_t byte) {
    using Limits = std::numeric_limits<T>;
    if (byte < 200) return static_cast<T>(static_cast<std::int8_t>(byte % 16 - 3));
    if constexpr (std::is_floating_point_v<T>) {
      const T values[] = {Limits::quiet_NaN(), Limits::infinity(),   -Limits::infinity(),
                          Limits::max(),       Limits::denorm_min(), T(-0.0)};
      return values[byte % 6];
    } else {
      return byte % 2 ? Limits::max() : Limits::min();
    }
  }

  std::string text() {
    static const char* const kTexts[] = {
        "",   "a",    "b", "m.lora_A.weight", "m.lora_B.weight", "\xff", "x = 1\n", "x = 1\ny = 2\n",
        "\n", "é\x01"};
    const std::uint8_t which = bytes_.next();
    return which < 240 ? kTexts[which % std::size(kTexts)] : std::string(which, 'x');
  }

  Bytes bytes_;
  hdf5::Id file_;
  std::set<std::string> groups_, made_;
  std::map<std::string, std::uint8_t> sizes_;
};

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static tandem::fuzz::MemoryFile memory;
  if (size >= 4 && std::memcmp(data, "\x89HDF", 4) == 0) {
    memory.set(data, size);
    if (tandem::hdf5_survives(memory.path())) tandem::read_and_judge(memory.path());
    return 0;
  }
  std::vector<std::byte> image;
  tandem::Builder(tandem::Bytes(data, size), image);
  memory.set(image.data(), image.size());
  tandem::read_and_judge(memory.path());
  return 0;
}
