// MPI functions that fail on demand: the library's own are weak symbols, and PMPI_ names stay for the real
// calls.
#include <cstring>

#include "tests/comm/mpi/world.hpp"

namespace tandem::mpi_test {
namespace {

const char* failing_name = nullptr;
int failing_code = MPI_SUCCESS;
int comm_frees = 0;

bool fails(const char* name) {
  if (failing_name == nullptr || std::strcmp(failing_name, name) != 0) return false;
  failing_name = nullptr;
  return true;
}

}  // namespace

FailingCall::FailingCall(const char* name, int code) {
  failing_name = name;
  failing_code = code;
}
FailingCall::~FailingCall() { failing_name = nullptr; }

int n_comm_frees() { return comm_frees; }

}  // namespace tandem::mpi_test

using tandem::mpi_test::failing_code;
using tandem::mpi_test::fails;

extern "C" {

int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return fails("MPI_Allreduce") ? failing_code : PMPI_Allreduce(send, receive, count, type, op, comm);
}
int MPI_Allgather(const void* send, int n_send, MPI_Datatype send_type, void* receive, int n_receive,
                  MPI_Datatype receive_type, MPI_Comm comm) {
  return fails("MPI_Allgather")
             ? failing_code
             : PMPI_Allgather(send, n_send, send_type, receive, n_receive, receive_type, comm);
}
int MPI_Allgatherv(const void* send, int n_send, MPI_Datatype send_type, void* receive, const int* counts,
                   const int* offsets, MPI_Datatype receive_type, MPI_Comm comm) {
  return fails("MPI_Allgatherv")
             ? failing_code
             : PMPI_Allgatherv(send, n_send, send_type, receive, counts, offsets, receive_type, comm);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return fails("MPI_Bcast") ? failing_code : PMPI_Bcast(data, count, type, root, comm);
}
int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  return fails("MPI_Send") ? failing_code : PMPI_Send(data, count, type, to, tag, comm);
}
int MPI_Recv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  return fails("MPI_Recv") ? failing_code : PMPI_Recv(data, count, type, from, tag, comm, status);
}
int MPI_Barrier(MPI_Comm comm) { return fails("MPI_Barrier") ? failing_code : PMPI_Barrier(comm); }
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy) {
  return fails("MPI_Comm_dup") ? failing_code : PMPI_Comm_dup(comm, copy);
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* part) {
  return fails("MPI_Comm_split_type") ? failing_code : PMPI_Comm_split_type(comm, type, key, info, part);
}
int MPI_Query_thread(int* level) {
  if (fails("MPI_Query_thread")) {
    *level = failing_code;  // the level to report
    return MPI_SUCCESS;
  }
  return PMPI_Query_thread(level);
}
int MPI_Comm_free(MPI_Comm* comm) {
  ++tandem::mpi_test::comm_frees;
  return PMPI_Comm_free(comm);
}
}
