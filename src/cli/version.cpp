#include "src/cli/version.hpp"

#include <mpi.h>

#include <nlohmann/json.hpp>

#include "git_revision.hpp"
#include "io/hdf5_version.hpp"
#include "kernels/onednn_version.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

std::string compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#elif defined(__GNUC__)
  return cat("GCC ", __GNUC__, ".", __GNUC_MINOR__, ".", __GNUC_PATCHLEVEL__);
#else
  return "unknown";
#endif
}

// Callable before MPI_Init. Open MPI's text goes on after a comma with its packager and dates, MPICH's has
// "Version:" and a tab in it.
std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "";
  const std::string all(text, static_cast<std::size_t>(length));
  std::string line = all.substr(0, all.find_first_of(",\n"));
  if (const std::string_view word = " Version:\t"; line.find(word) != std::string::npos)
    line.replace(line.find(word), word.size(), " ");
  return line;
}

}  // namespace

Version version(GpuSystem* gpus) {
  return {.version = TANDEM_VERSION,
          .git = TANDEM_GIT_REVISION,
          .compiler = compiler(),
          .build_type = TANDEM_BUILD_TYPE,
          .arch = TANDEM_ARCH,
          .instruction_set = onednn_instruction_set(),
          .onednn = onednn_version(),
          .hdf5 = hdf5_version(),
          .mpi = mpi_library(),
          .gpus = gpus ? versions_text(gpus->versions()) : ""};
}

std::string build_text(const Version& v) {
  return cat(v.version, " ", v.git.empty() ? "unknown" : v.git, " ", v.compiler, " ", v.build_type,
             " -march=", v.arch);
}

std::string version_text(const Version& v) {
  return cat("tandem ", v.version, " (", v.git.empty() ? "no git revision" : v.git, ")\n", "built    ",
             v.compiler, ", ", v.build_type, ", -march=", v.arch, "\n", "runs on  oneDNN ", v.onednn, " (",
             v.instruction_set, "), HDF5 ", v.hdf5, ", ", v.mpi, "\n",
             v.gpus.empty() ? "" : cat("GPUs     ", v.gpus, "\n"));
}

std::string version_json(const Version& v) {
  const nlohmann::ordered_json json = {
      {"version", v.version},
      {"git", v.git.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(v.git)},
      {"compiler", v.compiler},
      {"build_type", v.build_type},
      {"arch", v.arch},
      {"instruction_set", v.instruction_set},
      {"onednn", v.onednn},
      {"hdf5", v.hdf5},
      {"mpi", v.mpi},
      {"gpus", v.gpus.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(v.gpus)}};
  return json.dump() + "\n";
}

}  // namespace tandem
