#include "io/hdf5_version.hpp"

#include <hdf5.h>

#include <array>
#include <vector>

#include "io/hdf5.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0) return "";
  return cat(major, ".", minor, ".", release);
}

std::string hdf5_built_version() { return cat(H5_VERS_MAJOR, ".", H5_VERS_MINOR, ".", H5_VERS_RELEASE); }

void try_hdf5_file(const std::filesystem::path& file) {
  constexpr std::array<std::int64_t, 3> kValues = {1, -2, 3};
  constexpr std::array<hsize_t, 1> kSize = {kValues.size()};
  hdf5::Id written = hdf5::create_on_disk(file);
  hdf5::write_array(written, "values", hdf5::int64_type(), kSize, kValues.data(),
                    {"1", "three numbers", {"value"}});
  hdf5::close_file(written);
  const hdf5::Id opened = hdf5::open_for_reading(file);
  std::vector<std::int64_t> dims;
  const std::vector<std::int64_t> read = hdf5::Node(opened, file).ints("values", dims);
  if (!std::equal(read.begin(), read.end(), kValues.begin(), kValues.end()))
    throw Error(ErrorKind::kInput, cat(file.string(), ": other numbers than were written"));
}

}  // namespace tandem
