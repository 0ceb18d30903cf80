#include "src/cli/inspect_command.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <system_error>
#include <vector>

#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/cli/inspect_summary.hpp"
#include "src/cli/inspect_validate.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::vector<fs::path> files_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.path().extension() == ".h5") files.push_back(entry.path());
  if (error) throw Error(ErrorKind::kInput, cat(path.string(), ": ", error.message()));
  if (files.empty())
    throw Error(ErrorKind::kInput,
                cat(path.string(), ": holds no trajectory (no *.h5 file); is it a run folder?"));
  std::sort(files.begin(), files.end());
  return files;
}

// Text of a foreign file may be no UTF-8.
void write_json(std::ostream& out, const ordered_json& json) {
  out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

int summarise(const std::vector<fs::path>& files, bool as_json, std::ostream& out) {
  std::vector<Trajectory> trajectories;
  for (const auto& file : files) trajectories.push_back(read_untrusted_trajectory(file));
  ordered_json all = {{"trajectories", ordered_json::array()}};
  for (const Trajectory& trajectory : trajectories)
    as_json ? all["trajectories"].push_back(summary_json(trajectory)) : write_summary(out, trajectory);
  if (as_json) write_json(out, all);
  return 0;
}

int validate(const std::vector<fs::path>& files, bool as_json, std::ostream& out) {
  ordered_json all = {{"files", ordered_json::array()}};
  bool valid = true;
  for (const auto& file : files) {
    const Validity validity = validate_file(file);
    valid = valid && validity.valid();
    as_json ? all["files"].push_back(validity_json(file, validity)) : write_validity(out, file, validity);
  }
  if (as_json) write_json(out, all);
  return valid ? 0 : static_cast<int>(ErrorKind::kInput);
}

}  // namespace

int inspect_command(const InspectOptions& options, std::ostream& out) {
  const auto files = files_of(options.path);
  return options.validate ? validate(files, options.json, out) : summarise(files, options.json, out);
}

}  // namespace tandem
