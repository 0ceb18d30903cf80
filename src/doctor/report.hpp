// Gathers findings over the ranks and prints them on rank 0, a line each; ranks that differ are named.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "src/doctor/finding.hpp"

namespace tandem {

class Report {
 public:
  // out: where rank 0 prints. Collective, as is all below but exit_code().
  Report(Communicator& comm, const std::string& host, std::ostream& out);

  // What this rank found; none: nothing to say.
  void add(const std::string& name, const std::optional<Finding>& mine);
  // The same, but ranks must not differ in what they found: that is then a failure, or with `may_differ` a
  // note, which ends with `what_to_do`.
  void add_equal(const std::string& name, const Finding& mine, const std::string& what_to_do,
                 bool may_differ = false);

  // 0 where nothing would stop a run; else that of the first failure.
  int exit_code() const { return exit_code_; }

 private:
  struct Group {
    Finding finding;
    std::vector<int> ranks;
  };
  std::vector<Group> gather(const std::optional<Finding>& mine);
  void print(const std::string& name, const std::vector<Group>& groups);
  std::string who(const std::vector<int>& ranks) const;

  Communicator& comm_;
  std::vector<std::string> hosts_;
  std::ostream& out_;
  int exit_code_ = 0;
};

}  // namespace tandem
