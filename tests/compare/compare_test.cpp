// Differences planted in a made-up trajectory: each is named at its level and place, and nothing that lacks
// passes.
#include "src/compare/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/compare/checks.hpp"
#include "src/compare/view.hpp"
#include "tests/compare/synthetic.hpp"

namespace tandem {
namespace {

using support::Synthetic;
using support::synthetic;
using Conclusion = Comparison::Conclusion;

Comparison compared(const Trajectory& a, const Trajectory& b, bool across_specs = false) {
  const Trajectory both[] = {a, b};
  return compare(both, {.across_specs = across_specs});
}

// Another stack that rounds otherwise: numbers a little off.
Trajectory other_stack() {
  Trajectory t = synthetic({.stack = "mirror", .arithmetic = "mirror", .precision = "f64", .micro = "1"});
  for (auto* column : {&t.updates->loss, &t.updates->grad_norm, &t.probe->nll, &t.activations->rms})
    for (std::size_t i = 0; i < column->size(); ++i)
      (*column)[i] *= 1 + 1e-8 * std::sin(static_cast<double>(i));
  for (std::size_t i = 0; i < t.observed->step.size(); ++i)
    t.observed->tensor_grad_norm[2 * i + 1] *= 1 + 1e-8;
  for (std::size_t i = 0; i < t.updates->step.size(); ++i) {
    const double a = t.observed->tensor_grad_norm[2 * i], b = t.observed->tensor_grad_norm[2 * i + 1];
    t.updates->grad_norm[i] = std::sqrt(a * a + b * b);
    t.updates->clip[i] = std::fmin(1.0, 1.0 / (t.updates->grad_norm[i] + 1e-6));
    t.updates->adapter_checksum[i] += 7;
    t.updates->checksum[i] = 0;
  }
  return t;
}

std::string text_of(const Comparison& c) {
  std::ostringstream out;
  write_view(c, {.all = true}, out);
  return support::unwrapped(out.str());
}

TEST(Compare, TwoRunsOfOneExecutionClassAreComparedToTheBit) {
  const Comparison found = compared(synthetic(), synthetic());
  EXPECT_TRUE(found.same_bits);
  EXPECT_EQ(found.conclusion, Conclusion::kPass) << text_of(found);
  Trajectory b = synthetic();
  b.updates->loss[16] = std::nextafter(b.updates->loss[16], 9.0);
  const Comparison one = compared(synthetic(), b);
  EXPECT_EQ(one.conclusion, Conclusion::kDisagree);
  EXPECT_EQ(one.observations[static_cast<std::size_t>(one.first)].update, 17);
}

TEST(Compare, OneExecutionClassPartsNowhereInAnyEvaluation) {
  const std::pair<const char*, std::function<void(Trajectory&)>> changes[] = {
      {"/activation/rms", [](Trajectory& t) { t.activations->rms[7] += 1e-9; }},
      {"/activation/absmax", [](Trajectory& t) { t.activations->absmax[7] += 1e-9; }},
      {"/probe/nll", [](Trajectory& t) { t.probe->nll[13] += 1e-9; }},
      {"/probe/target_logit", [](Trajectory& t) { t.probe->target_logit[13] += 1e-9; }},
      {"/probe/topk_logit", [](Trajectory& t) { t.probe->topk_logit[97] += 1e-9; }},
      {"/probe/topk_id", [](Trajectory& t) { ++t.probe->topk_id[97]; }},
  };
  for (const auto& [what, change] : changes) {
    Trajectory b = synthetic();
    change(b);
    const Comparison found = compared(synthetic(), b);
    ASSERT_GE(found.first, 0) << what;
    EXPECT_EQ(found.observations[static_cast<std::size_t>(found.first)].update, 15) << what;
  }
  Trajectory b = synthetic();
  b.probe->topk_id[1] = 30;
  const Comparison untrained = compared(synthetic(), b);
  ASSERT_GE(untrained.first, 0);
  EXPECT_EQ(untrained.observations[static_cast<std::size_t>(untrained.first)].update, 0);
  Trajectory c = synthetic();
  c.load->config.replace(c.load->config.find("head_dim"), 8, "heap_dim");
  EXPECT_EQ(compared(synthetic(), c).conclusion, Conclusion::kDisagree);
}

TEST(Compare, TwoStacksThatOnlyRoundOtherwisePass) {
  const Comparison found = compared(synthetic(), other_stack());
  EXPECT_FALSE(found.same_bits);
  EXPECT_GE(found.horizon, 2);
  EXPECT_EQ(found.conclusion, Conclusion::kPass) << text_of(found);
  EXPECT_NE(text_of(found).find("sees from"), std::string::npos);
}

struct Planted {
  std::string what;
  std::function<void(Trajectory&)> plant;
  int level;
  Outcome verdict;
  std::string name, place;
  std::int64_t update = -1;
};

std::vector<Planted> planted() {
  using T = Trajectory;
  return {
      {"an operator above its bound",
       [](T& t) {
         t.ops = T::Ops{{"rope", "softmax"}, {0.5e-7, 3e-7}, {1e-7, 2e-7}};
       },
       1, Outcome::kBound, "operators", "softmax"},
      {"an operator that is not a number",
       [](T& t) {
         t.ops = T::Ops{{"rope"}, {NAN}, {1e-7}};
       },
       1, Outcome::kBound, "operators", "rope"},
      {"a base tensor's bytes",
       [](T& t) {
         t.load->digest[2] = sha256_hex("x");
         t.load->dtype[2] = "F32";
       },
       2, Outcome::kExact, "base tensors", "q_proj.weight: other bytes"},
      {"a base tensor's shape",
       [](T& t) {
         t.load->shape[2] = {4, 16};
       },
       2, Outcome::kExact, "base tensors", "q_proj.weight: shape [8, 8] in A, [4, 16] in B"},
      {"a base tensor's dtype", [](T& t) { t.load->dtype[3] = "BF16"; }, 2, Outcome::kExact, "base tensors",
       "model.norm.weight: dtype"},
      {"a tensor more", [](T& t) { t.load->name[2] = "other"; }, 2, Outcome::kExact, "base tensors",
       "is in A alone"},
      {"a base tensor's mean", [](T& t) { t.load->mean[0] *= 1 + 1e-9; }, 2, Outcome::kBound, "means and rms",
       "lm_head.weight"},
      {"rope_theta",
       [](T& t) {
         t.load->config.replace(t.load->config.find("10000.0"), 7, "500000.");
         t.load->config.insert(t.load->config.size() - 1, "0");
       },
       2, Outcome::kExact, "configuration", "rope_theta 10000.0 in A"},
      {"weights in memory", [](T& t) { t.load->memory->digest[1] = sha256_hex("y"); }, 2, Outcome::kExact,
       "base weights in memory", "B, model.embed_tokens.weight after update 0: not the file's values", 0},
      {"weights that change in memory",
       [](T& t) {
         t.load->memory->step[4] = 9;
         t.load->memory->tensor[4] = 0;
         t.load->memory->digest[4] = sha256_hex("z");
       },
       2, Outcome::kExact, "base weights in memory", "after update 9", 9},
      {"a training sample's ids", [](T& t) { t.render->digest[5] = sha256_hex("x"); }, 3, Outcome::kExact,
       "samples", "training sample 5"},
      {"a held-out sample's ids", [](T& t) { t.render->digest[25] = sha256_hex("x"); }, 3, Outcome::kExact,
       "samples", "held-out sample 1"},
      {"the last scored token", [](T& t) { t.render->last_target_id[3] = 8; }, 3, Outcome::kExact,
       "last scored token", "training sample 3: 7 in A, 8 in B"},
      {"the template", [](T& t) { t.render->template_digest = sha256_hex("chatml"); }, 3, Outcome::kExact,
       "template", ""},
      {"probed tokens", [](T& t) { t.probe->tokens.position[1] = 5; }, 3, Outcome::kExact,
       "tokens of the probe", "other tokens"},
      {"an untrained activation", [](T& t) { t.activations->rms[1] *= 1 + 1e-3; }, 1, Outcome::kBound,
       "untrained model's activations", "after layer 1, rms", 0},
      {"an untrained logit", [](T& t) { t.probe->topk_logit[8] += 1e-2; }, 1, Outcome::kBound,
       "untrained model's logits", "held-out sample 0, token 4", 0},
      {"an untrained token's loss", [](T& t) { t.probe->nll[2] += 1e-2; }, 1, Outcome::kBound,
       "untrained model's tokens", "held-out sample 1, token 3", 0},
      {"the untrained loss",
       [](T& t) {
         t.evals->loss[0] += 1e-2;
         t.evals->nll_sum[0] = t.evals->loss[0] * static_cast<double>(t.evals->n_tokens[0]);
       },
       1, Outcome::kBound, "untrained held-out loss", "", 0},
      {"the base model at the end", [](T& t) { t.evals->loss_adapter_off[1] += 1e-2; }, 1, Outcome::kBound,
       "held-out loss without adapter", "at the end", 0},
      {"the initial adapter", [](T& t) { t.evals->adapter_digest[0] = sha256_hex("x"); }, 4, Outcome::kExact,
       "initial adapter", "", 0},
      {"the order of samples", [](T& t) { std::swap(t.updates->sample_ids[9], t.updates->sample_ids[10]); },
       4, Outcome::kExact, "order of samples", "update 3, position 1: sample 9 in A, 10 in B", 3},
      {"a sample twice", [](T& t) { t.updates->sample_ids[9] = t.updates->sample_ids[7]; }, 4,
       Outcome::kExact, "order of samples", "update 3", 3},
      {"a count", [](T& t) { ++t.updates->n_targets[11]; }, 4, Outcome::kExact,
       "scored tokens of each update", "update 12", 12},
      {"a learning rate", [](T& t) { t.updates->lr[13] *= 1 + 1e-14; }, 4, Outcome::kBound, "learning rate",
       "update 14", 14},
      {"an optimiser step",
       [](T& t) {
         for (std::size_t i = 9; i < 20; ++i) --t.updates->optimizer_step[i];
       },
       4, Outcome::kExact, "optimiser steps", "update 10", 10},
      {"a loss", [](T& t) { t.updates->loss[0] *= 1 + 1e-3; }, 4, Outcome::kBound, "loss of each update",
       "update 1", 1},
      {"a loss that is none", [](T& t) { t.updates->loss[17] = NAN; }, 4, Outcome::kExact,
       "is a number in both", "update 18", 18},
      {"a gradient's norm",
       [](T& t) {
         t.updates->grad_norm[0] *= 1 + 1e-3;
         t.observed->tensor_grad_norm[1] *= 1 + 1e-3;
         t.updates->clip[0] = 1 / (t.updates->grad_norm[0] + 1e-6);
       },
       4, Outcome::kBound, "gradient norm", "update 1", 1},
      {"a tensor's norm against the whole", [](T& t) { t.observed->tensor_grad_norm[31] *= 1.01; }, 4,
       Outcome::kBound, "norm of its tensors' norms", "update 16", 16},
      {"a gradient of A at update 1", [](T& t) { t.observed->tensor_grad_norm[0] = 1e-12; }, 4,
       Outcome::kExact, "gradient of A is 0", "lora_A", 1},
      {"a clip factor", [](T& t) { t.updates->clip[18] *= 1 + 1e-9; }, 4, Outcome::kBound,
       "clip factor of its own norm", "update 19", 19},
      {"an evaluation's count", [](T& t) { ++t.evals->n_tokens[2]; }, 4, Outcome::kExact, "held-out tokens",
       "after update 10", 10},
      {"an evaluation without adapter",
       [](T& t) {
         t.evals->loss[3] = t.evals->loss_adapter_off[0];
         t.evals->nll_sum[3] = t.evals->nll_sum[0];
       },
       4, Outcome::kExact, "adapter takes part", "after update 15", 15},
      {"an evaluation's sum", [](T& t) { t.evals->nll_sum[2] *= 1.1; }, 4, Outcome::kBound, "sum over count",
       "after update 10", 10},
      {"a skipped evaluation", [](T& t) { t.evals->step[2] = 11; }, 4, Outcome::kExact,
       "steps of the evaluations", "after update 10 is in A alone", 10},
      {"an audited gradient",
       [](T& t) {
         t.audits->relative_error[3] = 1e-3;
         t.audits->projection[3] = 1.001;
         t.audits->verdict[1] = Verdict::kCalibrated;
         t.audits->note[1] = "B: gradient's relative error";
       },
       4, Outcome::kCalibrated, "audited gradients",
       "update 10, model.layers.0.self_attn.q_proj.lora_B.weight: d = 0.001, s = 1.001", 10},
      {"an audited step", [](T& t) { t.audits->optimizer_error[4] = 0.1; }, 4, Outcome::kBound,
       "audited AdamW steps", "update 15, model.layers.0.self_attn.q_proj.lora_A.weight", 15},
      {"an audited state",
       [](T& t) {
         t.audits->verdict[2] = Verdict::kExact;
         t.audits->note[2] = "adapter or moments are not what the update before left; more";
       },
       4, Outcome::kExact, "audits' verdicts",
       "update 15: adapter or moments are not what the update before left", 15},
      {"an audited base tensor",
       [](T& t) {
         t.audits->verdict[2] = Verdict::kExact;
         t.audits->note[2] = "base tensor x in memory is not the model's";
       },
       2, Outcome::kExact, "audits' verdicts", "base tensor x", 15},
      {"an audit's threshold that is none",
       [](T& t) {
         t.audits->relative_error[2] = 1e-3;
         t.audits->bound[3] = NAN;
       },
       4, Outcome::kCalibrated, "audited gradients", "update 10, model.layers.0", 10},
      {"an audit's threshold that lets everything pass", [](T& t) { t.audits->bound[2] = INFINITY; }, 4,
       Outcome::kCalibrated, "audited gradients", "update 10, model.layers.0", 10},
      {"a text of the file", [](T& t) { t.execution_text.insert(0, "a = 1\n"); }, 2, Outcome::kExact,
       "its texts are those of their digests", "/execution"},
      {"an id among the largest logits", [](T& t) { t.probe->topk_id[9] = 40; }, 1, Outcome::kBound,
       "tokens with the untrained model's largest logits", "held-out sample 0, token 4, id", 0},
      {"an observation of another update", [](T& t) { t.observed->step[19] = 21; }, 4, Outcome::kExact,
       "observed updates", "update 21", 21},
      {"an activation that is none", [](T& t) { t.activations->rms[5] = NAN; }, 4, Outcome::kExact,
       "its numbers are finite", "update 10, /activation/rms", 10},
      {"a probed token that is none", [](T& t) { t.probe->nll[13] = INFINITY; }, 4, Outcome::kExact,
       "its numbers are finite", "update 15, /probe/nll", 15},
      {"an evaluation that is none", [](T& t) { t.evals->loss[3] = t.evals->nll_sum[3] = NAN; }, 4,
       Outcome::kExact, "its numbers are finite", "update 15, /eval/nll_sum", 15},
  };
}

TEST(Compare, NamesEveryPlantedDifferenceAtItsLevelAndPlace) {
  const Trajectory a = synthetic();
  for (const Planted& p : planted()) {
    SCOPED_TRACE(p.what);
    Trajectory b = other_stack();
    p.plant(b);
    const Comparison found = compared(a, b);
    EXPECT_EQ(found.conclusion, Conclusion::kDisagree) << text_of(found);
    if (found.first < 0) continue;
    const Observation& first = found.observations[static_cast<std::size_t>(found.first)];
    EXPECT_EQ(level_of(first.stage), p.level) << first.name << ": " << first.place;
    EXPECT_STREQ(name_of(first.outcome), name_of(p.verdict)) << first.name;
    EXPECT_NE(first.name.find(p.name), std::string::npos) << first.name;
    EXPECT_NE(first.place.find(p.place), std::string::npos) << first.place;
    EXPECT_EQ(first.update, p.update) << first.name << ": " << first.place;
  }
}

TEST(Compare, WhatFollowsFromAnEarlierLevelIsNotTheFirst) {
  Trajectory b = other_stack();
  b.render->digest[0] = sha256_hex("x");  // another rendering
  b.evals->loss[0] += 0.1;                // and what it does to the untrained loss
  b.updates->loss[0] += 0.1;
  const Comparison found = compared(synthetic(), b);
  EXPECT_EQ(level_of(found.observations[static_cast<std::size_t>(found.first)].stage), 3);
  EXPECT_NE(text_of(found).find("follows from level 3"), std::string::npos) << text_of(found);
}

struct Lacking {
  std::string what;
  std::function<void(Trajectory&)> remove;
};

TEST(Compare, WhatLacksNeverPasses) {
  using T = Trajectory;
  const Lacking lacking[] = {
      {"/load", [](T& t) { t.load.reset(); }},
      {"/load/digest", [](T& t) { t.load->digest.clear(); }},
      {"/load/shape", [](T& t) { t.load->shape.clear(); }},
      {"/load/dtype", [](T& t) { t.load->dtype.clear(); }},
      {"/load/mean", [](T& t) { t.load->mean.clear(); }},
      {"/load/rms", [](T& t) { t.load->rms.clear(); }},
      {"/load/config", [](T& t) { t.load->config.clear(); }},
      {"/render", [](T& t) { t.render.reset(); }},
      {"/render/digest", [](T& t) { t.render->digest.clear(); }},
      {"/render/n_ids", [](T& t) { t.render->n_ids.clear(); }},
      {"/render/n_targets", [](T& t) { t.render->n_targets.clear(); }},
      {"/render/last_target_id", [](T& t) { t.render->last_target_id.clear(); }},
      {"/render/template_digest", [](T& t) { t.render->template_digest.clear(); }},
      {"/adapter", [](T& t) { t.adapter.reset(); }},
      {"/update", [](T& t) { t.updates.reset(); }},
      {"/update/step", [](T& t) { t.updates->step.clear(); }},
      {"/update/loss", [](T& t) { t.updates->loss.clear(); }},
      {"/update/grad_norm", [](T& t) { t.updates->grad_norm.clear(); }},
      {"/update/clip", [](T& t) { t.updates->clip.clear(); }},
      {"/update/lr", [](T& t) { t.updates->lr.clear(); }},
      {"/update/n_targets", [](T& t) { t.updates->n_targets.clear(); }},
      {"/update/n_samples", [](T& t) { t.updates->n_samples.clear(); }},
      {"/update/optimizer_step", [](T& t) { t.updates->optimizer_step.clear(); }},
      {"/update/sample_ids",
       [](T& t) {
         t.updates->sample_ids.clear();
         t.updates->batch_global = 0;
       }},
      {"/observed", [](T& t) { t.observed.reset(); }},
      {"/observed/tensor_grad_norm", [](T& t) { t.observed->tensor_grad_norm.clear(); }},
      {"/eval", [](T& t) { t.evals.reset(); }},
      {"/eval/step", [](T& t) { t.evals->step.clear(); }},
      {"/eval/loss", [](T& t) { t.evals->loss.clear(); }},
      {"/eval/n_tokens", [](T& t) { t.evals->n_tokens.clear(); }},
      {"/eval/nll_sum", [](T& t) { t.evals->nll_sum.clear(); }},
      {"/eval/adapter_digest", [](T& t) { t.evals->adapter_digest.clear(); }},
      {"/eval/loss_adapter_off", [](T& t) { t.evals->loss_adapter_off.clear(); }},
      {"/probe", [](T& t) { t.probe.reset(); }},
      {"/probe/nll", [](T& t) { t.probe->nll.clear(); }},
      {"/probe/topk_logit", [](T& t) { t.probe->topk_logit.clear(); }},
      {"/activation", [](T& t) { t.activations.reset(); }},
      {"/activation/rms",
       [](T& t) {
         t.activations->rms.clear();
         t.activations->n_layers = 0;
       }},
      {"/activation/ba_norm",
       [](T& t) {
         t.activations->ba_norm.clear();
         t.activations->n_modules = 0;
       }},
      {"/activation/update_norm",
       [](T& t) {
         t.activations->update_norm.clear();
         t.activations->n_tensors = 0;
       }},
      {"/execution", [](T& t) { t.execution_text.clear(); }},
      {"the last updates",
       [](T& t) {
         t.updates->rows = 10;
         for (auto* c :
              {&t.updates->step, &t.updates->optimizer_step, &t.updates->n_targets, &t.updates->n_samples})
           c->resize(10);
         for (auto* c : {&t.updates->loss, &t.updates->grad_norm, &t.updates->clip, &t.updates->lr,
                         &t.updates->seconds})
           c->resize(10);
         t.updates->checksum.resize(10), t.updates->adapter_checksum.resize(10),
             t.updates->sample_ids.resize(40);
       }},
      {"/probe/topk_id", [](T& t) { t.probe->topk_id.clear(); }},
      {"the last row of /probe",
       [](T& t) {
         const std::size_t n = static_cast<std::size_t>(--t.probe->rows) * t.probe->tokens.sample.size();
         t.probe->nll.resize(n), t.probe->target_logit.resize(n);
         t.probe->topk_id.resize(n * kTopLogits), t.probe->topk_logit.resize(n * kTopLogits);
       }},
      {"/probe/sample", [](T& t) { t.probe->tokens.sample.clear(); }},
      {"/observed/step", [](T& t) { t.observed->step.clear(); }},
      {"the last observation",
       [](T& t) {
         t.observed->rows = 19, t.observed->step.resize(19), t.observed->tensor_grad_norm.resize(38);
       }},
      {"/audit/verdict", [](T& t) { t.audits->verdict.clear(); }},
      {"/audit/bound", [](T& t) { t.audits->bound.clear(); }},
      {"an audit", [](T& t) { t.audits->step[1] = 5; }},
      {"a reading of weights in memory", [](T& t) { t.load->memory->tensor[1] = 0; }},
      {"/spec/digest", [](T& t) { t.spec_digest.clear(); }},
      {"/provenance/arithmetic", [](T& t) { t.provenance.erase("arithmetic"); }},
      {"the last evaluation",
       [](T& t) {
         const std::size_t n = t.evals->step.size() - 1;
         t.evals->step.resize(n), t.evals->n_tokens.resize(n), t.evals->loss.resize(n),
             t.evals->nll_sum.resize(n), t.evals->adapter_digest.resize(n);
       }},
  };
  for (const Lacking& l : lacking)
    for (const bool in_a : {false, true}) {
      SCOPED_TRACE(l.what);
      Trajectory a = synthetic(), b = other_stack();
      l.remove(in_a ? a : b);
      const Comparison found = compared(a, b);
      EXPECT_NE(found.conclusion, Conclusion::kPass) << text_of(found);
      Trajectory c = synthetic(), d = synthetic();
      l.remove(in_a ? c : d);
      EXPECT_NE(compared(c, d).conclusion, Conclusion::kPass) << "to the bit";
    }
}

TEST(Compare, WhatBothLackIsNoPassWhereEveryRunHasIt) {
  Trajectory a = synthetic(), b = other_stack();
  for (Trajectory* t : {&a, &b}) t->render.reset();
  EXPECT_EQ(compared(a, b).conclusion, Conclusion::kIncomplete);
  a = synthetic(), b = other_stack();
  for (Trajectory* t : {&a, &b}) t->updates->lr.clear();
  EXPECT_EQ(compared(a, b).conclusion, Conclusion::kIncomplete);
  const std::function<void(Trajectory&)> removals[] = {
      [](Trajectory& t) { t.observed.reset(); }, [](Trajectory& t) { t.probe.reset(); },
      [](Trajectory& t) { t.activations.reset(); },
      [](Trajectory& t) { t.observed->tensor_grad_norm.clear(); },
      [](Trajectory& t) {
        t.execution_text.replace(t.execution_text.find("snapshot.every = 0"), 18, "snapshot.every = 4");
        t.execution_digest = sha256_hex(t.execution_text);
      }};
  for (const auto& remove : removals) {
    a = synthetic(), b = other_stack();
    for (Trajectory* t : {&a, &b}) remove(*t);
    EXPECT_EQ(compared(a, b).conclusion, Conclusion::kIncomplete);
  }
}

TEST(Compare, ARunShorterThanAnIntervalLacksNothing) {
  Trajectory a = synthetic(), b = other_stack();
  for (Trajectory* t : {&a, &b}) {
    for (const auto& [from, to] : {std::pair("observe.every = 1", "observe.every = 50"),
                                   std::pair("snapshot.every = 0", "snapshot.every = 50"),
                                   std::pair("mirror.every = 5", "mirror.every = 50")})
      t->execution_text.replace(t->execution_text.find(from), std::string(from).size(), to);
    t->execution_digest = sha256_hex(t->execution_text);
    t->observed = Trajectory::Observed{};
    t->audits = Trajectory::Audits{};
  }
  EXPECT_EQ(compared(a, b).conclusion, Conclusion::kPass) << text_of(compared(a, b));
}

TEST(Compare, NativeRunsThatAuditHoldTheirAudits) {
  Trajectory a = synthetic(), b = other_stack();
  a.audits.reset();
  EXPECT_EQ(compared(a, b).conclusion, Conclusion::kIncomplete);
  a = synthetic(), b = other_stack();
  a.load->memory.reset();
  EXPECT_EQ(compared(a, b).conclusion, Conclusion::kIncomplete);
  a = synthetic(), b = other_stack();
  b.audits.reset(), b.load->memory.reset();  // a mirror's file
  EXPECT_EQ(compared(a, b).conclusion, Conclusion::kPass) << text_of(compared(a, b));
}

TEST(Compare, WhatTheExecutionExplainsIsNotMissed) {
  Trajectory b = other_stack();
  b.probe.reset();
  b.activations->n_layers = 0, b.activations->rms.clear(), b.activations->absmax.clear();
  b.execution_text.replace(b.execution_text.find("observe.probe = 4"), 17, "observe.probe = 0");
  b.execution_digest = sha256_hex(b.execution_text);
  const Comparison found = compared(synthetic(), b);
  EXPECT_EQ(found.conclusion, Conclusion::kPass) << text_of(found);
  EXPECT_NE(text_of(found).find("it ran with observe.probe = 0"), std::string::npos);
}

TEST(Compare, AnotherSpecNeverPasses) {
  Trajectory b = other_stack();
  b.spec_text += "zeta = 1\n";
  b.spec_digest = sha256_hex(b.spec_text);
  const Comparison refused = compared(synthetic(), b);
  EXPECT_EQ(refused.conclusion, Conclusion::kIncomplete);
  EXPECT_TRUE(refused.observations.empty());
  EXPECT_NE(refused.why.find("zeta: (not there) / 1"), std::string::npos) << refused.why;
  const Comparison across = compared(synthetic(), b, true);
  EXPECT_EQ(across.conclusion, Conclusion::kIncomplete);
  EXPECT_GT(across.observations.size(), 20u);
  b = other_stack();
  b.spec_text.clear();
  EXPECT_NE(compared(synthetic(), b).conclusion, Conclusion::kPass);
}

TEST(Compare, SaysWhatAPairSharesAndWhereItIsIndependent) {
  const std::string text = text_of(compared(synthetic(), other_stack()));
  EXPECT_NE(text.find("arithmetic (native / mirror); shared, so that its faults show in neither: "
                      "orchestration (tandem), runtime (cpu)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("not comparable: the runs overlapped in time"), std::string::npos) << text;
}

TEST(Compare, TimingsOfOtherMachinesAreNotCompared) {
  Trajectory b = other_stack();
  b.provenance["hosts"] = "another";
  EXPECT_EQ(compared(synthetic(), b).figures.timings, "other machines: host and another");
  b = other_stack();
  b.provenance["start"] = "2026-01-02T00:00:00Z", b.provenance["end"] = "2026-01-02T01:00:00Z";
  EXPECT_EQ(compared(synthetic(), b).figures.timings, "");
  EXPECT_DOUBLE_EQ(compared(synthetic(), b).figures.seconds_a, 10.0);
}

}  // namespace
}  // namespace tandem
