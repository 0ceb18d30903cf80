#include "comm/strain.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "comm/control_groups.hpp"
#include "src/base/clock.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

std::int64_t swapped_in() {
  std::ifstream in("/proc/vmstat");
  std::string name;
  std::int64_t value = 0;
  while (in >> name >> value)
    if (name == "pswpin") return value;
  return 0;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Time that the calling thread stood in the queue for a CPU; 0: the system does not say.
double queued_s() {
  std::ifstream in("/proc/thread-self/schedstat");  // time on a CPU, time in the queue, both in ns
  double ran = 0.0, queued = 0.0;
  return in >> ran >> queued ? 1e-9 * queued : 0.0;
}

// Mean over the CPUs; 0: the system does not say.
double megahertz() {
  std::ifstream in("/proc/cpuinfo");
  double sum = 0.0, n = 0.0;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("cpu MHz")) {
      sum += std::atof(line.c_str() + line.find(':') + 1);
      n += 1.0;
    }
  return n > 0.0 ? sum / n : 0.0;
}

std::string decimals(const char* format, double value) {
  char text[80];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

Strain strain_now() {
  Strain strain;
  strain.at_s = now_s();
  rusage usage{};
  if (getrusage(RUSAGE_THREAD, &usage) == 0)
    strain.thread_cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  strain.thread_delay_s = queued_s();
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    strain.major_faults = usage.ru_majflt;
    strain.involuntary = usage.ru_nivcsw;
  }
  strain.swapped_in_pages = swapped_in();
  const GroupCounts counts = control_group_counts();
  strain.throttled = counts.throttled;
  strain.throttled_s = counts.throttled_s;
  strain.memory_short = counts.memory_short;
  return strain;
}

double severity_since(const Strain& before) {
  const Strain now = strain_now();
  const double kept_s = now.thread_delay_s - before.thread_delay_s + now.throttled_s - before.throttled_s +
                        0.01 * static_cast<double>(now.major_faults - before.major_faults);
  return kept_s / std::max(1e-3, now.at_s - before.at_s);
}

std::string strain_since(const Strain& before) {
  const Strain now = strain_now();
  std::vector<std::string> seen;
  if (now.at_s > before.at_s)
    seen.push_back(decimals("the thread had a CPU %.0f %% of the time",
                            100.0 * (now.thread_cpu_s - before.thread_cpu_s) / (now.at_s - before.at_s)));
  if (const double queued = now.thread_delay_s - before.thread_delay_s;
      queued > 0.01 * (now.at_s - before.at_s))
    seen.push_back(decimals("stood in the queue for one %.0f %%", 100.0 * queued / (now.at_s - before.at_s)));
  const auto count = [&](std::int64_t n, const char* what) {
    if (n > 0) seen.push_back(counted(n, what));
  };
  count(now.major_faults - before.major_faults, "major page fault");
  count(now.swapped_in_pages - before.swapped_in_pages, "swapped-in page");
  if (now.throttled > before.throttled)
    seen.push_back(cat("the control group's CPU time ran out ",
                       counted(now.throttled - before.throttled, "time"),
                       decimals(", for %.2f s", now.throttled_s - before.throttled_s)));
  if (now.memory_short > before.memory_short)
    seen.push_back(cat("the control group's memory limit was met ",
                       counted(now.memory_short - before.memory_short, "time")));
  if (now.involuntary > before.involuntary)
    seen.push_back(cat(now.involuntary - before.involuntary, " involuntary context switches"));
  double load = 0.0;
  if (getloadavg(&load, 1) == 1)
    seen.push_back(
        cat(decimals("load average %.2f on ", load), counted(sysconf(_SC_NPROCESSORS_ONLN), "CPU")));
  if (const double clock = megahertz(); clock > 0.0) seen.push_back(decimals("%.0f MHz", clock));
  return joined(seen);
}

}  // namespace tandem
