// A trajectory made up in memory that is whole and consistent in itself: tests change one thing of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "io/trajectory_reader.hpp"
#include "src/base/random.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem::support {

struct Synthetic {
  std::string stack = "native", arithmetic = "native", precision = "f32", hosts = "host", micro = "1";
  std::int64_t updates = 20, eval_every = 5, n_train = 24, n_held_out = 4, batch = 4;
};

inline Trajectory synthetic(const Synthetic& options = {}) {
  Trajectory t;
  t.path = options.stack + ".h5";
  t.format_version = 1;
  t.stack = options.stack;
  t.complete = true;
  t.spec_text = cat("batch.global = ", options.batch, "\ndata.held_out = \"", sha256_hex("h"),
                    "\"\neval.every = ", options.eval_every,
                    "\nlora.init = none\noptim.clip = 1.0\ntrain.updates = ", options.updates, "\n");
  t.spec_digest = sha256_hex(t.spec_text);
  t.execution_text =
      cat("batch.micro = ", options.micro,
          "\nbuild = \"b\"\ndevice = \"cpu\"\ninstruction_set = \"i\"\nmirror.every = 5\nobserve.every = 1\n",
          "observe.probe = 4\nprecision = \"", options.precision, "\"\nsnapshot.every = 0\n");
  t.execution_digest = sha256_hex(t.execution_text);
  t.provenance = {
      {"arithmetic", options.arithmetic}, {"orchestration", "tandem"},       {"runtime", "cpu"},
      {"hosts", options.hosts},           {"start", "2026-01-01T00:00:00Z"}, {"end", "2026-01-01T01:00:00Z"}};

  auto& load = t.load.emplace();
  load.name = {"lm_head.weight", "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
               "model.norm.weight"};
  for (const std::string& name : load.name) {
    load.digest.push_back(sha256_hex(name));
    load.dtype.emplace_back("F32");
    load.shape.push_back({8, 8});
    load.mean.push_back(0.01);
    load.rms.push_back(name == "model.norm.weight" ? 1.0 : 0.1);
  }
  load.config =
      R"({"hidden_size":8,"intermediate_size":16,"num_attention_heads":2,"head_dim":4,"num_hidden_layers":2,"rope_theta":10000.0})";
  auto& memory = load.memory.emplace();
  for (const std::int64_t step : {std::int64_t{0}, options.updates})
    for (std::size_t i = 0; i < load.name.size(); ++i) {
      memory.step.push_back(step);
      memory.tensor.push_back(static_cast<std::int64_t>(i));
      memory.digest.push_back(load.digest[i]);
    }

  auto& render = t.render.emplace();
  render.n_train = options.n_train;
  for (std::int64_t i = 0; i < options.n_train + options.n_held_out; ++i) {
    render.digest.push_back(sha256_hex(cat("sample ", i)));
    render.n_ids.push_back(10 + i % 3);
    render.n_targets.push_back(4 + i % 2);
    render.last_target_id.push_back(7);
  }
  render.template_digest = sha256_hex("template");

  auto& adapter = t.adapter.emplace();
  adapter.names = {"model.layers.0.self_attn.q_proj.lora_A.weight",
                   "model.layers.0.self_attn.q_proj.lora_B.weight"};
  adapter.shapes = {{2, 8}, {8, 2}};

  const RandomStream random(1, "synthetic");
  auto& u = t.updates.emplace();
  u.rows = options.updates;
  u.batch_global = options.batch;
  auto& o = t.observed.emplace();
  o.rows = options.updates;
  std::int64_t next = 0;
  for (std::int64_t step = 1; step <= options.updates; ++step) {
    const auto i = static_cast<std::uint64_t>(step);
    std::int64_t n = 0;
    for (std::int64_t k = 0; k < options.batch; ++k, ++next) {
      u.sample_ids.push_back(next % options.n_train);
      n += render.n_targets[static_cast<std::size_t>(next % options.n_train)];
    }
    u.step.push_back(step);
    u.optimizer_step.push_back(step);
    u.n_targets.push_back(n);
    u.n_samples.push_back(options.batch);
    u.loss.push_back(3.0 / (1.0 + 0.01 * static_cast<double>(step)) + 0.1 * random.unit(i));
    const double a = step == 1 ? 0.0 : 0.5 + random.unit(1000 + i), b = 1.0 + random.unit(2000 + i);
    o.step.push_back(step);
    o.tensor_grad_norm.insert(o.tensor_grad_norm.end(), {a, b});
    u.grad_norm.push_back(std::sqrt(a * a + b * b));
    u.clip.push_back(std::fmin(1.0, 1.0 / (u.grad_norm.back() + 1e-6)));
    u.lr.push_back(1e-3);
    u.seconds.push_back(0.5);
    u.checksum.push_back(i);
    u.adapter_checksum.push_back(1000 + i);
  }

  auto& e = t.evals.emplace();
  auto& probe = t.probe.emplace();
  auto& act = t.activations.emplace();
  probe.tokens.sample = {0, 0, 1, 2}, probe.tokens.position = {3, 4, 3, 3},
  probe.tokens.target = {5, 6, 5, 5};
  act.n_layers = 2, act.n_modules = 1, act.n_tensors = 2;
  std::int64_t tokens = 0;
  for (std::size_t i = static_cast<std::size_t>(options.n_train); i < render.n_targets.size(); ++i)
    tokens += render.n_targets[i];
  for (std::int64_t step = 0; step <= options.updates; step += options.eval_every) {
    const double loss = 3.5 / (1.0 + 0.02 * static_cast<double>(step));
    e.step.push_back(step);
    e.n_tokens.push_back(tokens);
    e.nll_sum.push_back(loss * static_cast<double>(tokens));
    e.loss.push_back(e.nll_sum.back() / static_cast<double>(tokens));
    e.seconds.push_back(0.1);
    e.adapter_digest.push_back(sha256_hex(cat("adapter ", step)));
    for (int k = 0; k < 4; ++k) {
      probe.nll.push_back(3.0 + 0.1 * k);
      probe.target_logit.push_back(0.5);
      for (int j = 0; j < kTopLogits; ++j)
        probe.topk_id.push_back(j), probe.topk_logit.push_back(1.0 - 0.1 * j);
    }
    act.rms.insert(act.rms.end(), {0.5, 0.8});
    act.absmax.insert(act.absmax.end(), {2.0, 3.0});
    act.ba_norm.push_back(step > 0 ? 0.3 : 0.0);
    act.update_norm.insert(act.update_norm.end(), {step > 0 ? 0.01 : 0.0, step > 0 ? 0.02 : 0.0});
  }
  e.rows = probe.rows = act.rows = static_cast<std::int64_t>(e.step.size());
  e.loss_adapter_off = {e.loss.front(), e.loss.front()};

  auto& audits = t.audits.emplace();
  audits.n_tensors = 2;
  for (std::int64_t step = 5; step <= options.updates; step += 5) {
    audits.step.push_back(step);
    audits.micro_batch.push_back(-1);
    audits.scope.push_back(AuditScope::kBatch);
    audits.loss_error.push_back(1e-8);
    audits.norm_error.push_back(1e-8);
    audits.relative_error.insert(audits.relative_error.end(), {1e-7, 2e-7});
    audits.projection.insert(audits.projection.end(), {1.0, 1.0});
    audits.bound.insert(audits.bound.end(), {1e-6, 1e-6});
    audits.optimizer_error.insert(audits.optimizer_error.end(), {1e-8, 1e-8});
    audits.verdict.push_back(Verdict::kPass);
    audits.note.emplace_back();
  }
  audits.rows = static_cast<std::int64_t>(audits.step.size());
  return t;
}

// A view without its line ends and indents.
inline std::string unwrapped(const std::string& text) {
  std::string out;
  for (const char c : text)
    if ((c != '\n' && c != ' ') || (!out.empty() && out.back() != ' ')) out += c == '\n' ? ' ' : c;
  return out;
}

}  // namespace tandem::support
