// `tandem doctor`: alone, under mpirun, and where something is wrong.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "src/doctor/versions.hpp"
#include "tests/support/shell.hpp"

namespace tandem {
namespace {

using support::lines_of;
using support::ShellResult;
using support::TempFolder;

ShellResult doctor(const TempFolder& folder, const std::string& before, const std::string& options = "") {
  return support::run_shell(folder, "export ASAN_OPTIONS=verify_asan_link_order=0  # the shim comes before the sanitizer\n"
                                    "m=" TANDEM_SOURCE_DIR "/tests/support/mpirun.sh; shim=" DOCTOR_SHIM
                                    "\n" +
                                        before + " \"" TANDEM_PROGRAM "\" doctor --seconds 0 " + options);
}
ShellResult doctor(const std::string& before, const std::string& options = "") {
  const TempFolder folder;
  return doctor(folder, before, options);
}

// The line about `name`; of several the first.
std::string line(const ShellResult& result, const std::string& name) {
  for (const std::string& text : lines_of(result.out))
    if (text.size() > 6 && text.substr(6).starts_with(name + " ")) return text;
  return "";
}

void expect(const ShellResult& result, const std::string& name, const std::string& state,
            const std::string& text) {
  const std::string found = line(result, name);
  EXPECT_TRUE(found.starts_with(state + " ")) << found << "\n" << result.err;
  EXPECT_NE(found.find(text), std::string::npos) << found;
}

TEST(Doctor, SaysALineForEachCheckAndLeavesNothing) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "o");
  const ShellResult result = doctor(folder, "", "--out o");
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(lines_of(result.out).size(), 16u) << result.out;
  for (const char* name :
       {"launcher", "hosts", "program", "CPU", "MPI", "HDF5", "folder", "locks", "HDF5 file"})
    expect(result, name, "ok", "");
  EXPECT_TRUE(std::filesystem::is_empty(folder / "o"));
  // R37: a build for CPUs neither has nor needs CUDA's libraries.
  expect(result, "GPU", "ok", "not built in");
  const ShellResult libraries = support::run_shell(folder, "ldd \"" TANDEM_PROGRAM "\"");
  EXPECT_NE(libraries.out.find("libmpi"), std::string::npos);
  for (const char* name : {"libcuda", "libcudart", "libnccl"})
    EXPECT_EQ(libraries.out.find(name), std::string::npos) << libraries.out;
}

TEST(Doctor, RankZeroSpeaksForAllRanks) {
  for (const int n : {1, 2, 4}) {
    const ShellResult result = doctor("$m " + std::to_string(n));
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(lines_of(result.out).size(), 16u) << result.out;
    const std::string ranks = std::to_string(n) + (n == 1 ? " rank" : " ranks");
    expect(result, "launcher", "ok", "Open MPI's mpirun; MPI joins " + ranks);
    expect(result, "hosts", "ok", ranks + " on 1 host: ");
    EXPECT_NE(line(result, "all-reduce").find(n == 1 ? "one rank" : "every bit right"), std::string::npos);
  }
}

// Known fault R33.
TEST(Doctor, ALauncherThatMpiDoesNotUnderstandFails) {
  for (const char* variables : {"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0",
                                "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=0 SLURM_PROCID=0"}) {
    const ShellResult result = doctor(variables);
    EXPECT_EQ(result.code, 4);
    expect(result, "launcher", "FAIL", "srun --mpi=pmix");
    expect(result, "HDF5 file", "ok", "");
  }
  // Each of the four would say the same.
  const ShellResult other = doctor("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3");
  EXPECT_EQ(other.code, 4);
  EXPECT_EQ(other.out, "");
}

// Known fault R57: threads follow the CPUs that a rank may use, and what is wrong about them is said.
TEST(Doctor, CountsTheCpusThatARankMayUse) {
  const std::string one = "taskset -c $(taskset -pc $$ | sed 's/.*: *\\([0-9]*\\).*/\\1/')";
  expect(doctor(one), "cores", "ok", "each rank 1 thread on 1 CPU; ");
  const ShellResult crowded = doctor(one, "--threads 3");
  EXPECT_EQ(crowded.code, 0);
  expect(crowded, "cores", "note", "each rank 3 threads on 1 CPU; ");
  expect(crowded, "cores", "note", "more threads than CPUs");
  const ShellResult narrowed = doctor("$m 1 " + one);
  if (std::stoi(support::run_shell(TempFolder(), "nproc").out) > 1)
    expect(narrowed, "cores", "note", "mpirun --bind-to none");
}

// Known fault R37: /dev/shm of a container.
TEST(Doctor, ASmallSharedMemoryIsSaidWhereRanksWouldUseIt) {
  const std::string small = "SHIM_SHM=$((64 << 20)) LD_PRELOAD=$shim";
  expect(doctor("$m 2 env " + small), "/dev/shm", "note", "64 MiB of 64 MiB free");
  expect(doctor("$m 2 env " + small), "/dev/shm", "note", "--shm-size");
  expect(doctor(small), "/dev/shm", "ok", "64 MiB");
}

// Known fault R45.
TEST(Doctor, MissingLocksAreSaid) {
  for (const char* launcher : {"", "$m 2 "}) {
    const ShellResult none = doctor(std::string(launcher) + "env SHIM_FLOCK=none LD_PRELOAD=$shim");
    EXPECT_EQ(none.code, 0) << "runs need no locks: " << none.out;
    expect(none, "locks", "note", "No locks available");
    expect(none, "locks", "note", "HDF5_USE_FILE_LOCKING=FALSE");
    expect(none, "HDF5 file", "ok", "");
    const ShellResult idle = doctor(std::string(launcher) + "env LD_PRELOAD=$shim");
    expect(idle, "locks", "note", "flock does nothing");
  }
  const ShellResult wanted = doctor("HDF5_USE_FILE_LOCKING=TRUE SHIM_FLOCK=none LD_PRELOAD=$shim");
  EXPECT_EQ(wanted.code, 3) << wanted.out;
  expect(wanted, "HDF5 file", "FAIL", "set HDF5_USE_FILE_LOCKING=FALSE");
}

// Known fault R48.
TEST(Doctor, AnotherHdf5ThanBuiltWithIsSaidBeforeItEndsTheProgram) {
  const ShellResult result = doctor("SHIM_HDF5=1 LD_PRELOAD=$shim");
  EXPECT_EQ(result.code, 1);
  expect(result, "HDF5", "FAIL", "1.99.0, but built with 1.");
  EXPECT_EQ(result.err, "");
}

TEST(Doctor, APlaceThatTakesNoRunGivesTheCodeOfInput) {
  const TempFolder folder;
  support::write_text(folder / "file", "x");
  const ShellResult file = doctor(folder, "", "--out file/runs");
  EXPECT_EQ(file.code, 3) << file.out;
  expect(file, "folder", "FAIL", "cannot be written");
  expect(doctor(folder, "", "--out absent/deeper"), "folder", "ok", folder.path().filename().string() + ": ");
  const ShellResult full = doctor(folder, "SHIM_DISK=1000 LD_PRELOAD=$shim");
  EXPECT_EQ(full.code, 3);
  expect(full, "folder", "FAIL", "0 MiB free");
  EXPECT_EQ(doctor(folder, "", "--seconds -1").code, 2);
}

TEST(Doctor, OpenFilesAreCountedForTheRanks) {
  expect(doctor("ulimit -n 100;"), "open files", "note", "100 may be open, 1 rank may need 130");
}

TEST(Doctor, MpiOfAnotherKindOrGenerationFails) {
  EXPECT_EQ(check_mpi("Open MPI v4.1.4", "Open MPI v4.1.4").state, Finding::State::kOk);
  EXPECT_EQ(check_mpi("Open MPI v4.1.4", "Open MPI v4.1.6").state, Finding::State::kOk);
  EXPECT_NE(check_mpi("Open MPI v4.1.4", "Open MPI v4.1.6").text.find("built with"), std::string::npos);
  for (const char* loaded : {"Open MPI v5.0.1", "MPICH Version: 4.0.2", ""})
    EXPECT_EQ(check_mpi("Open MPI v4.1.4", loaded).state, Finding::State::kFail) << loaded;
}

}  // namespace
}  // namespace tandem
