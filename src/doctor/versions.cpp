#include "src/doctor/versions.hpp"

#include <cstdlib>

#include "io/hdf5_version.hpp"
#include "src/base/text.hpp"

namespace tandem {

Finding check_mpi(const std::string& built, const std::string& loaded) {
  if (loaded == built) return ok(cat(loaded, ", as built"));
  // "Open MPI v4.1.4" up to the first dot.
  if (loaded.substr(0, loaded.find('.')) == built.substr(0, built.find('.')))
    return ok(cat(loaded, "; built with ", built));
  return failure(ErrorKind::kDevice,
                 cat(loaded.empty() ? "no name" : loaded, ", but built with ", built,
                     ": load the module or set LD_LIBRARY_PATH that the build had, or build again"));
}

Finding check_hdf5() {
  const std::string built = hdf5_built_version(), loaded = hdf5_version();
  if (loaded == built) return ok(cat(loaded, ", as built"));
  const std::string both = cat(loaded, ", but built with ", built);
  if (std::getenv("HDF5_DISABLE_VERSION_CHECK"))
    return note(cat(both, "; HDF5_DISABLE_VERSION_CHECK lets it run all the same"));
  return failure(ErrorKind::kInternal,
                 cat(both, ": build again, or set LD_LIBRARY_PATH to the library it was built with"));
}

}  // namespace tandem
