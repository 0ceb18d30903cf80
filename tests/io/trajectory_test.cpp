#include "io/trajectory.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "io/hdf5.hpp"
#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "tests/support/data.hpp"
#include "tests/support/expect_says.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using support::TempFolder;
using Shape = std::pair<std::int64_t, std::int64_t>;

constexpr std::int64_t kBatch = 3;
const std::vector<std::string> kNames = {"m.lora_A.weight", "m.lora_B.weight"};
const std::vector<Shape> kShapes = {{2, 3}, {4, 2}};

TrajectoryHeader header() {
  TrajectoryHeader header;
  header.spec_text = "seed = 0\nspeech = \"é\"\n";
  header.execution_text = "precision = \"f32\"\n";
  header.batch_global = kBatch;
  header.provenance = {{"arithmetic", "own kernels"}, {"hosts", "a,b"}};
  header.records_observed = true;
  return header;
}

double loss_of(std::int64_t step) {
  return step % 7 == 0 ? std::nan("") : 3.0 + 1.0 / static_cast<double>(step);
}

void append_update(TrajectoryWriter& writer, std::int64_t step) {
  const std::int64_t ids[] = {step, step + 1};
  UpdateRow row;
  row.step = step;
  row.optimizer_step = step;
  row.loss = loss_of(step);
  row.n_targets = 10 * step;
  row.grad_norm = 0.5;
  row.lr = 1e-4;
  row.n_samples = 2;
  row.checksum = ~std::uint64_t{0} - static_cast<std::uint64_t>(step);
  row.adapter_checksum = static_cast<std::uint64_t>(step) << 60;
  row.sample_ids = ids;
  writer.append_update(row);
}

EvalRow eval_row(std::int64_t step) {
  return {step, 100.0, 40, 2.5, 0.1, sha256_hex(std::to_string(step)), 1'000'000'000'000, 0};
}

void fill(TrajectoryWriter& writer, std::int64_t updates) {
  const LoadRow load[] = {{"model.embed_tokens.weight", sha256_hex("e"), {8, 4}, "BF16", 0.25, 0.5},
                          {"model.norm.weight", sha256_hex("n"), {4}, "F32", 1.0, 1.0}};
  writer.set_load(load, R"({"model_type": "qwen3"})");
  const RenderRow train[] = {{sha256_hex("0"), 10, 4, 7}, {sha256_hex("1"), 11, 0, -1}};
  const RenderRow held_out[] = {{sha256_hex("2"), 12, 5, 9}};
  writer.set_render(train, held_out, sha256_hex("template"));
  writer.set_adapter(kNames, kShapes);
  writer.append_eval(eval_row(0));
  for (std::int64_t step = 1; step <= updates; ++step) append_update(writer, step);
  writer.append_observed(updates, std::array{0.25, 0.125});
  writer.append_eval(eval_row(updates));
  writer.set_loss_adapter_off(2.75, 2.75);
}

std::string refusal(const fs::path& file) {
  try {
    read_untrusted_trajectory(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), text.npos) << text;
    EXPECT_NE(text.find(file.filename().string()), text.npos) << "names the file: " << text;
    return text;
  }
  return "";
}

// Output and exit status of a shell command.
std::pair<std::string, int> run(const std::string& command) {
  std::string output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    output.append(buffer.data(), n);
  return {output, pclose(pipe)};
}

bool has_h5py() { return run("/usr/bin/python3 -c 'import h5py'").second == 0; }

TEST(Trajectory, ReadsBackEverythingItWrote) {
  TempFolder folder;
  constexpr std::int64_t kUpdates = 1300;  // more than two chunks
  {
    TrajectoryWriter writer(folder / "native.h5", header(), 10.0);
    fill(writer, kUpdates);
    writer.set_provenance("ranks", std::int64_t{2});
    writer.set_provenance("load", 0.5);
    writer.set_provenance("log", std::string(70'000, 'x'));
    EXPECT_FALSE(fs::exists(folder / "native.h5"));
    writer.finish();
  }
  const Trajectory t = read_trajectory(folder / "native.h5");
  EXPECT_EQ(t.format_version, 1);
  EXPECT_EQ(t.stack, "native");
  EXPECT_TRUE(t.complete);
  EXPECT_EQ(t.written_at.size(), std::strlen("2025-01-01T00:00:00Z"));
  EXPECT_EQ(t.spec_text, header().spec_text);
  EXPECT_EQ(t.spec_digest, sha256_hex(t.spec_text));
  EXPECT_EQ(t.execution_digest, sha256_hex(t.execution_text));
  EXPECT_EQ(t.provenance.at("hosts"), "a,b");
  EXPECT_EQ(t.provenance.at("ranks"), "2");
  EXPECT_EQ(t.provenance.at("load"), "0.5");
  EXPECT_EQ(t.provenance.at("log").size(), 70'000u);
  ASSERT_TRUE(t.load && t.render && t.adapter && t.updates && t.observed && t.evals && t.memory);
  EXPECT_EQ(t.load->name[0], "model.embed_tokens.weight");
  EXPECT_EQ(t.load->shape, (std::vector<std::vector<std::int64_t>>{{8, 4}, {4}}));
  EXPECT_EQ(t.load->dtype, (std::vector<std::string>{"BF16", "F32"}));
  EXPECT_EQ(t.load->digest[1], sha256_hex("n"));
  EXPECT_EQ(t.load->config, R"({"model_type": "qwen3"})");
  EXPECT_EQ(t.render->n_train, 2);
  EXPECT_EQ(t.render->last_target_id, (std::vector<std::int64_t>{7, -1, 9}));
  EXPECT_EQ(t.render->template_digest, sha256_hex("template"));
  EXPECT_EQ(t.adapter->names, kNames);
  EXPECT_EQ(t.adapter->shapes, kShapes);
  ASSERT_EQ(t.updates->rows, kUpdates);
  for (std::int64_t i = 0; i < kUpdates; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t step = i + 1;
    ASSERT_EQ(t.updates->step[at], step);
    if (step % 7 == 0)
      ASSERT_TRUE(std::isnan(t.updates->loss[at]));
    else
      ASSERT_EQ(t.updates->loss[at], loss_of(step));
    ASSERT_EQ(t.updates->checksum[at], ~std::uint64_t{0} - static_cast<std::uint64_t>(step));
    ASSERT_EQ(t.updates->adapter_checksum[at], static_cast<std::uint64_t>(step) << 60);
    ASSERT_EQ(t.updates->sample_ids[3 * at], step);
    ASSERT_EQ(t.updates->sample_ids[3 * at + 2], -1);
  }
  EXPECT_EQ(t.observed->tensor_grad_norm, (std::vector<double>{0.25, 0.125}));
  EXPECT_EQ(t.evals->step, (std::vector<std::int64_t>{0, kUpdates}));
  EXPECT_EQ(t.evals->adapter_digest[1], sha256_hex(std::to_string(kUpdates)));
  EXPECT_EQ(t.evals->loss_adapter_off, (std::vector<double>{2.75, 2.75}));
  EXPECT_EQ(t.memory->host_bytes[0], 1'000'000'000'000);
}

TEST(Trajectory, PartsOfARunExistFromTheStartAndOthersNever) {
  TempFolder folder;
  TrajectoryHeader bare = header();
  bare.records_eval = false;
  bare.records_observed = false;
  TrajectoryWriter writer(folder / "t.h5", bare, 0.0);
  writer.publish();
  const Trajectory t = read_trajectory(folder / "t.h5");
  EXPECT_FALSE(t.complete);
  ASSERT_TRUE(t.updates);
  EXPECT_EQ(t.updates->rows, 0);
  EXPECT_EQ(t.updates->batch_global, kBatch);
  EXPECT_FALSE(t.evals || t.memory || t.observed || t.load || t.render || t.adapter);
  EXPECT_EQ(t.parts, (std::vector<std::string>{"execution", "provenance", "spec", "update"}));
}

TEST(Trajectory, OfRenderingAloneHoldsNothingElse) {
  const TempFolder folder;
  SampleSet train, held_out;
  train.add(std::vector<std::int32_t>{5, 6, 7}, std::vector<std::uint8_t>{1, 1, 0}, 1);
  train.add(std::vector<std::int32_t>{8}, std::vector<std::uint8_t>{1}, 2);
  held_out.add(std::vector<std::int32_t>{9, 10}, std::vector<std::uint8_t>{0, 1}, 1);
  for (const bool with_ids : {false, true}) {
    TrajectoryHeader header;
    header.records_updates = header.records_eval = false;
    header.provenance = {{"data.train", "none"}};
    TrajectoryWriter writer(folder / "r.h5", header, 10.0);
    writer.set_render(train, held_out, "", with_ids);
    EXPECT_THROW(writer.append_update({}), Error);
    writer.finish();
    const Trajectory t = read_trajectory(folder / "r.h5");
    EXPECT_TRUE(t.complete);
    EXPECT_EQ(t.parts, (std::vector<std::string>{"provenance", "render"}));
    ASSERT_TRUE(t.render);
    EXPECT_FALSE(t.updates || t.evals);
    EXPECT_EQ(t.spec_text + t.execution_text, "");
    EXPECT_EQ(t.render->n_train, 2);
    EXPECT_EQ(t.render->digest[2], held_out.digest(0));
    EXPECT_EQ(t.render->n_ids, (std::vector<std::int64_t>{3, 1, 2}));
    EXPECT_EQ(t.render->n_targets, (std::vector<std::int64_t>{1, 0, 1}));  // token 0 is never scored
    EXPECT_EQ(t.render->last_target_id, (std::vector<std::int64_t>{6, -1, 10}));
    const auto sample = read_rendered_sample(folder / "r.h5", 2);
    ASSERT_EQ(sample.has_value(), with_ids);
    if (!sample) continue;
    EXPECT_EQ(sample->ids, (std::vector<std::int64_t>{9, 10}));
    EXPECT_EQ(sample->targets, (std::vector<std::int64_t>{0, 1}));
    EXPECT_EQ(read_rendered_sample(folder / "r.h5", 0)->ids, (std::vector<std::int64_t>{5, 6, 7}));
    EXPECT_THROW(read_rendered_sample(folder / "r.h5", 3), Error);
  }
}

TEST(Trajectory, RefusesRowsThatDoNotFit) {
  TempFolder folder;
  TrajectoryWriter writer(folder / "t.h5", header(), 10.0);
  EXPECT_THROW(append_update(writer, 2), Error);
  append_update(writer, 1);
  EXPECT_THROW(append_update(writer, 1), Error);
  UpdateRow wide;
  const std::int64_t ids[4] = {};
  wide.step = 2;
  wide.sample_ids = ids;
  EXPECT_THROW(writer.append_update(wide), Error);
  append_update(writer, 2);
  writer.append_eval(eval_row(0));
  EXPECT_THROW(writer.append_eval(eval_row(0)), Error);
  auto digest = eval_row(2);
  digest.adapter_digest = "short";
  EXPECT_THROW(writer.append_eval(digest), Error);
  EXPECT_THROW(writer.append_observed(2, std::array{1.0}), Error);
  EXPECT_THROW(writer.set_provenance("note", std::string("a\0b", 3)), Error);
  writer.publish();
  EXPECT_EQ(read_trajectory(folder / "t.h5").updates->rows, 2);
  EXPECT_EQ(read_trajectory(folder / "t.h5").evals->rows, 1);
}

// A process that goes on with a run may need less memory than the one before.
TEST(Trajectory, MemoryOfAContinuedRunIsThePeakOfAllItsProcesses) {
  TempFolder folder;
  {
    TrajectoryWriter writer(folder / "first.h5", header(), 10.0);
    fill(writer, 2);
    writer.publish();
  }
  TrajectoryWriter writer(folder / "t.h5", header(), 10.0, folder / "first.h5");
  writer.set_adapter(kNames, kShapes);
  EvalRow row = eval_row(3);
  row.host_bytes = 1000;
  row.device_bytes = 7;
  append_update(writer, 3);
  writer.append_eval(row);
  writer.publish();
  const Trajectory t = read_trajectory(folder / "t.h5");
  ASSERT_TRUE(t.memory.has_value());
  EXPECT_EQ(t.memory->host_bytes.back(), eval_row(0).host_bytes);
  EXPECT_EQ(t.memory->device_bytes.back(), 7);
}

TEST(Trajectory, PublishesByTimeButNotMoreThanATwentiethOfIt) {
  TempFolder folder;
  TrajectoryWriter writer(folder / "t.h5", header(), 3600.0);
  EXPECT_FALSE(writer.maybe_publish());
  TrajectoryWriter eager(folder / "u.h5", header(), 0.0);
  const auto start = std::chrono::steady_clock::now();
  std::int64_t step = 0, published = 0;
  double elapsed = 0.0;
  while (elapsed < 0.5 || (published == 0 && elapsed < 30.0)) {
    append_update(eager, ++step);
    published += eager.maybe_publish();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  EXPECT_GT(published, 0);
  // A single publication that takes longer than all before it can exceed the share once: hence the factor 2.
  EXPECT_LE(eager.seconds_publishing(), 2 * 0.05 * elapsed);
}

// Known fault R48: any HDF5 reads it.
TEST(Trajectory, HasTheOldestSuperblock) {
  TempFolder folder;
  TrajectoryWriter writer(folder / "t.h5", header(), 10.0);
  fill(writer, 3);
  writer.publish();
  const auto bytes = support::read_text(folder / "t.h5");
  ASSERT_GT(bytes.size(), 9u);
  EXPECT_EQ(bytes.substr(1, 3), "HDF");
  EXPECT_EQ(bytes[8], 0);
}

TEST(Trajectory, SnapshotsAreFilesOfTheirOwnLinkedByStep) {
  TempFolder folder;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {1, 2, 3, 4, 5, 6, 7, 0.1f};
  const std::vector<double> a64(a.begin(), a.end()), b64(8, 0.1);
  TrajectoryWriter writer(folder / "mirror.h5", header(), 10.0);
  fill(writer, 2);
  const std::vector<SnapshotPart> parts = {{"adapter", std::vector<std::span<const float>>{a, b}},
                                           {"gradient", std::vector<std::span<const double>>{a64, b64}}};
  writer.write_snapshot(0, parts);
  writer.write_snapshot(2, parts);
  writer.finish();
  const Trajectory t = read_trajectory(folder / "mirror.h5");
  ASSERT_EQ(t.snapshots.size(), 2u);
  EXPECT_EQ(t.snapshots[1].first, 2);
  EXPECT_EQ(t.snapshots[1].second, folder / "mirror.snapshots/2.h5");
  EXPECT_EQ(read_snapshot(t.snapshots[1].second, "adapter", *t.adapter)[1][7], static_cast<double>(0.1f));
  EXPECT_EQ(read_snapshot(t.snapshots[0].second, "gradient", *t.adapter)[1][0], 0.1);
  EXPECT_THROW(read_snapshot(t.snapshots[0].second, "m", *t.adapter), Error);
  EXPECT_EQ(support::read_text(folder / "mirror.snapshots/2.h5")[8], 0);
  EXPECT_THROW(
      writer.write_snapshot(3, std::vector<SnapshotPart>{{"m", std::vector<std::span<const float>>{a}}}),
      Error);
  EXPECT_FALSE(support::has_temporaries(folder / "mirror.snapshots"));
}

TEST(Trajectory, H5dumpReadsAPublishedFile) {
  if (run("h5dump --version").second != 0) GTEST_SKIP() << "h5dump is not installed";
  TempFolder folder;
  TrajectoryWriter writer(folder / "t.h5", header(), 10.0);
  fill(writer, 3);
  writer.publish();
  const auto [text, status] = run("h5dump " + (folder / "t.h5").string());
  EXPECT_EQ(status, 0) << text;
  EXPECT_SAYS(text, "ATTRIBUTE \"DIMENSION_LABELS\"");
  EXPECT_SAYS(text, "DATASET \"sample_ids\"");
}

TEST(Trajectory, H5pyReadsAPublishedFileWithUnitsAndLabels) {
  if (!has_h5py()) GTEST_SKIP() << "/usr/bin/python3 has no h5py";
  TempFolder folder;
  TrajectoryWriter writer(folder / "t.h5", header(), 10.0);
  fill(writer, 5);
  const std::vector<float> a(6, 1.0f), b(8, 2.0f);
  writer.write_snapshot(5, std::vector<SnapshotPart>{{"adapter", std::vector<std::span<const float>>{a, b}}});
  writer.publish();
  support::write_text(folder / "check.py", R"(
import h5py, sys
f = h5py.File(sys.argv[1], "r")
assert f.attrs["format"] == "tandem-trajectory" and f.attrs["format_version"] == 1 and f.attrs["complete"] == 0
assert f["spec/text"].asstr()[()] == 'seed = 0\nspeech = "\u00e9"\n'
assert len(f["spec/digest"].asstr()[()]) == 64
u = f["update"]
assert list(u["step"][()]) == [1, 2, 3, 4, 5] and u["step"].dtype == "<i8" and u["loss"].dtype == "<f8"
assert u["checksum"].dtype == "<u8" and int(u["checksum"][4]) == 2**64 - 1 - 5
assert u["sample_ids"].shape == (5, 3) and u["sample_ids"].dims[1].label == "sample"
assert f["eval/adapter_digest"].dtype == "S64"
assert f["snapshot/5/adapter/m.lora_B.weight"][3, 1] == 2.0
seen = []
def check(name, thing):
    if isinstance(thing, h5py.Dataset):
        seen.append(name)
        assert thing.attrs["unit"] and thing.attrs["description"], name
        assert all(d.label for d in thing.dims), name
f.visititems(check)
print(len(seen))
)");
  const auto [text, status] =
      run("/usr/bin/python3 " + (folder / "check.py").string() + " " + (folder / "t.h5").string());
  EXPECT_EQ(status, 0) << text;
  EXPECT_GT(std::atoi(text.c_str()), 35);
}

// Known fault R50: a writer in another language, with every kind of text and number HDF5 has for the same thing.
TEST(Trajectory, ReadsOtherKindsOfTextAndNumbers) {
  if (!has_h5py()) GTEST_SKIP() << "/usr/bin/python3 has no h5py";
  TempFolder folder;
  support::write_text(folder / "write.py", R"(
import h5py, numpy as np, sys
f = h5py.File(sys.argv[1], "w", libver=sys.argv[2])
f.attrs["format"] = np.bytes_("tandem-trajectory")
f.attrs["format_version"] = np.int32(1)
f.attrs["stack"] = "pytorch"
f.attrs["complete"] = np.uint8(1)
f["spec/text"] = "\u00e9" * 300
f["spec/digest"] = np.bytes_("d" * 64)
f["execution/text"] = ""
f.create_group("provenance").attrs["hosts"] = ["a", "b\u00e9"]
f["provenance"].attrs["ranks"] = [1, 2]
f["update/step"] = np.array([1, 2], ">i4")
f["update/loss"] = np.array([3.5, np.nan], ">f4")
f.create_dataset("update/lr", data=[1e-4, 1e-4], compression="gzip", chunks=(1,))
f["update/checksum"] = np.array([-1, 1], "<i8")
f["update/unknown"] = [1, 2, 3]
f["unknown/group"] = 1
f["eval/step"] = np.array([0], "u2")
f["eval/adapter_digest"] = np.array(["e" * 64], "S64")
f["adapter/names"] = np.array([b"abcd", b"e"], "S4")
t = h5py.h5t.C_S1.copy(); t.set_size(6); t.set_strpad(h5py.h5t.STR_SPACEPAD)
s = h5py.h5s.create_simple((2,))
d = h5py.h5d.create(f["eval"].id, b"dummy", t, s)
g = f.create_group("load")
d = h5py.h5d.create(g.id, b"name", t, s); d.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([b"w  ", b"vvvvvv"], "S6"), t)
g["dtype"] = ["F32", ""]
)");
  for (const std::string bounds : {"earliest", "latest"}) {
    const auto file = folder / (bounds + ".h5");
    const auto [text, status] =
        run("/usr/bin/python3 " + (folder / "write.py").string() + " " + file.string() + " " + bounds);
    ASSERT_EQ(status, 0) << text;
    const Trajectory t = read_trajectory(file);
    EXPECT_EQ(t.stack, "pytorch");
    EXPECT_TRUE(t.complete);
    EXPECT_EQ(t.spec_text.size(), 600u);
    EXPECT_EQ(t.spec_digest, std::string(64, 'd'));
    EXPECT_EQ(t.provenance.at("hosts"), "a,bé");
    EXPECT_EQ(t.provenance.at("ranks"), "1,2");
    EXPECT_EQ(t.updates->step, (std::vector<std::int64_t>{1, 2}));
    EXPECT_EQ(t.updates->loss[0], 3.5);
    EXPECT_TRUE(std::isnan(t.updates->loss[1]));
    EXPECT_EQ(t.updates->lr, (std::vector<double>{1e-4, 1e-4}));
    EXPECT_EQ(t.updates->checksum[0], ~std::uint64_t{0});
    EXPECT_EQ(t.evals->adapter_digest[0], std::string(64, 'e'));
    EXPECT_EQ(t.adapter->names, (std::vector<std::string>{"abcd", "e"}));
    EXPECT_EQ(t.load->name, (std::vector<std::string>{"w", "vvvvvv"}));
    EXPECT_EQ(t.load->dtype, (std::vector<std::string>{"F32", ""}));
  }
}

// Known fault R48: of a newer format.
TEST(Trajectory, RefusesWhatItDoesNotUnderstand) {
  if (!has_h5py()) GTEST_SKIP() << "/usr/bin/python3 has no h5py";
  TempFolder folder;
  TrajectoryWriter writer(folder / "whole.h5", header(), 10.0);
  fill(writer, 3);
  writer.publish();
  const std::pair<const char*, const char*> cases[] = {
      {"f.attrs['format'] = 'other'", "not a Tandem trajectory"},
      {"del f.attrs['format']", "not a Tandem trajectory"},
      {"f.attrs['format_version'] = 2",
       "trajectory format 2, this program reads format 1: use a newer tandem"},
      {"f.attrs['format_version'] = '1'", "format_version: is not one integer"},
      {"f.attrs['complete'] = 2", "complete = 2"},
      {"f['update/step'].resize((2,))", "other columns of its table have"},
      {"f['update/step'][1] = 9", "row 2 is step 3 after step 9"},
      {"del f['update/loss']; f['update/loss'] = ['a', 'b', 'c']", "/update/loss: does not hold numbers"},
      {"del f['update/step']; f['update/step'] = [1.0, 2.0, 3.0]", "/update/step: does not hold integers"},
      {"del f['update/lr']; f.create_dataset('update/lr', (10**12,), chunks=(512,), dtype='f8')",
       "announces 1000000000000 elements"},
      {"del f['update']; f['update'] = 3", "/update: is not a group"},
      {"del f['update/lr']; f.create_group('update/lr')", "/update/lr: is not a dataset"},
      {"f['audit/verdict'] = [0, 5]", "holds 5, a verdict"},
      {"f['render'].attrs['n_train'] = 4", "n_train: = 4 of 3 samples"},
      {"del f['update/lr']; f.create_dataset('update/lr', (3,), dtype='f8', external=[('x', 0, 24)])",
       "in another file"},
  };
  for (const auto& [change, part] : cases) {
    fs::copy_file(folder / "whole.h5", folder / "t.h5", fs::copy_options::overwrite_existing);
    const auto [text, status] = run("/usr/bin/python3 -c \"import h5py; f = h5py.File('" +
                                    (folder / "t.h5").string() + "', 'r+'); " + change + "\"");
    ASSERT_EQ(status, 0) << text;
    EXPECT_SAYS(refusal(folder / "t.h5"), part);
  }
}

TEST(Trajectory, NamesFilesThatAreNotHdf5) {
  TempFolder folder;
  EXPECT_SAYS(refusal(folder / "none.h5"), "there is no such file");
  EXPECT_SAYS(refusal(folder.path()), "is not a regular file");
  support::write_text(folder / "empty.h5", "");
  EXPECT_SAYS(refusal(folder / "empty.h5"), "is empty");
  support::write_text(folder / "text.h5", "hello");
  EXPECT_SAYS(refusal(folder / "text.h5"), "is not an HDF5 file");
  TrajectoryWriter writer(folder / "whole.h5", header(), 10.0);
  fill(writer, 3);
  writer.publish();
  const auto bytes = support::read_text(folder / "whole.h5");
  for (const std::size_t kept : {bytes.size() - 1, bytes.size() / 2, std::size_t{100}}) {
    support::write_text(folder / "cut.h5", bytes.substr(0, kept));
    EXPECT_SAYS(refusal(folder / "cut.h5"), "damaged or cut short");
  }
}

// Each of them must end in an error line or (flipped bytes that only change numbers) in a result; never in a
// crash.
TEST(Trajectory, SurvivesDamagedFiles) {
  TempFolder folder;
  if (const auto hostile = support::data_path("hostile/hdf5"))
    for (const auto& entry : fs::directory_iterator(*hostile))
      if (entry.path().extension().string().starts_with(".h")) {
        EXPECT_NE(refusal(entry.path()), "") << entry.path();
      }
  TrajectoryHeader small = header();
  small.records_observed = false;
  TrajectoryWriter writer(folder / "whole.h5", small, 10.0);
  append_update(writer, 1);
  writer.publish();
  const auto bytes = support::read_text(folder / "whole.h5");
  std::mt19937_64 random(5);
  int refused = 0;
  constexpr int kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    auto damaged = bytes;
    for (int flips = 0; flips < 20; ++flips) damaged[random() % damaged.size()] = static_cast<char>(random());
    support::write_text(folder / "damaged.h5", damaged);
    refused += !refusal(folder / "damaged.h5").empty();
  }
  EXPECT_GT(refused, 0);
}

// A child appends and publishes for ever; killed at any instant, the file opens and holds a prefix of the
// rows.
TEST(Trajectory, AKilledWriterLeavesAWholeFile) {
  TempFolder folder;
  const bool h5py = has_h5py();
  std::mt19937 random(41);
  std::uniform_int_distribution<int> delay_us(0, 40'000);
  for (int round = 0; round < 40; ++round) {
    fs::remove(folder / "t.h5");
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      TrajectoryWriter writer(folder / "t.h5", header(), 0.0);
      fill(writer, 1);
      for (std::int64_t step = 2;; ++step) {
        append_update(writer, step);
        writer.publish();
      }
    }
    const bool started = support::wait_for(folder / "t.h5");
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us(random)));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ASSERT_TRUE(started);
    const Trajectory t = read_trajectory(folder / "t.h5");
    ASSERT_GE(t.updates->rows, 1);
    for (std::int64_t i = 0; i < t.updates->rows; ++i) {
      ASSERT_EQ(t.updates->step[static_cast<std::size_t>(i)], i + 1);
      ASSERT_EQ(t.updates->n_targets[static_cast<std::size_t>(i)], 10 * (i + 1));
    }
    if (h5py && round % 10 == 0) {
      const auto [text, status] = run("/usr/bin/python3 -c \"import h5py; h5py.File('" +
                                      (folder / "t.h5").string() + "')['update/step'][()]\"");
      ASSERT_EQ(status, 0) << text;
    }
  }
}

TEST(Trajectory, AFullDiskIsAnErrorThatTheRunCanOutlive) {
  TempFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "a small file system cannot be mounted here (needs root): " << std::strerror(errno);
  {
    TrajectoryWriter writer(folder / "t.h5", header(), 10.0);
    fill(writer, 3);
    writer.publish();
    support::write_text(folder / "other", std::string(1'000'000, 'x'));
    append_update(writer, 4);
    std::string message;
    try {
      writer.finish();
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_SAYS(message, "t.h5: write: No space left on device");
    EXPECT_EQ(read_trajectory(folder / "t.h5").updates->rows, 3);
    EXPECT_FALSE(read_trajectory(folder / "t.h5").complete);
    EXPECT_FALSE(support::has_temporaries(folder.path()));
    const std::vector<float> a(6), b(8);
    EXPECT_THROW(writer.write_snapshot(
                     4, std::vector<SnapshotPart>{{"adapter", std::vector<std::span<const float>>{a, b}}}),
                 Error);
    fs::remove(folder / "other");
    writer.finish();
    EXPECT_EQ(read_trajectory(folder / "t.h5").updates->rows, 4);
    EXPECT_TRUE(read_trajectory(folder / "t.h5").complete);
    EXPECT_TRUE(read_trajectory(folder / "t.h5").snapshots.empty());
  }
  umount(folder.path().c_str());
}

// HDF5 must not touch a file whose closing failed once more at exit, wherever in the file the disk was full.
TEST(TrajectoryDeathTest, ASnapshotThatDoesNotFitIsAnErrorAndTheProcessEndsInOrder) {
  constexpr std::size_t kPage = 4096, kTensor = 3000;
  for (std::size_t free_pages = 0; free_pages < 10; ++free_pages) {
    TempFolder folder;
    const std::string size = cat("size=", 16 * kPage);
    if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, size.c_str()) != 0)
      GTEST_SKIP() << "a small file system cannot be mounted here (needs root): " << std::strerror(errno);
    support::write_text(folder / "other", std::string((16 - free_pages) * kPage, 'x'));
    const auto write_too_much = [&] {
      std::string message;
      {
        TrajectoryWriter writer(folder / "t.h5", {}, 10.0);
        writer.set_adapter(std::vector<std::string>{"m.lora_A.weight", "m.lora_B.weight"},
                           std::vector<std::pair<std::int64_t, std::int64_t>>{{1, kTensor}, {kTensor, 1}});
        const std::vector<float> a(kTensor, 1.0f);
        const std::vector<std::span<const float>> both{a, a};
        try {
          writer.write_snapshot(1, std::vector<SnapshotPart>{{"adapter", both}, {"gradient", both}});
        } catch (const Error& error) {
          message = error.what();
        }
      }
      std::exit(message.find("No space left on device") != message.npos && message.size() < 200 ? 0 : 9);
    };
    EXPECT_EXIT(write_too_much(), testing::ExitedWithCode(0), "") << free_pages << " pages free";
    umount(folder.path().c_str());
  }
}

}  // namespace
}  // namespace tandem
