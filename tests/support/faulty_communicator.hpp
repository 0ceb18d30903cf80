// A communicator with one planted fault: at one all-reduce of many numbers, one limb on one rank is changed,
// before it is sent (all ranks then hold the same wrong sum) or after the sum has come back (one rank alone
// holds a wrong sum).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace tandem::support {

struct Fault {
  enum class Kind { kFlip, kLose, kDouble };
  enum class When { kBefore, kAfter };
  Kind kind = Kind::kFlip;
  When when = When::kBefore;
  int rank = 0;
  int call = 0;  // which all-reduce of more than one number, from 0
  std::size_t limb = 0;
  int bit = 0;  // kFlip
};

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(Communicator& real, const Fault& fault) : real_(real), fault_(fault) {}

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  void all_reduce_sum(std::span<std::int64_t> values) override {
    const bool now = values.size() > 1 && n_calls_++ == fault_.call && rank() == fault_.rank;
    if (now && fault_.when == Fault::When::kBefore) strike(values[fault_.limb]);
    real_.all_reduce_sum(values);
    if (now && fault_.when == Fault::When::kAfter) strike(values[fault_.limb]);
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    real_.all_gather(mine, all);
  }
  std::vector<std::string> all_gather_text(std::string_view mine) override {
    return real_.all_gather_text(mine);
  }
  void broadcast(std::span<std::byte> bytes, int root) override { real_.broadcast(bytes, root); }
  void transfer(std::span<std::byte> bytes, int from, int to) override { real_.transfer(bytes, from, to); }
  void barrier() override { real_.barrier(); }
  Waiting* waiting() override { return real_.waiting(); }
  std::unique_ptr<Communicator> node() override { return real_.node(); }
  using Communicator::all_reduce_sum;

 private:
  void strike(std::int64_t& limb) const {
    auto bits = static_cast<std::uint64_t>(limb);
    if (fault_.kind == Fault::Kind::kFlip) bits ^= std::uint64_t{1} << fault_.bit;
    if (fault_.kind == Fault::Kind::kLose) bits = 0;
    if (fault_.kind == Fault::Kind::kDouble) bits *= 2;
    limb = static_cast<std::int64_t>(bits);
  }

  Communicator& real_;
  Fault fault_;
  int n_calls_ = 0;
};

}  // namespace tandem::support
