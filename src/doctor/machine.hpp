// What the machines of a job have: cores, memory, shared memory, open files. Each is collective: the ranks of
// a node share it.
#pragma once

#include <cstdint>
#include <string>

#include "comm/communicator.hpp"
#include "comm/topology.hpp"
#include "src/doctor/finding.hpp"

namespace tandem {

// "4 ranks on 2 hosts: node01 2, node02 2", the same on all ranks.
Finding check_hosts(Communicator& comm, const std::string& host);
// placement: of this rank. Threads against the CPUs they may use.
Finding check_cores(Communicator& node, const Placement& placement);
// Free memory for each rank of a node, the least over the nodes.
Finding check_memory(Communicator& comm, const Placement& placement);
// /dev/shm, where the ranks of a node share the model's weights and MPI its messages.
Finding check_shared_memory(const Placement& placement);
// Open files that a rank may have; MPI over TCP needs one or two for each other rank.
Finding check_open_files(int n_ranks);

}  // namespace tandem
