#include "src/spec/digests.hpp"

#include <gtest/gtest.h>

#include <string>

#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

class Digests : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { support::write_text(folder_ / name, text); }

  support::TempFolder folder_;
};

TEST_F(Digests, OfAModelCoversTheNamedFilesInByteOrder) {
  write("config.json", "{}");
  write("tokenizer.json", "t");
  write("model.safetensors", "w");
  write("README.md", "not part of it");
  const std::string expected = sha256_hex("config.json " + sha256_hex("{}") + "\nmodel.safetensors " +
                                          sha256_hex("w") + "\ntokenizer.json " + sha256_hex("t") + "\n");
  EXPECT_EQ(model_digest(folder_.path()), expected);
  // The recipe by other tools: (cd DIR; sha256sum config.json model.safetensors tokenizer.json | awk '{print
  // $2, $1}') | sha256sum
  EXPECT_EQ(model_digest(folder_.path()), "416891f1fd475db7ebd37ab5ac2dce5b55225457e4f140b0e3c2703814b53729");

  write("README.md", "still not part of it");
  EXPECT_EQ(model_digest(folder_.path()), expected);
  write("model-00002-of-00002.safetensors", "x");
  EXPECT_NE(model_digest(folder_.path()), expected);
}

TEST_F(Digests, ChangeWithEachFile) {
  write("config.json", "{}");
  std::string last = model_digest(folder_.path());
  for (const char* name : {"generation_config.json", "chat_template.jinja", "tokenizer_config.json",
                           "tokenizer.json", "model.safetensors.index.json", "a.safetensors"}) {
    write(name, "");
    const std::string digest = model_digest(folder_.path());
    EXPECT_NE(digest, last) << name;
    last = digest;
  }
}

TEST_F(Digests, NameTheMissingFile) {
  try {
    model_digest(folder_.path());
    FAIL() << "an empty folder was taken for a model";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_EQ(std::string(error.what()),
              (folder_ / "config.json").string() + ": is missing: a model's folder has one");
  }
  EXPECT_THROW(model_digest(folder_ / "nothing"), Error);
  EXPECT_THROW(adapter_folder_digest(folder_.path()), Error);
}

TEST_F(Digests, OfInputsAreFilledIn) {
  RunSpec spec;
  try {
    digest_inputs(spec);
    FAIL() << "a spec without a model was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_STREQ(error.what(), "model.path: is not given (--model DIR)");
  }
  write("config.json", "{}");
  write("rows.jsonl", "abc");
  spec.model.path = folder_.path();
  spec.train.path = folder_ / "rows.jsonl";
  digest_inputs(spec);
  EXPECT_EQ(spec.train.digest,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-2's "abc"
  EXPECT_EQ(spec.model.digest, model_digest(folder_.path()));
  EXPECT_EQ(spec.held_out.digest, "");
  spec.held_out.path = folder_ / "none.jsonl";
  EXPECT_THROW(digest_inputs(spec), Error);
}

TEST_F(Digests, OfAnAdapterNeedBothFiles) {
  write("adapter_config.json", "{}");
  EXPECT_THROW(adapter_folder_digest(folder_.path()), Error);
  write("adapter_model.safetensors", "w");
  EXPECT_EQ(adapter_folder_digest(folder_.path()),
            sha256_hex("adapter_config.json " + sha256_hex("{}") + "\nadapter_model.safetensors " +
                       sha256_hex("w") + "\n"));
}

}  // namespace
}  // namespace tandem
