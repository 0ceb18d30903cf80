#include "io/hdf5_version.hpp"

#include <hdf5.h>

#include "src/base/text.hpp"

namespace tandem {

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0) return "";
  return cat(major, ".", minor, ".", release);
}

}  // namespace tandem
