// `tandem export`: a run's adapter, or a model with it merged in, as a folder for other programs.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

#include "src/base/dtype.hpp"

namespace tandem {

struct ExportOptions {
  std::filesystem::path run = {}, adapter = {};  // one of them: a run's folder, or a PEFT adapter's
  std::filesystem::path model = {};              // empty: the adapter's base_model_name_or_path
  std::filesystem::path out = {};                // created with its parents; must be absent or empty
  std::string name = {};  // the base model's name in what is written; empty: the folder's path
  bool merge = false;
  std::optional<DType> dtype = {};  // of the merged model; none: each tensor's own
  int threads = 0;
};

// Publishes the folder whole, says on `out` what it holds, and returns 0. What was written was read back and
// compared. Throws kUsage for options that do not fit together, kInput for folders and files.
int export_command(const ExportOptions& options, std::ostream& out);

}  // namespace tandem
