// What the mirror sends is what the files hold, to the bit, NaN included.
#include "src/audit/messages.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "tests/audit/good_update.hpp"

namespace tandem::audit_test {
namespace {

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) {
           return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
         });
}

class Messages : public testing::Test {
 protected:
  Messages() : mirror_(make_inputs(folder_)), native_(folder_ / "native.h5", header("native", true), 1e9) {
    std::vector<LoadRow> load;
    for (const auto& t : mirror_.load()) load.push_back({t.name, t.digest, t.shape, t.dtype, t.mean, t.rms});
    native_.set_load(load, mirror_.config_echo());
    std::vector<std::string> names;
    std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
    for (const auto& t : mirror_.adapter_tensors()) {
      names.push_back(t.name);
      shapes.emplace_back(t.rows, t.columns);
      sizes_.push_back(static_cast<std::size_t>(t.rows * t.columns));
    }
    native_.set_adapter(names, shapes);
  }
  static TrajectoryHeader header(const char* stack, bool audits) {
    TrajectoryHeader header;
    header.stack = stack;
    header.batch_global = 4;
    header.records_eval = header.records_norms = !audits;
    header.records_audits = audits;
    header.records_observed = !audits;
    return header;
  }
  MirrorRecorder recorder() {
    return MirrorRecorder(native_, sizes_,
                          MirrorRecorder::Free{folder_ / "mirror.h5", header("mirror", false), 1e9},
                          [this](const std::string& text, bool warning) {
                            said_.push_back((warning ? "warning: " : "") + text);
                          });
  }

  support::TempFolder folder_;
  mirror::Mirror mirror_;
  TrajectoryWriter native_;
  std::vector<std::size_t> sizes_;
  std::vector<std::string> said_;
};

TEST_F(Messages, OfAnAuditFillItsRowAndKeepTheUpdatesState) {
  mirror::AdapterState state = first_state(mirror_);
  const UpdateJob job = good_update(mirror_, state, 1);
  const auto n = sizes_.size();
  AuditOutcome outcome;
  outcome.step = 1;
  outcome.scope = AuditScope::kMicroBatch;
  outcome.micro_batch = 2;
  outcome.loss_error = std::nextafter(0.1, 1.0);
  outcome.norm_error = std::nan("");
  outcome.relative_error.assign(n, 1.0 / 3.0);
  outcome.relative_error[1] = std::numeric_limits<double>::infinity();
  outcome.projection.assign(n, -0.0);
  outcome.projection[2] = std::nan("");
  outcome.bound.assign(n, 5e-324);
  outcome.verdict = Verdict::kCalibrated;
  outcome.note = "a \"note\"\u00e9";
  MirrorRecorder recorder = this->recorder();
  recorder.apply(audit_message(outcome, &job));
  recorder.apply(line_message("slow", false));
  recorder.apply(line_message("odd", true));
  recorder.apply(fact_message("mirror_audits", 17.25));
  native_.finish();

  const Trajectory run = read_trajectory(folder_ / "native.h5");
  ASSERT_TRUE(run.audits && run.audits->rows == 1);
  const auto& audits = *run.audits;
  EXPECT_EQ(audits.step[0], 1);
  EXPECT_EQ(audits.scope[0], AuditScope::kMicroBatch);
  EXPECT_EQ(audits.micro_batch[0], 2);
  EXPECT_EQ(audits.loss_error[0], outcome.loss_error);
  EXPECT_TRUE(std::isnan(audits.norm_error[0]));
  EXPECT_TRUE(same_bits(audits.relative_error, outcome.relative_error));
  EXPECT_TRUE(same_bits(audits.projection, outcome.projection));
  EXPECT_TRUE(same_bits(audits.bound, outcome.bound));
  for (const double e : audits.optimizer_error) EXPECT_TRUE(std::isnan(e)) << "not computed";
  EXPECT_EQ(audits.verdict[0], Verdict::kCalibrated);
  EXPECT_EQ(audits.note[0], outcome.note);
  EXPECT_EQ(said_, (std::vector<std::string>{"warning: audit of update 1: " + outcome.note, "slow",
                                             "warning: odd"}));
  EXPECT_EQ(std::stod(run.provenance.at("mirror_audits")), 17.25);
  ASSERT_EQ(run.snapshots.size(), 1u);
  for (const auto& [part, kept] : {std::pair("adapter", &job.adapter), std::pair("m", &job.m),
                                   std::pair("v", &job.v), std::pair("gradient", &job.gradient)}) {
    FlatTensors read;
    for (const auto& tensor : read_snapshot(run.snapshots[0].second, part, *run.adapter))
      read.insert(read.end(), tensor.begin(), tensor.end());
    EXPECT_EQ(read, *kept) << part;
  }
}

TEST_F(Messages, OfAFreeRunMakeItsFile) {
  MirrorRecorder recorder = this->recorder();
  EXPECT_THROW(recorder.apply(adapter_off_message(1.0, 2.0)), Error) << "before its beginning";
  mirror::AdapterState state = mirror_.initial();
  const mirror::BatchGradient batch = mirror_.gradient(state.adapter, mirror_.batch(1), 1);
  recorder.apply(start_message(mirror_));
  recorder.apply(snapshot_message(1, state, batch, {"adapter", "gradient"}));
  const mirror::UpdateResult result = mirror_.step(state, batch, 1);
  recorder.apply(update_message(mirror_, 1, state, batch, result, true, 0.5));
  mirror::UpdateResult nothing = result;
  nothing.loss = std::nan("");
  recorder.apply(update_message(mirror_, 2, state, batch, nothing, false, 0.5));
  const mirror::Evaluation evaluation = mirror_.evaluate(&state.adapter);
  const mirror::Probe probe = mirror_.probe(state.adapter);
  const std::vector<double> change(sizes_.size(), 0.25);
  recorder.apply(evaluation_message(mirror_, 2, state.adapter, evaluation, probe, change, 0.25));
  recorder.apply(adapter_off_message(3.5, std::nan("")));
  recorder.apply(free_run_ended_message());

  const Trajectory run = read_trajectory(folder_ / "mirror.h5");
  EXPECT_EQ(run.stack, "mirror");
  EXPECT_TRUE(run.complete);
  ASSERT_TRUE(run.load && run.render && run.updates && run.evals && run.observed && run.probe);
  EXPECT_EQ(run.load->config, mirror_.config_echo());
  EXPECT_EQ(run.load->name, mirror_.tensor_names());
  EXPECT_EQ(run.render->n_train, 8);
  EXPECT_EQ(run.render->digest.back(), mirror_.held_out_samples().back().digest);
  ASSERT_EQ(run.updates->rows, 2);
  EXPECT_EQ(run.updates->loss[0], result.loss);
  EXPECT_TRUE(std::isnan(run.updates->loss[1]));
  EXPECT_EQ(run.updates->grad_norm[0], result.norm);
  EXPECT_EQ(run.updates->lr[0], result.lr);
  EXPECT_EQ(run.updates->n_targets[0], result.n_scored);
  EXPECT_EQ(run.updates->adapter_checksum[0], mirror_.adapter_checksum(state.adapter));
  const auto ids = mirror_.batch(1);
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), run.updates->sample_ids.begin()));
  EXPECT_EQ(run.observed->rows, 1);
  ASSERT_EQ(run.evals->rows, 1);
  EXPECT_EQ(run.evals->nll_sum[0], evaluation.nll_sum);
  EXPECT_EQ(run.evals->adapter_digest[0], mirror_.adapter_digest(state.adapter));
  EXPECT_EQ(run.evals->loss_adapter_off[0], 3.5);
  EXPECT_TRUE(same_bits(run.probe->nll, probe.nll));
  EXPECT_TRUE(same_bits(run.probe->topk_logit, probe.top_logit));
  EXPECT_EQ(run.probe->topk_id, probe.top_id);
  EXPECT_TRUE(same_bits(run.activations->rms, probe.activation_rms));
  EXPECT_TRUE(same_bits(run.activations->ba_norm, probe.ba_norm));
  EXPECT_TRUE(same_bits(run.activations->update_norm, change));
  ASSERT_EQ(run.snapshots.size(), 1u);
  EXPECT_TRUE(same_bits(read_snapshot(run.snapshots[0].second, "adapter", *run.adapter)[0],
                        mirror_.initial().adapter[0]));
}

TEST_F(Messages, ThatAreNoneAreRefused) {
  MirrorRecorder recorder = this->recorder();
  EXPECT_ANY_THROW(recorder.apply({}));
  EXPECT_ANY_THROW(recorder.apply({1, 2, 3}));
}

}  // namespace
}  // namespace tandem::audit_test
