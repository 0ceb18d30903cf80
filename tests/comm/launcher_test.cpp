#include "comm/launcher.hpp"

#include <gtest/gtest.h>

#include <map>

#include "src/base/error.hpp"

namespace tandem {
namespace {

using Variables = std::map<std::string, std::string>;

// The error's text, "" if none.
std::string refusal(int mpi_size, const Variables& variables) {
  try {
    check_launcher(mpi_size, [&](const char* name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    return error.what();
  }
  return "";
}

TEST(Launcher, SeveralProcessesThatMpiDoesNotJoinAreRefused) {
  const Variables cases[] = {
      {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}},
      {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "2"}},
      {{"OMPI_COMM_WORLD_SIZE", "4"}},
      {{"PMI_SIZE", "2"}},
      {{"MV2_COMM_WORLD_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "1"}},
  };
  for (const Variables& variables : cases) {
    const std::string text = refusal(1, variables);
    EXPECT_NE(text.find("srun --mpi=pmix"), std::string::npos) << text;
    EXPECT_NE(text.find("mpirun"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_EQ(refusal(2, variables), "") << "MPI has joined them";
  }
  EXPECT_NE(refusal(1, cases[0]).find("SLURM_STEP_NUM_TASKS = 4"), std::string::npos);
}

// The error's text, or "said: " and the line to say before, or "".
std::string early(bool open_mpi, const Variables& variables) {
  try {
    const std::string said =
        check_launcher_before_mpi(open_mpi, [&](const char* name) -> std::optional<std::string> {
          const auto found = variables.find(name);
          if (found == variables.end()) return std::nullopt;
          return found->second;
        });
    return said.empty() ? "" : "said: " + said;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    return error.what();
  }
}

TEST(Launcher, SrunWithoutAnyPmiIsRefusedBeforeMpiStarts) {
  Variables step = {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}};
  for (const bool open_mpi : {false, true}) {
    EXPECT_NE(early(open_mpi, step).find("SLURM_STEP_NUM_TASKS = 2"), std::string::npos);
    EXPECT_NE(early(open_mpi, step).find("srun --mpi=pmix"), std::string::npos);
    for (const char* offered : {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE"}) {
      Variables with = step;
      with[offered] = "0";
      EXPECT_EQ(early(open_mpi, with), "") << offered;
    }
    EXPECT_EQ(early(open_mpi, {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "4294967291"}}), "")
        << "a batch script";
    EXPECT_EQ(early(open_mpi, {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), "") << "an allocation";
    EXPECT_EQ(early(open_mpi, {}), "");
  }
  step["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ(early(false, step), "");
  EXPECT_NE(early(true, step).find("SLURM_STEP_NUM_TASKS = 1"), std::string::npos);
}

TEST(Launcher, Pmi2IsTriedAndOpenMpiSaysWhatToDoWhereItFails) {
  const Variables step = {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "0"}, {"PMI_FD", "11"}};
  EXPECT_EQ(early(false, step), "");
  EXPECT_EQ(early(true, step).find("said: "), 0u);
  EXPECT_NE(early(true, step).find("srun --mpi=pmix"), std::string::npos);
}

TEST(Launcher, OneProcessIsRightWhateverTheAllocationHolds) {
  const Variables cases[] = {
      {},
      {{"SLURM_NTASKS", "4"}, {"SLURM_NPROCS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "7"}},
      {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "1"}},
      // A batch script or interactive shell: a step of its own kind, which inherits the allocation's numbers.
      {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "4294967291"}},
      {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "4294967290"}},
      {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "-5"}},
      // mpirun -n 1 inside a step of several tasks.
      {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}},
      {{"SLURM_STEP_NUM_TASKS", "many"}, {"PMI_SIZE", ""}},
  };
  for (const Variables& variables : cases) EXPECT_EQ(refusal(1, variables), "");
}

TEST(Launcher, IsNamedWithTheNumberOfProcessesThatItSays) {
  const auto found = [](const Variables& variables) {
    const Launcher launcher = find_launcher([&](const char* name) -> std::optional<std::string> {
      const auto value = variables.find(name);
      if (value == variables.end()) return std::nullopt;
      return value->second;
    });
    return launcher.name + " " + (launcher.size ? std::to_string(*launcher.size) : "?");
  };
  EXPECT_EQ(found({}), "none ?");
  EXPECT_EQ(found({{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_STEP_NUM_TASKS", "2"}}), "Open MPI's mpirun 4");
  EXPECT_EQ(found({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "0"}, {"PMIX_RANK", "0"}}),
            "srun --mpi=pmix 2");
  EXPECT_EQ(found({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "0"}, {"PMI_SIZE", "2"}}), "srun 2");
  EXPECT_EQ(found({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "4294967291"}}), "none ?")
      << "a batch script";
  EXPECT_EQ(found({{"PMI_SIZE", "3"}}), "a launcher with PMI 3");
  EXPECT_EQ(found({{"PMI_SIZE", "3"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "0"}}),
            "a launcher with PMI 3")
      << "mpiexec in an interactive step";
}

TEST(Launcher, ReadsTheEnvironmentOfTheProcess) {
  ASSERT_EQ(setenv("TANDEM_TEST_VARIABLE", "7", 1), 0);
  EXPECT_EQ(process_environment("TANDEM_TEST_VARIABLE"), "7");
  ASSERT_EQ(unsetenv("TANDEM_TEST_VARIABLE"), 0);
  EXPECT_EQ(process_environment("TANDEM_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace tandem
