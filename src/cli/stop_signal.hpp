// USR1, TERM and INT as a wish to stop: noted, and looked at by whoever trains.
#pragma once

namespace tandem {

// Once, before ranks and threads exist. The first signal is noted; a later INT or TERM ends the process at
// once (one within half a second counts as the same wish, told by two: the scheduler and mpirun), a later
// USR1 is nothing new.
void note_stop_signals();
bool stop_signal_came();

}  // namespace tandem
