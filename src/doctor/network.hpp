// How the ranks reach one another: speed and correctness of sums, clocks.
#pragma once

#include "comm/communicator.hpp"
#include "src/doctor/finding.hpp"

namespace tandem {

// Sums 64 MiB over the ranks again and again for `seconds`, as training sums gradients, and checks every bit
// at the end. The same on all ranks. Collective.
Finding check_all_reduce(Communicator& comm, double seconds);

// How far the ranks' clocks are apart, as far as messages can tell. Collective.
Finding check_clocks(Communicator& comm);

}  // namespace tandem
