// The mirror's own run, from update 0 on; it never looks at native's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
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
  // mirror outlives this object.
  FreeRun(const mirror::Mirror& mirror, Options options, std::function<void(MirrorMessage)> post);

  // The next of: the beginning with its evaluation, an update with the evaluation after it, the end.
  void advance();
  bool ended() const { return ended_; }

 private:
  void begin();
  void update(std::int64_t t);
  void evaluate(std::int64_t t, std::vector<double> update_norm);
  void end();

  const mirror::Mirror& mirror_;
  Options options_;
  std::function<void(MirrorMessage)> post_;
  mirror::AdapterState state_;
  std::int64_t next_ = 0;
  double off_at_start_ = 0.0;
  bool ended_ = false;
};

}  // namespace tandem
