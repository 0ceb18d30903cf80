#include "src/audit/mirror_thread.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "tests/audit/good_update.hpp"

namespace tandem::audit_test {
namespace {

using nlohmann::json;

MirrorOptions options_of(const mirror::Inputs& inputs) {
  MirrorOptions options;
  options.inputs = inputs;
  options.audits = true;
  options.every = 1;
  return options;
}

// All messages from now until the thread has nothing left to do.
std::vector<json> until_done(MirrorThread& thread, bool& stop) {
  std::vector<json> all;
  const double begin = now_s();
  for (bool done = false; !done;) {
    MirrorThread::Mail mail = thread.take(0.5);
    for (const MirrorMessage& message : mail.messages) all.push_back(json::from_cbor(message));
    stop = stop || mail.stop;
    done = mail.done && mail.messages.empty();
    if (now_s() - begin > 60) throw Error(ErrorKind::kInternal, "the thread does not end");
  }
  return all;
}

std::vector<json> of_kind(const std::vector<json>& messages, const std::string& kind) {
  std::vector<json> some;
  for (const json& message : messages)
    if (message.at("kind") == kind) some.push_back(message);
  return some;
}

double fact(const std::vector<json>& messages, const std::string& name) {
  for (const json& message : of_kind(messages, "fact"))
    if (message.at("name") == name) return message.at("value");
  return std::nan("");
}

class MirrorThreads : public testing::Test {
 protected:
  MirrorThreads() : inputs_(make_inputs(folder_)), mirror_(inputs_), state_(first_state(mirror_)) {}
  UpdateJob next() { return good_update(mirror_, state_, ++t_); }

  support::TempFolder folder_;
  mirror::Inputs inputs_;
  mirror::Mirror mirror_;
  mirror::AdapterState state_;
  std::int64_t t_ = 0;
};

TEST_F(MirrorThreads, AuditsWhatItIsGivenAndThenIsDone) {
  MirrorThread thread(options_of(inputs_));
  thread.wait_until_ready();
  for (int t = 1; t <= 4; ++t) {
    thread.wait_until_it_can_take();
    EXPECT_TRUE(thread.can_take());
    thread.give(next());
  }
  thread.close();
  bool stop = false;
  const auto messages = until_done(thread, stop);
  EXPECT_FALSE(stop);
  const auto audits = of_kind(messages, "audit");
  ASSERT_EQ(audits.size(), 4u);
  for (int t = 1; t <= 4; ++t) {
    EXPECT_EQ(audits[static_cast<std::size_t>(t - 1)].at("step"), t);
    EXPECT_EQ(audits[static_cast<std::size_t>(t - 1)].at("verdict"), 0);
  }
  EXPECT_EQ(fact(messages, "mirror_audits"), 4);
  EXPECT_EQ(fact(messages, "mirror_audits_skipped"), 0);
  EXPECT_LE(fact(messages, "mirror_audits_waiting_at_most"), 1.0 + MirrorThread::kWaiting);
  EXPECT_GT(fact(messages, "mirror_seconds_per_audit_expected"), 0);
}

TEST_F(MirrorThreads, TakesNoMoreThanItsQueueHoldsAndTellsWhatWasSkippedInTheOrderOfUpdates) {
  MirrorThread thread(options_of(inputs_));
  thread.wait_until_ready();
  // More at once than it can do: all are there before the first is done (calibration comes first).
  std::vector<UpdateJob> jobs;
  for (int t = 1; t <= 6; ++t) jobs.push_back(next());
  std::int64_t given = 0, skipped = 0;
  for (UpdateJob& job : jobs) {
    if (thread.can_take()) {
      thread.give(std::move(job)), ++given;
    } else {
      thread.note_skipped(job.step), ++skipped;
    }
  }
  EXPECT_GT(skipped, 0);
  thread.close();
  bool stop = false;
  const auto messages = until_done(thread, stop);
  const auto audits = of_kind(messages, "audit");
  ASSERT_EQ(audits.size(), 6u);
  std::int64_t told = 0;
  for (std::size_t i = 0; i < audits.size(); ++i) {
    EXPECT_EQ(audits[i].at("step"), i + 1);
    told += audits[i].at("verdict") == static_cast<int>(Verdict::kSkipped);
  }
  EXPECT_EQ(told, skipped);
  EXPECT_EQ(fact(messages, "mirror_audits"), static_cast<double>(given));
  EXPECT_EQ(fact(messages, "mirror_audits_skipped"), static_cast<double>(skipped));
}

TEST_F(MirrorThreads, AsksForTheEndWhereAMismatchEndsTheRun) {
  for (const bool stops : {false, true}) {
    t_ = 0, state_ = first_state(mirror_);
    MirrorOptions options = options_of(inputs_);
    options.stop_on_mismatch = stops;
    MirrorThread thread(options);
    thread.wait_until_ready();
    UpdateJob job = next();
    job.lr *= 2;
    thread.give(std::move(job));
    thread.close();
    bool stop = false;
    const auto audits = of_kind(until_done(thread, stop), "audit");
    EXPECT_EQ(stop, stops);
    ASSERT_EQ(audits.size(), 1u);
    EXPECT_EQ(audits[0].at("verdict"), static_cast<int>(Verdict::kBound));
    EXPECT_TRUE(audits[0].contains("snapshot")) << "what a replay needs";
  }
}

// Base weights before the first audit and after the last are looked at in that order, and recorded.
TEST_F(MirrorThreads, LookAtTheBaseWeightsInMemory) {
  BaseWeights good{0, {}};
  for (const std::string& name : mirror_.tensor_names())
    good.tensors.push_back(
        {static_cast<std::int64_t>(good.tensors.size()), name, mirror_.memory_digest(name)});
  BaseWeights wrong = good;
  wrong.step = 1;
  for (const std::size_t i : {2, 5}) wrong.tensors[i].digest[7] ^= 1;
  for (const bool stops : {false, true}) {
    t_ = 0;
    state_ = first_state(mirror_);
    MirrorOptions options = options_of(inputs_);
    options.stop_on_mismatch = stops;
    MirrorThread thread(options);
    thread.wait_until_ready();
    thread.give_weights(good);
    thread.wait_until_it_can_take();
    thread.give(next());
    thread.give_weights(wrong);
    thread.close();
    bool stop = false;
    const auto all = until_done(thread, stop);
    EXPECT_EQ(stop, stops);
    const auto memory = of_kind(all, "base_weights");
    ASSERT_EQ(memory.size(), 3u);  // all, the audit's, all
    EXPECT_EQ(memory[0].at("step"), 0);
    EXPECT_EQ(memory[0].at("tensors").size(), good.tensors.size());
    EXPECT_EQ(memory[1].at("tensors").size(), 1u);
    EXPECT_EQ(memory[2].at("tensors")[5], (json{5, wrong.tensors[5].digest}));
    const auto audits = of_kind(all, "audit");
    ASSERT_EQ(audits.size(), 2u);
    EXPECT_EQ(audits[0].at("verdict"), static_cast<int>(Verdict::kPass));
    EXPECT_EQ(audits[1].at("verdict"), static_cast<int>(Verdict::kExact));
    EXPECT_EQ(audits[1].at("note"), cat("base tensor ", wrong.tensors[2].name,
                                        " in memory is not the model's (and 1 more tensors)"));
  }
}

TEST_F(MirrorThreads, HandOnWhatTheMirrorThrows) {
  support::write_text(inputs_.model / "config.json", "{}");
  MirrorThread thread(options_of(inputs_));
  EXPECT_THROW(thread.wait_until_ready(), Error);
  thread.wait_until_it_can_take();  // nobody waits for a thread that has ended
  EXPECT_TRUE(thread.can_take());
  thread.give({});
  EXPECT_THROW(thread.take(), Error);
}

TEST_F(MirrorThreads, HandOnWhatAnAuditThrows) {
  MirrorThread thread(options_of(inputs_));
  thread.wait_until_ready();
  UpdateJob job = next();
  job.base_tensor->name = "no.such.tensor";
  thread.give(std::move(job));
  EXPECT_THROW(for (int i = 0; i < 100; ++i) thread.take(0.5), Error);
}

// Samples of a thousand tokens take seconds in float64; giving up does not wait for them.
TEST_F(MirrorThreads, GiveUpSoonWhereverTheyAre) {
  support::TempFolder folder;
  const mirror::Inputs inputs = make_inputs(folder, "qwen3", {1000, 1000, 1000, 1000}, {900, 900, 900, 900});
  const mirror::Mirror mirror(inputs);
  UpdateJob job;
  job.step = 1;
  job.sample_ids = mirror.batch(1);
  job.adapter = job.m = job.v = job.gradient = flat(mirror.initial().adapter);
  for (const int millis : {0, 1, 100, 400}) {
    MirrorOptions options = options_of(inputs);
    options.free_run = true;
    auto thread = std::make_unique<MirrorThread>(options);
    if (millis > 0) {
      thread->wait_until_ready();
      thread->give(job);
      thread->take(millis * 1e-3);
      std::this_thread::sleep_for(std::chrono::milliseconds(millis));
    }
    const double begin = now_s();
    thread.reset();
    EXPECT_LT(now_s() - begin, 5.0) << "after " << millis << " ms";
  }
}

TEST_F(MirrorThreads, RunFreelyToTheEndAfterTheLastAudit) {
  MirrorOptions options = options_of(inputs_);
  options.free_run = true;
  options.snapshot_every = 3;
  options.snapshot_what = {"gradient"};
  MirrorThread thread(options);
  thread.wait_until_ready();
  thread.give(next());
  thread.close();
  bool stop = false;
  const auto messages = until_done(thread, stop);
  EXPECT_EQ(of_kind(messages, "start").size(), 1u);
  EXPECT_EQ(of_kind(messages, "update").size(), 6u);
  EXPECT_EQ(of_kind(messages, "evaluation").size(), 7u);
  EXPECT_EQ(of_kind(messages, "snapshot").size(), 2u);
  EXPECT_EQ(of_kind(messages, "free_run_ended").size(), 1u);
  EXPECT_EQ(of_kind(messages, "audit").size(), 1u);
}

}  // namespace
}  // namespace tandem::audit_test
