// /probe, /activation, /audit and /load/memory: written and read back, refused where they do not fit.
#include "io/observations.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "io/hdf5.hpp"
#include "io/trajectory.hpp"
#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using support::TempFolder;

constexpr std::int64_t kTokens = 3, kLayers = 2, kEvals = 70;  // more evaluations than a chunk has rows
const std::vector<std::string> kNames = {"m.lora_A.weight", "m.lora_B.weight"};
const std::vector<std::pair<std::int64_t, std::int64_t>> kShapes = {{2, 3}, {4, 2}};
const ProbeTokens kProbe{{0, 0, 4}, {1, 3, 2}, {17, 5, 17}};

TrajectoryHeader header(bool audits = false) {
  TrajectoryHeader header;
  header.records_norms = true;
  header.records_audits = audits;
  return header;
}

TrajectoryWriter writer_of(const TempFolder& folder, const TrajectoryHeader& header, bool probe = true) {
  TrajectoryWriter writer(folder / "t.h5", header, 10.0);
  const LoadRow load[] = {{"w", sha256_hex("w"), {2}, "F32", 0.0, 1.0},
                          {"x", sha256_hex("x"), {2}, "F32", 0.0, 1.0}};
  writer.set_load(load, "{}");
  if (probe) writer.set_probe(kProbe, kLayers);
  writer.set_adapter(kNames, kShapes);
  return writer;
}

// Numbers that say where they belong.
struct Values {
  explicit Values(double step) : real(static_cast<std::size_t>(kTokens * kTopLogits)), integer(real.size()) {
    for (std::size_t i = 0; i < real.size(); ++i) {
      real[i] = step + static_cast<double>(i) / 64.0;
      integer[i] = static_cast<std::int64_t>(step) * 100 + static_cast<std::int64_t>(i);
    }
  }
  std::span<const double> first(std::size_t n) const { return std::span(real).first(n); }
  std::vector<double> real;
  std::vector<std::int64_t> integer;
};

EvalRow eval_row(std::int64_t step, const Values& values) {
  EvalRow row;
  row.step = step;
  row.adapter_digest = sha256_hex("a");
  row.probe = {values.first(kTokens), values.first(kTokens), values.integer,
               values.real,           values.first(kLayers), values.first(kLayers)};
  row.norms = {values.first(1), values.first(2)};
  return row;
}

TEST(Observations, ProbeAndActivationsReadBackAsWritten) {
  const TempFolder folder;
  TrajectoryWriter writer = writer_of(folder, header());
  for (std::int64_t step = 0; step < kEvals; ++step) {
    const Values values(static_cast<double>(step));
    writer.append_eval(eval_row(step, values));
    if (step == 20) writer.publish();
  }
  writer.finish();
  const Trajectory t = read_trajectory(folder / "t.h5");
  ASSERT_TRUE(t.probe && t.activations);
  EXPECT_EQ(t.probe->tokens.sample, kProbe.sample);
  EXPECT_EQ(t.probe->tokens.position, kProbe.position);
  EXPECT_EQ(t.probe->tokens.target, kProbe.target);
  ASSERT_EQ(t.probe->rows, kEvals);
  EXPECT_EQ(t.activations->n_layers, kLayers);
  EXPECT_EQ(t.activations->n_modules, 1);
  EXPECT_EQ(t.activations->n_tensors, 2);
  for (std::int64_t step = 0; step < kEvals; ++step) {
    const Values values(static_cast<double>(step));
    const auto row = [&](const std::vector<double>& column, std::size_t width) {
      const auto at = column.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(step) * width);
      return std::vector<double>(at, at + static_cast<std::ptrdiff_t>(width));
    };
    const auto wanted = [&](std::size_t n) {
      return std::vector<double>(values.real.begin(), values.real.begin() + static_cast<std::ptrdiff_t>(n));
    };
    ASSERT_EQ(row(t.probe->nll, kTokens), wanted(kTokens));
    ASSERT_EQ(row(t.probe->target_logit, kTokens), wanted(kTokens));
    ASSERT_EQ(row(t.probe->topk_logit, kTokens * kTopLogits), values.real);
    const auto ids = t.probe->topk_id.begin() + step * kTokens * kTopLogits;
    ASSERT_EQ(std::vector<std::int64_t>(ids, ids + kTokens * kTopLogits), values.integer);
    ASSERT_EQ(row(t.activations->rms, kLayers), wanted(kLayers));
    ASSERT_EQ(row(t.activations->absmax, kLayers), wanted(kLayers));
    ASSERT_EQ(row(t.activations->ba_norm, 1), wanted(1));
    ASSERT_EQ(row(t.activations->update_norm, 2), wanted(2));
  }
}

TEST(Observations, WithoutAProbeTheNormsAreThereAlone) {
  const TempFolder folder;
  TrajectoryWriter writer = writer_of(folder, header(), false);
  const Values values(1.0);
  writer.append_eval(eval_row(0, values));
  writer.finish();
  const Trajectory t = read_trajectory(folder / "t.h5");
  EXPECT_FALSE(t.probe || t.audits);
  ASSERT_TRUE(t.activations && t.load);
  EXPECT_FALSE(t.load->memory);
  EXPECT_EQ(t.activations->n_layers, 0);
  EXPECT_EQ(t.activations->update_norm.size(), 2u);
}

TEST(Observations, AuditsAndWeightsInMemoryReadBackAsWritten) {
  const TempFolder folder;
  TrajectoryWriter writer = writer_of(folder, header(true));
  writer.publish();
  EXPECT_EQ(read_trajectory(folder / "t.h5").audits->rows, 0) << "a part that is recorded exists at once";
  AuditRow row;
  row.step = 5;
  row.loss_error = 1e-7;
  row.norm_error = 2e-7;
  const std::array error = {1e-6, 3e-6}, one = {1.0, 1.0};
  row.relative_error = error;
  row.projection = one;
  row.note = "nothing found";
  writer.append_audit(row);
  row.scope = AuditScope::kMicroBatch;
  row.micro_batch = 3;
  row.verdict = Verdict::kExact;
  row.note = "model.layers.0: é differs, " + std::string(5000, 'x');
  writer.append_audit(row);
  AuditRow skipped;
  skipped.step = 9;
  skipped.verdict = Verdict::kSkipped;
  writer.append_audit(skipped);
  writer.append_load_memory(0, 1, sha256_hex("x"));
  writer.append_load_memory(9, 0, sha256_hex("w"));
  writer.finish();

  const Trajectory t = read_trajectory(folder / "t.h5");
  ASSERT_TRUE(t.audits && t.load && t.load->memory);
  EXPECT_EQ(t.audits->step, (std::vector<std::int64_t>{5, 5, 9}));
  EXPECT_EQ(t.audits->micro_batch, (std::vector<std::int64_t>{-1, 3, -1}));
  EXPECT_EQ(t.audits->scope, (std::vector{AuditScope::kBatch, AuditScope::kMicroBatch, AuditScope::kBatch}));
  EXPECT_EQ(t.audits->verdict, (std::vector{Verdict::kPass, Verdict::kExact, Verdict::kSkipped}));
  EXPECT_EQ(t.audits->note[1], row.note);
  EXPECT_EQ(t.audits->note[2], "");
  EXPECT_EQ(t.audits->n_tensors, 2);
  EXPECT_EQ(t.audits->relative_error[3], 3e-6);
  EXPECT_EQ(t.audits->projection[0], 1.0);
  EXPECT_TRUE(std::isnan(t.audits->bound[0]) && std::isnan(t.audits->optimizer_error[5]));
  EXPECT_EQ(t.audits->loss_error[1], 1e-7);
  EXPECT_TRUE(std::isnan(t.audits->loss_error[2]));
  EXPECT_EQ(t.load->memory->step, (std::vector<std::int64_t>{0, 9}));
  EXPECT_EQ(t.load->memory->tensor, (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(t.load->memory->digest[1], sha256_hex("w"));
}

TEST(Observations, RowsThatDoNotFitAreRefused) {
  const TempFolder folder;
  {
    TrajectoryWriter plain = writer_of(folder, header());
    EXPECT_THROW(plain.append_audit({}), Error);
    EXPECT_THROW(plain.append_load_memory(0, 0, sha256_hex("w")), Error);
    EvalRow without;
    without.adapter_digest = sha256_hex("a");
    EXPECT_THROW(plain.append_eval(without), Error) << "a row without its probe";
  }
  TrajectoryWriter writer = writer_of(folder, header(true));
  AuditRow row;
  row.step = 5;
  writer.append_audit(row);
  row.step = 4;
  EXPECT_THROW(writer.append_audit(row), Error);
  row.step = 6;
  row.micro_batch = 0;
  EXPECT_THROW(writer.append_audit(row), Error);
  EXPECT_THROW(writer.append_load_memory(0, 2, sha256_hex("w")), Error);
  EXPECT_THROW(writer.append_load_memory(0, 0, "short"), Error);
  writer.publish();
  EXPECT_EQ(read_trajectory(folder / "t.h5").audits->rows, 1);
  TrajectoryWriter other(folder / "u.h5", header(), 10.0);
  EXPECT_THROW(other.set_probe({}, kLayers), Error);
  ProbeTokens uneven = kProbe;
  uneven.sample.pop_back();
  EXPECT_THROW(other.set_probe(uneven, kLayers), Error);
}

// Changes one thing of a good file; the refusal names it.
TEST(Observations, FilesOfAnotherShapeAreRefused) {
  const std::pair<void (*)(hdf5::Id&), const char*> cases[] = {
      {[](hdf5::Id& file) {
         const auto group = hdf5::open_group(file, "probe");
         const hsize_t dims[] = {1, 3, 7};
         const std::vector<double> values(21);
         hdf5::write_array(group, "topk_logit", hdf5::float64_type(), dims, values.data(), {"1", "x"});
       },
       "/probe/topk_logit: is not [rows, 3, 8]"},
      {[](hdf5::Id& file) {
         const auto group = hdf5::create_group(file, "audit");
         const hsize_t n = 2;
         const std::int64_t values[] = {0, 2};
         hdf5::write_array(group, "scope", hdf5::int64_type(), std::span(&n, 1), values, {"1", "x"});
       },
       "/audit/scope: holds 2, a scope"},
      {[](hdf5::Id& file) {
         const auto group = hdf5::create_group(file, "audit");
         const hsize_t n = 2;
         const std::int64_t values[] = {7, 6};
         hdf5::write_array(group, "step", hdf5::int64_type(), std::span(&n, 1), values, {"1", "x"});
       },
       "/audit/step: row 1 is step 6 after step 7"},
      {[](hdf5::Id& file) {
         const auto group = hdf5::create_group(file, "load");
         const auto memory = hdf5::create_group(group, "memory");
         const hsize_t n = 1;
         const std::int64_t value = 0;
         hdf5::write_array(memory, "tensor", hdf5::int64_type(), std::span(&n, 1), &value, {"1", "x"});
       },
       "/load/memory/tensor: names tensor 0 of 0"},
  };
  const TempFolder folder;
  for (const auto& [change, part] : cases) {
    hdf5::Id file = hdf5::create_on_disk(folder / "t.h5");
    hdf5::set_attribute(file, "format", "tandem-trajectory");
    hdf5::set_attribute(file, "format_version", kTrajectoryVersion);
    hdf5::set_attribute(file, "stack", "other");
    const auto probe = hdf5::create_group(file, "probe");
    const hsize_t n = 3;
    for (const char* name : {"sample", "position", "target"})
      hdf5::write_array(probe, name, hdf5::int64_type(), std::span(&n, 1), kProbe.sample.data(), {"1", "x"});
    change(file);
    hdf5::close_file(file);
    try {
      read_trajectory(folder / "t.h5");
      ADD_FAILURE() << "taken: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tandem
