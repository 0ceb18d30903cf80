#include "src/audit/thresholds.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "src/base/error.hpp"
#include "tests/audit/good_update.hpp"

namespace tandem::audit_test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

TEST(Thresholds, AreKeptAndReadBackToTheBit) {
  support::TempFolder folder;
  const mirror::Mirror mirror(make_inputs(folder));
  const fs::path kept = folder / "kept" / "deeper";
  const Thresholds computed = calibrate(mirror, "f32", kept), read = calibrate(mirror, "f32", kept);
  EXPECT_FALSE(computed.from_file);
  EXPECT_TRUE(read.from_file);
  EXPECT_EQ(read.relative_error, computed.relative_error);
  EXPECT_EQ(read.term_error, computed.term_error);
  EXPECT_EQ(read.bias, computed.bias);
  EXPECT_EQ(read.loss, computed.loss);
  EXPECT_EQ(files_in(kept).size(), 1u);
  ASSERT_EQ(read.relative_error.size(), mirror.adapter_tensors().size());
  for (const double d : read.relative_error) {
    EXPECT_GT(d, 0x1p-24);
    EXPECT_LT(d, 1e-4);
  }
}

TEST(Thresholds, OfADamagedFileAreComputedAnew) {
  support::TempFolder folder;
  const mirror::Mirror mirror(make_inputs(folder));
  const Thresholds computed = calibrate(mirror, "f32", folder / "kept");
  const fs::path file = files_in(folder / "kept").at(0);
  const std::string good = support::read_text(file);
  std::string shorter = good;
  shorter.replace(shorter.find("\"bias\": ["), 9, "\"bias\": [], \"old\": [");
  for (const std::string& text : {std::string(), good.substr(0, good.size() / 2), std::string("[1, 2]"),
                                  std::string("{\"key\": 3}"), std::string("null"), shorter}) {
    support::write_text(file, text);
    const Thresholds anew = calibrate(mirror, "f32", folder / "kept");
    EXPECT_FALSE(anew.from_file) << text.substr(0, 40);
    EXPECT_EQ(anew.relative_error, computed.relative_error);
    EXPECT_EQ(support::read_text(file), good) << "and kept again";
  }
}

TEST(Thresholds, OfAnotherModelAreOthers) {
  support::TempFolder folder, other;
  const mirror::Mirror qwen3(make_inputs(folder, "qwen3")), llama(make_inputs(other, "llama"));
  calibrate(qwen3, "f32", folder / "kept");
  EXPECT_FALSE(calibrate(llama, "f32", folder / "kept").from_file);
  EXPECT_EQ(files_in(folder / "kept").size(), 2u);
}

TEST(Thresholds, KnowNoOtherPrecision) {
  EXPECT_EQ(unit_roundoff("f32"), 0x1p-24);
  EXPECT_THROW(unit_roundoff("f8"), Error);
}

}  // namespace
}  // namespace tandem::audit_test
