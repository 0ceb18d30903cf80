#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "io/trajectory.hpp"
#include "src/compare/compare.hpp"
#include "tests/compare/synthetic.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using support::Synthetic;
using support::synthetic;
using Tensors = std::vector<std::vector<double>>;
using Parts = std::map<std::string, Tensors>;

// Two tensors of 16 elements each, as in synthetic().
Parts parts_of(std::int64_t step) {
  const RandomStream random(3, "snapshot");
  Parts parts;
  std::uint64_t draws = 100 * static_cast<std::uint64_t>(step);
  for (const char* name : {"adapter", "m", "v", "gradient"})
    for (int k = 0; k < 2; ++k) {
      std::vector<double> tensor;
      for (int i = 0; i < 16; ++i) tensor.push_back(random.unit(draws++) - 0.5);
      parts[name].push_back(tensor);
    }
  return parts;
}

// Gives t snapshots before updates 1, 2 and 7; change(step, parts) alters them.
void add_snapshots(Trajectory& t, const support::TempFolder& folder,
                   const std::function<void(std::int64_t, Parts&)>& change) {
  TrajectoryHeader header;
  header.stack = t.stack;
  header.batch_global = 1;
  TrajectoryWriter writer(folder / (t.stack + ".h5"), header, 10.0);
  writer.set_adapter(t.adapter->names, t.adapter->shapes);
  for (const std::int64_t step : {1, 2, 7}) {
    Parts parts = parts_of(step);
    change(step, parts);
    std::vector<SnapshotPart> all;
    for (const auto& [name, tensors] : parts) {
      std::vector<std::span<const double>> views(tensors.begin(), tensors.end());
      all.push_back({name, views});
    }
    writer.write_snapshot(step, all);
    t.snapshots.emplace_back(step, folder / (t.stack + ".snapshots") / (std::to_string(step) + ".h5"));
  }
}

class SnapshotComparison : public testing::Test {
 protected:
  Comparison compared(const std::function<void(std::int64_t, Parts&)>& change, bool same_stack = false) {
    Trajectory a = synthetic();
    Synthetic other{.stack = "mirror", .arithmetic = "mirror", .precision = "f64"};
    Trajectory b = same_stack ? synthetic({.stack = "native"}) : synthetic(other);
    support::TempFolder folder, second;
    add_snapshots(a, folder, [](std::int64_t, Parts&) {});
    add_snapshots(b, second, change);
    const Trajectory both[] = {a, b};
    return compare(both, {});
  }
  static std::string first_of(const Comparison& c) {
    if (c.first < 0) return "none";
    const Observation& o = c.observations[static_cast<std::size_t>(c.first)];
    return o.name + ": " + o.place;
  }
};

TEST_F(SnapshotComparison, OfEqualStatesPass) {
  const Comparison found = compared([](std::int64_t, Parts&) {});
  EXPECT_EQ(found.conclusion, Comparison::Conclusion::kPass) << found.why;
}

TEST_F(SnapshotComparison, NamesTheTensorOfAGradientThatIsAnotherFromNearlyTheSameState) {
  const auto rounded = [](std::int64_t step, Parts& parts) {
    if (step > 1) parts["adapter"][0][3] += 1e-9;
    parts["gradient"][0][2] *= 1 + 1e-7;
  };
  EXPECT_EQ(compared(rounded).conclusion, Comparison::Conclusion::kPass);
  const auto scaled_at = [&](std::int64_t update) {
    return compared([=](std::int64_t step, Parts& parts) {
      rounded(step, parts);
      for (double& g : parts["gradient"][1]) g *= step == update ? 1.01 : 1.0;
    });
  };
  EXPECT_EQ(scaled_at(2).conclusion, Comparison::Conclusion::kDisagree);
  EXPECT_NE(
      first_of(scaled_at(2))
          .find("snapshots: gradient: update 2, model.layers.0.self_attn.q_proj.lora_B.weight: d = 0.0098"),
      std::string::npos)
      << first_of(scaled_at(2));
  // Beyond the horizon it is said, not judged.
  const Comparison later = scaled_at(7);
  EXPECT_EQ(later.conclusion, Comparison::Conclusion::kPass);
  bool said = false;
  for (const Observation& o : later.observations)
    said = said || (o.name == "snapshots: gradient, later" && o.outcome == Outcome::kNotChecked &&
                    o.detail.find("update 7") != std::string::npos);
  EXPECT_TRUE(said);
}

TEST_F(SnapshotComparison, LeavesGradientsOfStatesThatAreFarApart) {
  const Comparison found = compared([](std::int64_t step, Parts& parts) {
    if (step < 7) return;
    for (double& p : parts["adapter"][0]) p += 1e-2;
    for (double& g : parts["gradient"][1]) g *= 1.5;
  });
  EXPECT_EQ(found.conclusion, Comparison::Conclusion::kPass) << first_of(found);
}

TEST_F(SnapshotComparison, BeforeTheFirstUpdateAreEqualInEveryStack) {
  const Comparison found = compared([](std::int64_t step, Parts& parts) {
    if (step == 1) parts["v"][1][5] += 1e-12;
  });
  EXPECT_NE(first_of(found).find("snapshots: v: update 1, model.layers.0.self_attn.q_proj.lora_B.weight"),
            std::string::npos)
      << first_of(found);
}

TEST_F(SnapshotComparison, OfOneExecutionClassAreEqualToTheBit) {
  const Comparison found = compared(
      [](std::int64_t step, Parts& parts) {
        if (step == 7) parts["m"][0][0] *= 1 + 1e-15;
      },
      true);
  EXPECT_NE(first_of(found).find("snapshots: m: update 7"), std::string::npos) << first_of(found);
}

TEST_F(SnapshotComparison, HoldNumbersHoweverFarTheyHaveTrained) {
  for (const double none : {double{NAN}, double{INFINITY}}) {
    const Comparison found = compared([&](std::int64_t step, Parts& parts) {
      if (step == 7) parts["v"][1][3] = none;
    });
    EXPECT_EQ(found.conclusion, Comparison::Conclusion::kDisagree);
    EXPECT_NE(first_of(found).find(
                  "snapshots: v: update 7, model.layers.0.self_attn.q_proj.lora_B.weight: holds NaN"),
              std::string::npos)
        << first_of(found);
  }
}

TEST_F(SnapshotComparison, OfOtherShapesAreNoPass) {
  Trajectory a = synthetic(), b = synthetic({.stack = "mirror", .arithmetic = "mirror", .precision = "f64"});
  support::TempFolder folder, second;
  add_snapshots(a, folder, [](std::int64_t, Parts&) {});
  add_snapshots(b, second, [](std::int64_t, Parts&) {});
  for (Trajectory* t : {&a, &b}) t->adapter->shapes[0] = {8, 2};
  const Trajectory both[] = {a, b};
  const Comparison found = compare(both, {});
  EXPECT_EQ(found.conclusion, Comparison::Conclusion::kIncomplete);
  EXPECT_NE(found.why.find("has the shape [2, 8], not [8, 2]"), std::string::npos) << found.why;
}

TEST_F(SnapshotComparison, ThatLackAPartAreNoPass) {
  const Comparison found = compared([](std::int64_t, Parts& parts) { parts.erase("gradient"); });
  EXPECT_EQ(found.conclusion, Comparison::Conclusion::kIncomplete);
  EXPECT_NE(found.why.find("holds no gradient"), std::string::npos) << found.why;
}

}  // namespace
}  // namespace tandem
