// What changes only the order of additions must stay silent: every audit passes (negative controls).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "io/adapter.hpp"
#include "src/base/error.hpp"
#include "tests/support/mirrored_runs.hpp"

namespace tandem::faults_test {
namespace {

namespace fs = std::filesystem;
using support::Bench;
using support::Command;

constexpr const char* kOptions = " --train.updates 4 --eval.every 4 --optim.warmup 0 ";

class Silent : public testing::Test {
 protected:
  static Bench& bench() {
    static Bench bench;
    return bench;
  }
  static Trajectory run(int ranks, const std::string& options, const std::string& environment = "") {
    const fs::path out = bench().train({ranks, kOptions + options, environment});
    Trajectory native = read_trajectory(out / "native.h5");
    if (!native.audits) throw Error(ErrorKind::kInternal, "no audits");
    EXPECT_EQ(native.audits->verdict, std::vector<Verdict>(4, Verdict::kPass)) << bench().log();
    return native;
  }
};

TEST_F(Silent, PermutedReductionOrders) {
  for (const char* deal : {"least_loaded", "round_robin", "reversed"})
    run(2, cat("--batch.micro 1 --batch.deal ", deal));
}

TEST_F(Silent, WorldSizesAtEqualGlobalBatch) {
  for (const int ranks : {1, 2, 4}) run(ranks, "--batch.micro 1");
}

TEST_F(Silent, SplitsIntoMicroBatches) {
  const Trajectory one = run(1, "--batch.micro 1"), three = run(1, "--batch.micro 3"),
                   all = run(1, "--batch.micro 4 --mirror.scope microbatch");
  EXPECT_NE(one.updates->loss, three.updates->loss) << "the control controls nothing";
  EXPECT_NE(one.updates->adapter_checksum, all.updates->adapter_checksum);
}

TEST_F(Silent, AnotherAlgorithmOfTheProduct) {
  const Trajectory own = run(1, "--batch.micro 2"),
                   avx2 = run(1, "--batch.micro 2", "ONEDNN_MAX_CPU_ISA=AVX2"),
                   sse = run(1, "--batch.micro 2", "ONEDNN_MAX_CPU_ISA=SSE41");
  EXPECT_TRUE(own.updates->checksum != avx2.updates->checksum ||
              own.updates->checksum != sse.updates->checksum)
      << "the control controls nothing";
}

TEST_F(Silent, OneEntryOfAByOneUlp) {
  const fs::path base = bench().train({1, kOptions + std::string("--batch.micro 2")}) / "adapter";
  const Trajectory first = run(1, "--batch.micro 2 --lora.init " + base.string());
  const auto& names = first.adapter->names;
  const auto& shapes = first.adapter->shapes;
  std::vector<AdapterTensor> tensors;
  for (std::size_t p = 0; p < names.size(); ++p)
    tensors.push_back({names[p], shapes[p].first, shapes[p].second, {}});
  Adapter adapter = read_adapter(base, tensors);
  ASSERT_TRUE(names[0].ends_with("lora_A.weight"));
  adapter.tensors[0][7] = std::nextafter(adapter.tensors[0][7], 1.0f);
  for (std::size_t p = 0; p < names.size(); ++p) tensors[p].data = adapter.tensors[p];
  write_adapter(bench().folder() / "ulp", read_adapter_config(base), tensors);
  const Trajectory second = run(1, "--batch.micro 2 --lora.init " + (bench().folder() / "ulp").string());
  EXPECT_NE(first.updates->checksum, second.updates->checksum) << "the control controls nothing";
}

}  // namespace
}  // namespace tandem::faults_test
