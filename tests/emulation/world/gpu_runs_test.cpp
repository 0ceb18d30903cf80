// A rank a GPU: the program on emulated devices, its gradients added by an emulated NCCL.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "io/trajectory_reader.hpp"
#include "tests/world/runs.hpp"

namespace tandem::world_test {
namespace {

class GpuRuns : public Runs {
 protected:
  GpuRuns() : Runs(64) {}

  fs::path out(const std::string& name) const { return folder_ / name; }

  // On `gpus` devices, all that a rank sees.
  Ended on_gpus(int ranks, int gpus, const std::string& name, const std::string& options,
                const std::string& environment = "") const {
    return train(ranks, out(name), (options.find("--gpu") == options.npos ? "--gpu on " : "") + options,
                 cat("TANDEM_EMULATED_GPUS=", gpus, " ", environment, " "));
  }

  int cpu_program(const std::string& words, std::string& text) const {
    const fs::path log = folder_ / "cpu_log";
    const int status = std::system(cat(TANDEM_CPU_PROGRAM, " ", words, " > ", log.string(), " 2>&1").c_str());
    text = support::read_text(log);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }

  // `tandem compare` of two runs finds nothing that rounding does not explain.
  void expect_agree(const std::string& a, const std::string& b) const {
    std::string text;
    (void)cpu_program(cat("compare ", out(a).string(), " ", out(b).string()), text);
    for (const char* level : {"1 operators   PASS", "2 loading     PASS", "4 trajectory  PASS"})
      EXPECT_NE(text.find(level), std::string::npos) << level << "\n" << text;
  }
};

constexpr const char* kFifty = "--train.updates 50 --eval.every 25 --observe.probe 16 ";

// 50 updates on 1, 2 and 3 devices, audited by the mirror; dropout is on. Every fourth update has one
// micro-batch, so two ranks of three have none and only take part in the sum.
TEST_F(GpuRuns, WorldSizeIsInvisibleAndTheMirrorAgrees) {
  const std::string options = cat(kFifty, "--mirror.every 25 --mirror.on_mismatch stop");
  for (const int ranks : {1, 2, 3}) {
    const Ended ended = on_gpus(ranks, ranks, cat("gpu", ranks), options);
    ASSERT_EQ(ended.code, 0) << ended.text;
    EXPECT_NE(ended.text.find(cat("GPU ", ranks - 1)), std::string::npos) << ended.text;
    if (ranks > 1) {
      EXPECT_EQ(differences(out("gpu1"), out(cat("gpu", ranks))), std::vector<std::string>());
    }
  }
  const Trajectory audited = read_trajectory(out("gpu3") / "native.h5");
  ASSERT_TRUE(audited.audits);
  EXPECT_EQ(audited.audits->step.size(), 2u);

  const Ended cpu = train(2, out("cpu"), cat("--gpu off ", options));
  ASSERT_EQ(cpu.code, 0) << cpu.text;
  expect_agree("cpu", "gpu3");
}

TEST_F(GpuRuns, RanksThatShareADeviceAddThroughTheHost) {
  const std::string options = "--train.updates 4 --eval.every 4";
  ASSERT_EQ(on_gpus(1, 1, "alone", options).code, 0);
  const Ended shared = on_gpus(2, 1, "shared", options + " --gpu shared");
  ASSERT_EQ(shared.code, 0) << shared.text;
  EXPECT_NE(shared.text.find("through the host's memory"), std::string::npos) << shared.text;
  EXPECT_EQ(differences(out("alone"), out("shared")), std::vector<std::string>());
  // Asked for with a device each.
  const Ended apart = on_gpus(2, 2, "apart", options + " --gpu shared");
  ASSERT_EQ(apart.code, 0) << apart.text;
  EXPECT_NE(apart.text.find("through the host's memory"), std::string::npos) << apart.text;
  EXPECT_EQ(differences(out("alone"), out("apart")), std::vector<std::string>());
}

// What is computed again for want of memory has the same bits.
TEST_F(GpuRuns, RecomputedLayersHaveTheSameBits) {
  const std::string options = "--train.updates 4 --eval.every 4";
  ASSERT_EQ(on_gpus(1, 1, "roomy", options).code, 0);
  const Ended tight = on_gpus(1, 1, "tight", options, "TANDEM_EMULATED_MEMORY=514");
  ASSERT_EQ(tight.code, 0) << tight.text;
  EXPECT_NE(tight.text.find("layers are computed again in backward"), std::string::npos) << tight.text;
  EXPECT_EQ(differences(out("roomy"), out("tight")), std::vector<std::string>());
}

TEST_F(GpuRuns, ResumedOnOtherRanksHasTheSameBits) {
  for (const char* precision : {"f32", "bf16"}) {
    const std::string options =
        cat("--precision ", precision,
            " --train.updates 4 --eval.every 2 --mirror.every 2 --checkpoint.every 1 ");
    const std::string whole = cat("whole_", precision), again = cat("again_", precision);
    ASSERT_EQ(on_gpus(2, 2, whole, options).code, 0);
    fs::copy(out(whole), out(again), fs::copy_options::recursive);
    const Ended resumed =
        on_gpus(3, 3, again, cat(options, "--resume ", (out(again) / "checkpoints/2").string()));
    ASSERT_EQ(resumed.code, 0) << resumed.text;
    EXPECT_NE(resumed.text.find("resumed from"), std::string::npos) << resumed.text;
    EXPECT_EQ(differences(out(whole), out(again)), std::vector<std::string>());
  }
}

// The mirror's thresholds of bfloat16 hold; so does the size of what rounding does to the loss.
TEST_F(GpuRuns, Bfloat16IsAuditedAndInvisibleToo) {
  const std::string options =
      "--precision bf16 --train.updates 6 --eval.every 6 --mirror.every 3 --mirror.on_mismatch stop";
  for (const int ranks : {1, 2}) {
    const Ended ended = on_gpus(ranks, ranks, cat("bf16_", ranks), options);
    ASSERT_EQ(ended.code, 0) << ended.text;
  }
  EXPECT_EQ(differences(out("bf16_1"), out("bf16_2")), std::vector<std::string>());
  const Ended cpu = train(2, out("cpu"), "--gpu off --train.updates 6 --eval.every 6");
  ASSERT_EQ(cpu.code, 0) << cpu.text;
  expect_agree("cpu", "bf16_1");
}

TEST_F(GpuRuns, Tf32IsAuditedToo) {
  const Ended ended =
      on_gpus(1, 1, "tf32",
              "--precision tf32 --train.updates 4 --eval.every 4 --mirror.every 1 --mirror.on_mismatch stop");
  ASSERT_EQ(ended.code, 0) << ended.text;
}

}  // namespace
}  // namespace tandem::world_test
