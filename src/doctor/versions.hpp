// Libraries that run against those that the program was built with.
#pragma once

#include <string>

#include "src/doctor/finding.hpp"

namespace tandem {

// built and loaded as a library names itself: "Open MPI v4.1.4". Another implementation or another first
// number does not fit; another release of the same does.
Finding check_mpi(const std::string& built, const std::string& loaded);

// HDF5 wants the very release whose headers were used, and ends the program otherwise.
Finding check_hdf5();

}  // namespace tandem
