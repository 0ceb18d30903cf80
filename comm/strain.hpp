// What may slow a process down, as the system counts it.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

struct Strain {
  double at_s = 0.0;                  // now_s()
  double thread_cpu_s = 0.0;          // of the calling thread
  double thread_delay_s = 0.0;        // that it was ready to run and had no CPU
  std::int64_t major_faults = 0;      // pages read from disk
  std::int64_t involuntary = 0;       // times that one of the threads lost its CPU to another
  std::int64_t swapped_in_pages = 0;  // of the machine
  std::int64_t throttled = 0;         // of the control group (control_groups.hpp)
  double throttled_s = 0.0;
  std::int64_t memory_short = 0;
};

Strain strain_now();

// What came since, for people: "the thread had a CPU 48 % of the time, 310 involuntary context switches, load
// average 3.10 on 2 CPUs, 2300 MHz". What did not occur is left out.
std::string strain_since(const Strain& before);

// Share of the time that the system kept this thread from running, to compare ranks by: it was ready and had
// no CPU, or its control group's CPU time was used up, or it waited for a page from disk (10 ms each).
double severity_since(const Strain& before);

}  // namespace tandem
