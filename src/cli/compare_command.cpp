#include "src/cli/compare_command.hpp"

#include <system_error>

#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/compare/compare.hpp"
#include "src/compare/view.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

fs::path in_folder(const fs::path& folder, const char* name) {
  std::error_code error;
  if (!fs::exists(folder / name, error))
    throw Error(ErrorKind::kInput, cat(folder.string(), ": holds no ", name));
  return folder / name;
}

std::vector<fs::path> files_of(const std::vector<fs::path>& paths) {
  std::error_code error;
  if (paths.size() == 1) {
    if (!fs::is_directory(paths[0], error))
      throw Error(ErrorKind::kUsage,
                  "compare: two trajectory files, or a run's folder with native.h5 and mirror.h5");
    return {in_folder(paths[0], "native.h5"), in_folder(paths[0], "mirror.h5")};
  }
  std::vector<fs::path> files;
  for (const fs::path& path : paths)
    files.push_back(fs::is_directory(path, error) ? in_folder(path, "native.h5") : path);
  return files;
}

}  // namespace

int compare_command(const CompareJob& job, std::ostream& out) {
  std::vector<Trajectory> all;
  for (const fs::path& file : files_of(job.paths)) all.push_back(read_untrusted_trajectory(file));
  const Comparison found = compare(all, {.across_specs = job.across_specs});
  if (job.json)
    write_json(found, out);
  else
    write_view(found, {.colour = job.colour, .all = job.all}, out);
  return found.conclusion == Comparison::Conclusion::kPass ? 0 : static_cast<int>(ErrorKind::kDisagreement);
}

}  // namespace tandem
