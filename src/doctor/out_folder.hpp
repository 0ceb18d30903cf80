// Whether the place for run folders takes what runs write: files, locks, HDF5.
#pragma once

#include <filesystem>
#include <optional>

#include "comm/communicator.hpp"
#include "src/doctor/finding.hpp"

namespace tandem {

// A folder of its own in the nearest existing folder of `out`, made by rank 0 and removed with this object.
// Collective: all of it.
class OutFolder {
 public:
  OutFolder(Communicator& comm, const std::filesystem::path& out);
  ~OutFolder();
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;

  // Whether rank 0 can write there, and how much is free.
  std::optional<Finding> disk() const;
  // Whether a second holder of a lock is refused, on this node and on the others. Nothing where there is no
  // folder.
  std::optional<Finding> locks();
  std::optional<Finding> hdf5_file() const;

 private:
  std::optional<Finding> own_lock();
  std::optional<Finding> others_lock();

  Communicator& comm_;
  std::filesystem::path existing_, own_;  // own_: "" where it could not be made
  std::string failure_;
};

}  // namespace tandem
