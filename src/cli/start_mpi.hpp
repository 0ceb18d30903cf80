// Starts MPI for this program.
#pragma once

namespace tandem {

// MPI_Init_thread with MPI_THREAD_FUNNELED. Throws kDevice where the launcher and MPI do not fit; where the
// library may end the process itself, a line that says what to do comes before.
void start_mpi();

}  // namespace tandem
