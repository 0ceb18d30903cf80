// The format's rules, one test each; the published cases of the reference reader
// (data/vectors/safetensors_cases.json).
#include "io/safetensors.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "src/base/error.hpp"
#include "tests/support/data.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using support::TempFolder;
using support::write_text;

std::string file_text(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + data;
}

// "" where the file is accepted.
std::string verdict(const std::string& bytes) {
  TempFolder folder;
  write_text(folder / "m.safetensors", bytes);
  try {
    const SafetensorsFile file(folder / "m.safetensors");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    const std::string text = error.what();
    EXPECT_NE(text.find("m.safetensors: "), text.npos) << "names the file: " << text;
    EXPECT_EQ(text.find('\n'), text.npos) << "one line: " << text;
    return text;
  }
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

#define EXPECT_REFUSED(bytes, part)                                 \
  do {                                                              \
    const std::string text_ = verdict(bytes);                       \
    EXPECT_NE(text_.find(part), text_.npos) << '"' << text_ << '"'; \
  } while (false)

TEST(Safetensors, PublishedCases) {
  const auto path = support::data_path("vectors/safetensors_cases.json");
  if (!path) GTEST_SKIP() << support::kNoData;
  const auto cases = support::read_json(*path);
  ASSERT_EQ(cases.size(), 10u);
  const std::map<std::string, std::string> parts = {
      {"MetadataIncompleteBuffer", "\"test\": its data end at byte 16"},
      {"HeaderTooSmall", "too short"},
      {"InvalidHeader", "not a JSON object"},
      {"ValidationOverflow", "\"test\": its shape"},
  };
  for (const auto& row : cases) {
    const std::string expected = row["expect"];
    SCOPED_TRACE(row["test"].get<std::string>());
    if (expected == "ok")
      EXPECT_EQ(verdict(from_hex(row["hex"])), "");
    else
      EXPECT_REFUSED(from_hex(row["hex"]), parts.at(expected));
  }
}

TEST(Safetensors, HostileFile) {
  const auto path = support::data_path("hostile/safetensors/safetensors_abuse_attempt_1.safetensors");
  if (!path) GTEST_SKIP() << support::kNoData;
  EXPECT_REFUSED(support::read_text(*path), "announces a header of 1000 bytes, but only 80 follow");
}

constexpr const char* kOne = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
const std::string kEight(8, '\1');

TEST(Safetensors, ReadsATensor) {
  TempFolder folder;
  write_text(folder / "m",
             file_text(std::string(R"({"__metadata__":{"format":"pt"},)") + (kOne + 1), kEight));
  SafetensorsFile file(folder / "m");
  ASSERT_EQ(file.tensors().size(), 1u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const TensorRecord* tensor = file.find("w");
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->dtype, DType::kF32);
  EXPECT_EQ(tensor->dtype_name, "F32");
  EXPECT_EQ(tensor->shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(tensor->data.size(), 8u);
  EXPECT_EQ(file.find("v"), nullptr);
  const SafetensorsFile moved = std::move(file);
  EXPECT_EQ(moved.find("w"), tensor);
}

TEST(Safetensors, RefusesAGitLfsPointer) {
  EXPECT_REFUSED("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS pointer");
}

TEST(Safetensors, RefusesShortFilesAndLongHeaders) {
  EXPECT_REFUSED("", "too short");
  EXPECT_REFUSED("1234567", "too short");
  EXPECT_REFUSED(std::string(8, '\0'), "not a JSON object");
  EXPECT_REFUSED(std::string("\0\0\0\0\0\0\0\x80", 8), "announces a header of 9223372036854775808 bytes");
  EXPECT_REFUSED(std::string(8, '\xff') + "{}", "announces a header of 18446744073709551615 bytes");
}

TEST(Safetensors, RefusesCutAndPaddedData) {
  EXPECT_EQ(verdict(file_text(kOne, kEight)), "");
  EXPECT_REFUSED(file_text(kOne, kEight.substr(1)),
                 "tensor \"w\": its data end at byte 8, the file's data at 7");
  EXPECT_REFUSED(file_text(kOne, kEight + "x"), "cover 8 bytes of data, the file holds 9");
}

TEST(Safetensors, RefusesHolesAndOverlaps) {
  const std::string a =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],)";
  EXPECT_EQ(verdict(file_text(a + R"("data_offsets":[4,8]}})", kEight)), "");
  EXPECT_REFUSED(file_text(a + R"("data_offsets":[5,9]}})", kEight + "x"),
                 "tensor \"b\": its data begin at byte 5");
  EXPECT_REFUSED(file_text(a + R"("data_offsets":[3,7]}})", kEight), "an overlap");
  EXPECT_REFUSED(file_text(a + R"("data_offsets":[8,4]}})", kEight), "run backwards");
  EXPECT_REFUSED(file_text(a + R"("data_offsets":[4,9]}})", kEight + "x"), "span 5 bytes, F32 [1] needs 4");
}

TEST(Safetensors, RefusesDuplicateNames) {
  const std::string one = std::string(kOne).substr(1, std::strlen(kOne) - 2);
  EXPECT_REFUSED(file_text("{" + one + "," + one + "}", kEight), "\"w\" stands twice");
  EXPECT_REFUSED(file_text(R"({"w":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}})", kEight),
                 "\"dtype\" stands twice");
}

TEST(Safetensors, RefusesHeadersThatAreNotTheFormatsJson) {
  EXPECT_REFUSED(file_text("[]"), "not a JSON object");
  EXPECT_REFUSED(file_text("\xEF\xBB\xBF{}"), "not a JSON object");
  EXPECT_REFUSED(file_text(std::string("{}\0\0", 4)), "NUL byte");
  EXPECT_REFUSED(file_text("{\"\xff\":1}"), "not valid UTF-8");
  EXPECT_REFUSED(file_text("{\"w\":"), "unexpected end of input");
  EXPECT_REFUSED(file_text("{} {}"), "header line 1 column 4");
  EXPECT_REFUSED(file_text("{\"w\":" + std::string(100'000, '[')), "nested deeper than 100 levels");
  EXPECT_REFUSED(file_text(R"({"w":3})"), "not an object");
  EXPECT_REFUSED(file_text(R"({"w":{"dtype":"F32","shape":[2]}})"), "lacks data_offsets");
  EXPECT_REFUSED(file_text(R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", kEight),
                 "integers");
  EXPECT_REFUSED(file_text(R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", kEight), "integers");
  EXPECT_REFUSED(file_text(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", kEight),
                 "two numbers");
  EXPECT_REFUSED(file_text(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,1e99]}})", kEight),
                 "integers");
  EXPECT_REFUSED(file_text(R"({"w":{"dtype":"X9","shape":[2],"data_offsets":[0,8]}})", kEight),
                 "\"X9\" is unknown");
  EXPECT_REFUSED(file_text(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "x"),
                 "whole number of bytes");
  EXPECT_REFUSED(file_text(R"({"__metadata__":{"a":1}})"), "is not text");
  EXPECT_REFUSED(file_text("{\"a\\nb\\u0000\":3}"), "tensor \"a\\nb\\u0000\"");
}

TEST(Safetensors, RefusesMissingTensorsOtherShapesAndDtypesOnlyWhenAskedFor) {
  TempFolder folder;
  write_text(folder / "m",
             file_text(R"({"q":{"dtype":"F8_E4M3","shape":[2,4],"data_offsets":[0,8]}})", kEight));
  const SafetensorsFile file(folder / "m");
  EXPECT_EQ(file.tensors()[0].dtype, std::nullopt);
  const auto refusal = [&](std::string_view name, std::vector<std::int64_t> shape) -> std::string {
    try {
      file.require(name, shape);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal("q", {2, 4}).find("tensor \"q\": has dtype F8_E4M3"), std::string::npos);
  EXPECT_NE(refusal("q", {4, 2}).find("tensor \"q\": has shape [2, 4], expected [4, 2]"), std::string::npos);
  EXPECT_NE(refusal("q", {2}).find("has shape [2, 4], expected [2]"), std::string::npos);
  EXPECT_NE(refusal("r", {2}).find("tensor \"r\": is missing"), std::string::npos);
}

TEST(Safetensors, WidensEveryDtypeExactlyAtAnyAlignment) {
  for (const std::string padding : {"", " ", "  ", "   "}) {
    TempFolder folder;
    const float f32[2] = {0.1f, -3e30f};
    const std::uint16_t bf16[2] = {0x3F80, 0xFF80}, f16[2] = {0x3C00, 0x0001};
    std::string data(16, '\0');
    std::memcpy(data.data(), f32, 8);
    std::memcpy(data.data() + 8, bf16, 4);
    std::memcpy(data.data() + 12, f16, 4);
    write_text(folder / "m", file_text(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                       R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
                                       R"("c":{"dtype":"F16","shape":[2],"data_offsets":[12,16]}})" +
                                           padding,
                                       data));
    const SafetensorsFile file(folder / "m");
    float out[2];
    widen_to_f32(*file.find("a"), out);
    EXPECT_EQ(out[0], 0.1f);
    EXPECT_EQ(out[1], -3e30f);
    widen_to_f32(*file.find("b"), out);
    EXPECT_EQ(out[0], 1.0f);
    EXPECT_EQ(out[1], -INFINITY);
    widen_to_f32(*file.find("c"), 1, std::span(out, 1));
    EXPECT_EQ(out[0], 0x1p-24f);
  }
}

TEST(SafetensorsWriter, WritesWhatTheReaderReadsAndAlignsTheData) {
  TempFolder folder;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<std::uint16_t> b = {0x3F80};
  for (const auto* name : {"one", "two"}) {
    SafetensorsWriter writer(
        folder / name, {{"a", DType::kF32, {2, 3}}, {"é", DType::kBF16, {}}, {"e", DType::kF32, {0, 3}}});
    writer.write(std::span<const float>(a).first(2));
    writer.write(std::span<const float>(a).subspan(2));
    writer.write(std::span<const std::uint16_t>(b));
    writer.publish();
  }
  EXPECT_EQ(support::read_text(folder / "one"), support::read_text(folder / "two"));
  std::uint64_t header = 0;
  std::memcpy(&header, support::read_text(folder / "one").data(), sizeof header);
  EXPECT_EQ(header % 8, 0u);
  const SafetensorsFile file(folder / "one");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  std::vector<float> out(6);
  widen_to_f32(file.require("a", std::vector<std::int64_t>{2, 3}), out);
  EXPECT_EQ(out, a);
  widen_to_f32(file.require("é", {}), std::span(out).first(1));
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(file.find("e")->count(), 0);
}

TEST(SafetensorsWriter, RefusesMissingAndExcessData) {
  TempFolder folder;
  const float values[3] = {};
  SafetensorsWriter writer(folder / "m", {{"a", DType::kF32, {2}}});
  EXPECT_THROW(writer.publish(), Error);
  EXPECT_THROW(writer.write(std::span<const float>(values)), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "m"));
}

}  // namespace
}  // namespace tandem
