#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/emulated.hpp"
#include "src/base/text.hpp"
#include "tests/emulation/emulation.hpp"

namespace tandem::emulation {

namespace {

struct Planned {
  std::string function;
  int code;
  int calls_left;  // it fails when this comes to 0
};

struct Calls {
  std::mutex lock;
  std::map<std::string, std::int64_t> counts;
  std::vector<Planned> planned;

  // NAME:CODE:NTH[,...]
  Calls() {
    const char* const text = std::getenv("TANDEM_EMULATED_FAIL");
    if (!text) return;
    std::string rest = text;
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      const std::string one = rest.substr(0, comma);
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
      const std::size_t a = one.find(':'), b = one.find(':', a + 1);
      if (a == std::string::npos || b == std::string::npos)
        cuda::emulated::violation("TANDEM_EMULATED_FAIL is not NAME:CODE:NTH[,...]");
      planned.push_back({one.substr(0, a), std::atoi(one.c_str() + a + 1), std::atoi(one.c_str() + b + 1)});
    }
  }
};

Calls& all_calls() {
  static auto* const it = new Calls;
  return *it;
}

}  // namespace

void fail_next(const std::string& function, int code, int nth) {
  const std::lock_guard lock(all_calls().lock);
  all_calls().planned.push_back({function, code, nth});
}

void forget_failures() {
  const std::lock_guard lock(all_calls().lock);
  all_calls().planned.clear();
}

std::map<std::string, std::int64_t> calls() {
  const std::lock_guard lock(all_calls().lock);
  return all_calls().counts;
}

void clear_calls() {
  const std::lock_guard lock(all_calls().lock);
  all_calls().counts.clear();
}

int injected(const char* function) {
  Calls& all = all_calls();
  const std::lock_guard lock(all.lock);
  ++all.counts[function];
  int code = 0;
  for (auto planned = all.planned.begin(); planned != all.planned.end();) {
    if (planned->function == function && --planned->calls_left == 0) {
      if (code == 0) code = planned->code;
      planned = all.planned.erase(planned);
    } else {
      ++planned;
    }
  }
  return code;
}

}  // namespace tandem::emulation
