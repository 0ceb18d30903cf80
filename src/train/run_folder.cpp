#include "src/train/run_folder.hpp"

#include <array>
#include <string_view>
#include <system_error>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

// Everything that a run writes; temporaries of a killed one end in ".tmp" or ".old".
constexpr std::array<std::string_view, 9> kNames = {"native.h5",   "mirror.h5", "native.snapshots", "mirror.snapshots",
                                                    "adapter",     "checkpoints", "spec.txt", "execution.txt", "run.log"};

bool is_ours(const fs::path& entry) {
  const std::string name = entry.filename().string();
  for (const std::string_view ours : kNames)
    if (name == ours || name == cat(ours, ".tmp") || name == cat(ours, ".old")) return true;
  return false;
}

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error(ErrorKind::kInput, cat("run.out: ", path.string(), ": ", why));
}

}  // namespace

void check_run_folder(const RunFolder& folder, bool overwrite) {
  std::error_code error;
  const fs::file_status status = fs::status(folder.path, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) fail(folder.path, "is a file, not a folder");
  const fs::directory_iterator entries(folder.path, error);
  if (error) fail(folder.path, cat("cannot be read: ", error.message()));
  bool any = false, run = false;
  for (const fs::directory_entry& entry : entries) {
    any = true;
    run = run || is_ours(entry.path());
  }
  if (!any) return;
  if (!run) fail(folder.path, "holds other files and no run; choose another folder");
  if (!overwrite) fail(folder.path, "holds a run already; choose another folder, or --overwrite to replace it");
}

void prepare_run_folder(const RunFolder& folder) {
  std::error_code error;
  fs::create_directories(folder.path, error);
  if (error) fail(folder.path, cat("cannot be made: ", error.message()));
  const fs::directory_iterator entries(folder.path, error);
  if (error) fail(folder.path, cat("cannot be read: ", error.message()));
  for (const fs::directory_entry& entry : entries) {
    if (!is_ours(entry.path())) continue;
    fs::remove_all(entry.path(), error);
    if (error) fail(entry.path(), cat("cannot be removed: ", error.message()));
  }
}

}  // namespace tandem
