// Signals that a thread of their own handles, never one that computes.
#pragma once

#include <initializer_list>

namespace tandem {

// Once, before threads are made (they inherit it): from now on a handler of these signals, if the process is
// sent one, runs on a thread that does nothing else. oneDNN's generated code keeps a pointer into the heap in
// the stack register (oneDNN issue 4845, versions to 3.11 at least), so that a handler's frame would destroy
// what lies there.
void handle_signals_apart(std::initializer_list<int> signals);

}  // namespace tandem
