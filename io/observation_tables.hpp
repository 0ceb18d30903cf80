// The tables that observations.hpp describes, in a trajectory that is being written. For io/trajectory.cpp.
#pragma once

#include <cstdint>

#include "io/hdf5.hpp"
#include "io/observations.hpp"

namespace tandem {

// /probe and the part of /activation that looks at it. Errors: kInternal for rows of another width.
class ProbeTables {
 public:
  ProbeTables(const hdf5::Id& file, const ProbeTokens& tokens, std::int64_t n_layers);
  void append(const ProbeRow& row);
  void write_pending();

 private:
  hdf5::Table probe_, activation_;
};

// /audit.
class AuditTable {
 public:
  AuditTable(const hdf5::Id& file, std::int64_t n_tensors);
  void append(const AuditRow& row);
  void write_pending() { table_.write_pending(); }

 private:
  hdf5::Table table_;
  std::vector<double> unknown_;  // [P] of NaN
};

}  // namespace tandem
