// The mirror's own run, from update 0 on; it never looks at native's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/audit/messages.hpp"
#include "src/mirror/mirror.hpp"

namespace tandem {

class FreeRun {
 public:
  struct Options {
    std::int64_t snapshot_every = 0;  // 0: none
    std::vector<std::string> snapshot_what;
    std::int64_t observe_every = 0;  // 0: none
  };
  // Where it stands between two steps of advance().
  struct State {
    mirror::AdapterState adapter;
    std::int64_t next = 0;  // the update to be made; 0: nothing has been done
    double off_at_start = 0.0;
    bool ended = false;
  };

  // mirror outlives this object. begin: where to go on; nullptr: at the beginning.
  FreeRun(const mirror::Mirror& mirror, Options options, std::shared_ptr<const State> begin = nullptr);

  // The next of: the beginning with its evaluation, an update with the evaluation after it, the end. Returns
  // what there is to tell of it. Where it throws, nothing has happened.
  std::vector<MirrorMessage> advance();
  bool ended() const { return state_->ended; }
  // As it is now; never changed afterwards.
  std::shared_ptr<const State> state() const { return state_; }

 private:
  void begin(State& state);
  void update(State& state);
  void evaluate(const State& state, std::int64_t t, std::vector<double> update_norm);
  void end(State& state);
  void post(MirrorMessage message) { messages_.push_back(std::move(message)); }

  const mirror::Mirror& mirror_;
  Options options_;
  std::shared_ptr<const State> state_;
  std::vector<MirrorMessage> messages_;  // of the step under way
};

}  // namespace tandem
