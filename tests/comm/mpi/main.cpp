// Runs every test on all ranks together. The first failure on any rank is printed and ends the job: the other
// ranks may wait in a collective which that rank will never reach.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "tests/comm/mpi/world.hpp"

namespace tandem::mpi_test {
namespace {

std::unique_ptr<MpiCommunicator> the_world;

class EndAtFirstFailure final : public testing::EmptyTestEventListener {
  // Kept, because UnitTest::current_test_info would wait for the lock that is held while a result is
  // reported.
  void OnTestStart(const testing::TestInfo& test) override { test_ = &test; }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::printf("rank %d of %d, %s.%s, %s:%d:\n%s\n", world().rank(), world().size(),
                test_ ? test_->test_suite_name() : "", test_ ? test_->name() : "", result.file_name(),
                result.line_number(), result.summary());
    std::fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  const testing::TestInfo* test_ = nullptr;
};

}  // namespace

MpiCommunicator& world() { return *the_world; }

}  // namespace tandem::mpi_test

int main(int argc, char** argv) {
  using tandem::mpi_test::the_world;
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  testing::InitGoogleTest(&argc, argv);
  the_world = std::make_unique<tandem::MpiCommunicator>(MPI_COMM_WORLD);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (the_world->rank() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new tandem::mpi_test::EndAtFirstFailure);
  const int result = RUN_ALL_TESTS();
  the_world.reset();
  MPI_Finalize();
  return result;
}
