// launch/tandem-mpirun with shell scripts for ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/support/shell.hpp"

namespace tandem {
namespace {

using support::lines_of;
using support::ShellResult;
using support::TempFolder;

class Mpirun : public ::testing::Test {
 protected:
  // `script` is what each rank runs, `$rank` its number; `line` calls it as `./rank`. The launcher's
  // temporary folders go into the test's own.
  ShellResult run(const std::string& script, const std::string& line) {
    support::write_text(folder_ / "rank", "#!/bin/bash\nrank=$OMPI_COMM_WORLD_RANK\n" + script + "\n");
    std::filesystem::permissions(folder_ / "rank", std::filesystem::perms::owner_all);
    std::filesystem::create_directory(folder_ / "t");
    return support::run_shell(folder_,
                              "export TMPDIR=$PWD/t; m=" TANDEM_SOURCE_DIR "/launch/tandem-mpirun; " + line);
  }
  bool left_nothing() { return std::filesystem::is_empty(folder_ / "t"); }

  TempFolder folder_;
};

int count(const ShellResult& result, const std::string& line) {
  const auto lines = lines_of(result.out);
  return static_cast<int>(std::count(lines.begin(), lines.end(), line));
}

std::string last_line(const std::string& text) { return lines_of(text).empty() ? "" : lines_of(text).back(); }

TEST_F(Mpirun, StartsTheRanksAndPassesInputOutputAndArguments) {
  const ShellResult result = run("echo \"$rank of $OMPI_COMM_WORLD_SIZE: $1\"; [ $rank = 0 ] && cat; exit 0",
                                 "echo input | $m -n 2 ./rank 'a  b'");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(count(result, "0 of 2: a  b"), 1);
  EXPECT_EQ(count(result, "1 of 2: a  b"), 1);
  EXPECT_EQ(count(result, "input"), 1);
  EXPECT_TRUE(left_nothing());
}

TEST_F(Mpirun, RanksMayUseEveryAllowedCpu) {
  const std::string mask = "grep Cpus_allowed_list /proc/self/status";
  const ShellResult result = run(mask, mask + "; $m -n 2 ./rank");
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 3u) << result.err;
  EXPECT_EQ(lines[1], lines[0]);
  EXPECT_EQ(lines[2], lines[0]);
}

TEST_F(Mpirun, OnlyRanksThatShareCoresWaitPassively) {
  const std::string script = "echo \"${OMP_WAIT_POLICY:-unset} ${OMPI_MCA_mpi_yield_when_idle:-0}\"";
  EXPECT_EQ(count(run(script, "unset OMP_WAIT_POLICY; $m -n 1 ./rank"), "unset 0"), 1);
  const ShellResult crowded = run(script,
                                  "unset OMP_WAIT_POLICY; taskset -c $(taskset -pc $$ | sed 's/.*: "
                                  "*\\([0-9]*\\).*/\\1/') $m -n 3 ./rank");
  EXPECT_EQ(count(crowded, "passive 1"), 3) << crowded.err;
}

// Known fault R34: tests run as root and with more ranks than CPUs, then with one thread each, and users'
// flags are theirs.
TEST_F(Mpirun, TheTestsOwnLauncherAddsWhatThisMachineNeedsAndNoMore) {
  const std::string script = "echo ${OMP_NUM_THREADS:-unset}";
  const std::string one_cpu = "taskset -c $(taskset -pc $$ | sed 's/.*: *\\([0-9]*\\).*/\\1/') ";
  const std::string driver = TANDEM_SOURCE_DIR "/tests/support/mpirun.sh";
  EXPECT_EQ(count(run(script, "unset OMP_NUM_THREADS; " + one_cpu + driver + " 3 ./rank"), "1"), 3);
  EXPECT_EQ(count(run(script, "unset OMP_NUM_THREADS; " + one_cpu + driver + " 1 ./rank"), "unset"), 1);
  EXPECT_EQ(count(run(script, one_cpu + "env OMP_NUM_THREADS=2 " + driver + " 3 ./rank"), "2"), 3);
}

TEST_F(Mpirun, AsksForHugePagesAndKeepsOtherTunables) {
  EXPECT_EQ(
      count(run("echo $GLIBC_TUNABLES", "unset GLIBC_TUNABLES; $m -n 1 ./rank"), "glibc.malloc.hugetlb=1"),
      1);
  EXPECT_EQ(count(run("echo $GLIBC_TUNABLES", "GLIBC_TUNABLES=glibc.malloc.check=0 $m -n 1 ./rank"),
                  "glibc.malloc.check=0:glibc.malloc.hugetlb=1"),
            1);
  EXPECT_EQ(count(run("echo $GLIBC_TUNABLES", "GLIBC_TUNABLES=glibc.malloc.hugetlb=0 $m -n 1 ./rank"),
                  "glibc.malloc.hugetlb=0"),
            1);
}

TEST_F(Mpirun, PassesOnTheExitCodeAndRepeatsTheFirstCause) {
  const ShellResult result =
      run("[ $rank = 0 ] && exec sleep 20\n"
          "echo '[rank 1/2 host] the cause' >&2; echo 'tandem: a consequence' >&2; echo noise >&2; exit 3",
          "$m -n 2 ./rank");
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(last_line(result.err), "[rank 1/2 host] the cause");
  EXPECT_TRUE(left_nothing());

  const ShellResult alike =
      run("echo \"[rank $rank/2 host] the same\" >&2; sleep 1; exit 2", "$m -n 2 ./rank");
  EXPECT_EQ(alike.code, 2);
  EXPECT_EQ(lines_of(alike.err).size(), 2u) << alike.err;

  const ShellResult once = run("echo 'tandem: alone' >&2; exit 2", "$m -n 1 ./rank");
  EXPECT_EQ(once.code, 2);
  EXPECT_EQ(once.err, "tandem: alone\n");
}

TEST_F(Mpirun, SaysWhatEndedASilentJob) {
  const ShellResult killed = run("[ $rank = 1 ] && kill -9 $$; sleep 20", "$m -n 2 ./rank");
  EXPECT_EQ(killed.code, 137);
  EXPECT_EQ(last_line(killed.err), "tandem-mpirun: a rank was ended by signal KILL");
  const ShellResult silent = run("exit 7", "$m -n 1 ./rank");
  EXPECT_EQ(silent.code, 7);
  EXPECT_EQ(last_line(silent.err).find("tandem-mpirun: the job ended with code 7 and no message"), 0u)
      << silent.err;
}

// mpirun itself would kill the ranks soon after a TERM; as USR1 they may save and choose their exit code.
TEST_F(Mpirun, TheFirstSignalLetsTheRanksFinish) {
  const ShellResult result = run(
      "trap 'sleep 3; echo saved; exit 6' USR1; touch ready$rank; while true; do sleep 0.1; done",
      "$m -n 2 ./rank & while [ ! -e ready0 -o ! -e ready1 ]; do sleep 0.1; done; kill -TERM $!; wait $!");
  EXPECT_EQ(result.code, 6) << result.err;
  EXPECT_GE(count(result, "saved"), 1);
  EXPECT_TRUE(left_nothing());
}

TEST_F(Mpirun, TheSecondSignalEndsThem) {
  const ShellResult result = run("trap 'touch told' USR1; touch ready$rank; while true; do sleep 0.1; done",
                                 "$m -n 1 ./rank & while [ ! -e ready0 ]; do sleep 0.1; done; kill -TERM $!; "
                                 "while [ ! -e told ]; do sleep 0.1; done; kill -TERM $!; wait $!");
  EXPECT_NE(result.code, 0);
  EXPECT_EQ(last_line(result.err), "tandem-mpirun: ended by the second signal");
  EXPECT_TRUE(left_nothing());
}

// mpirun takes no signal before its ranks run; one that came then must end the job all the same.
TEST_F(Mpirun, ASignalThatComesEarlyIsNotLost) {
  for (const char* delay : {"0", "0.02", "0.05", "0.1", "0.15", "0.2"}) {
    const ShellResult result =
        run("exec sleep 60", std::string("$m -n 2 ./rank & sleep ") + delay + "; kill -TERM $!; wait $!");
    EXPECT_GT(result.code, 128) << delay << ": " << result.err;
    EXPECT_TRUE(left_nothing()) << delay;
  }
}

TEST_F(Mpirun, RanksAndFoldersGoWithALauncherThatIsKilled) {
  const ShellResult result =
      run("echo $OMPI_MCA_btl_vader_backing_directory >shared; echo $$ >pid; exec sleep 60",
          "$m -n 1 ./rank & while [ ! -s pid ]; do sleep 0.1; done; kill -9 $!; gone=0\n"
          "for i in $(seq 100); do kill -0 $(cat pid) 2>/dev/null || { gone=1; break; }; sleep 0.1; done\n"
          "[ $gone = 1 ] || exit 9\n"
          "for i in $(seq 100); do [ -d \"$(cat shared)\" -o -n \"$(ls t)\" ] || exit 0; sleep 0.1; done; "
          "exit 8");
  EXPECT_EQ(result.code, 0) << "9: the rank still runs 10 s later; 8: a temporary folder is still there";
}

TEST_F(Mpirun, RunsWithClosedStreams) {
  const ShellResult result = run("echo $rank >done$rank; exit 6", "$m -n 2 ./rank <&- >&- 2>&-");
  EXPECT_EQ(result.code, 6);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "done0"));
  EXPECT_TRUE(left_nothing());
}

TEST_F(Mpirun, RefusesWrongCallsInOneLine) {
  const auto refused = [&](const std::string& line, int code) {
    const ShellResult result = run("", line);
    EXPECT_EQ(result.code, code) << line;
    EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
    EXPECT_EQ(result.err.find("tandem-mpirun: "), 0u);
  };
  refused("$m", 2);
  refused("$m -n", 2);
  refused("$m -n 0 ./rank", 2);
  refused("$m -n two ./rank", 2);
  refused("$m -n 2", 2);
  refused("$m -n 2 --mca a b ./rank", 2);
  refused("$m -n 2 ./absent", 3);
  EXPECT_EQ(run("", "$m --help").code, 0);
}

TEST_F(Mpirun, RefusesAnMpirunThatIsNotOpenMpis) {
  const ShellResult result = run("echo started",
                                 "mkdir bin; printf '#!/bin/sh\\necho HYDRA build details:\\n' >bin/mpirun; "
                                 "chmod +x bin/mpirun; PATH=$PWD/bin:$PATH $m -n 2 ./rank");
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(lines_of(result.err).size(), 1u) << result.err;
  EXPECT_NE(result.err.find("mpiexec -n 2 tandem"), std::string::npos) << result.err;
}

TEST_F(Mpirun, TakesMpirunsOwnOptions) {
  EXPECT_EQ(count(run("echo $WORD", "$m -n 1 -x WORD=given -- ./rank"), "given"), 1);
}

}  // namespace
}  // namespace tandem
