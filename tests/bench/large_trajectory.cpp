#include "tests/bench/large_trajectory.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "io/trajectory.hpp"
#include "src/base/random.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/order.hpp"
#include "src/train/schedule.hpp"

namespace tandem::bench {

namespace {

constexpr std::int64_t kHidden = 1024, kIntermediate = 3072, kQuery = 2048, kKeyValue = 1024, kHeadDim = 128;
constexpr std::int64_t kVocabulary = 151'936, kRank = 16;

struct Module {
  const char* name;
  std::int64_t in, out;
};
constexpr Module kModules[] = {
    {"self_attn.q_proj", kHidden, kQuery},     {"self_attn.k_proj", kHidden, kKeyValue},
    {"self_attn.v_proj", kHidden, kKeyValue},  {"self_attn.o_proj", kQuery, kHidden},
    {"mlp.gate_proj", kHidden, kIntermediate}, {"mlp.up_proj", kHidden, kIntermediate},
    {"mlp.down_proj", kIntermediate, kHidden}};

Config config_of(const LargeTrajectory& options) {
  Config config;
  const auto input = [&](const char* name) { return RunSpec::Input{name, sha256_hex(name)}; };
  config.spec.model = input("model");
  config.spec.train = input("train.jsonl");
  config.spec.held_out = input("held_out.jsonl");
  config.spec.train_updates = options.updates;
  config.spec.seed_order = options.seed;
  resolve(config.spec, options.n_train);
  config.execution.mirror_every = options.audit_every;
  config.execution.observe_every = options.observe_every;
  config.execution.observe_probe = options.probe;
  config.execution.ranks = 2;
  config.execution.device = "cpu";
  config.execution.build = options.stack;
  return config;
}

std::vector<LoadRow> base_tensors(std::int64_t layers) {
  std::vector<LoadRow> rows;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    rows.push_back({name, sha256_hex(name), std::move(shape), "BF16", 0.0, 0.02});
  };
  add("model.embed_tokens.weight", {kVocabulary, kHidden});
  for (std::int64_t l = 0; l < layers; ++l) {
    const std::string layer = cat("model.layers.", l, ".");
    for (const Module& module : kModules) add(cat(layer, module.name, ".weight"), {module.out, module.in});
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      add(cat(layer, norm, ".weight"), {kHidden});
    for (const char* norm : {"q_norm", "k_norm"}) add(cat(layer, "self_attn.", norm, ".weight"), {kHeadDim});
  }
  add("model.norm.weight", {kHidden});
  return rows;
}

struct AdapterTensor {
  std::string name;
  std::pair<std::int64_t, std::int64_t> shape;
};

std::vector<AdapterTensor> adapter_tensors(std::int64_t layers) {
  std::vector<AdapterTensor> tensors;
  for (std::int64_t l = 0; l < layers; ++l)
    for (const Module& module : kModules) {
      const std::string name = cat("model.layers.", l, ".", module.name);
      tensors.push_back({name + ".lora_A.weight", {kRank, module.in}});
      tensors.push_back({name + ".lora_B.weight", {module.out, kRank}});
    }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return tensors;
}

std::vector<RenderRow> samples(const char* what, std::int64_t count, std::uint64_t seed) {
  const RandomStream draws(seed, what);
  std::vector<RenderRow> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto draw = draws.draw(static_cast<std::uint64_t>(i));
    RenderRow row;
    row.digest = sha256_hex(cat(what, seed, ".", i));
    row.n_ids = 40 + static_cast<std::int64_t>(draw % 300);
    row.n_targets = 2 + static_cast<std::int64_t>((draw >> 20) % 100) * row.n_ids / 200;
    row.last_target_id = 151'645;
    rows.push_back(std::move(row));
  }
  return rows;
}

// The first K scored tokens, as if each sample's were its last.
ProbeTokens probe_tokens(const std::vector<RenderRow>& held_out, std::int64_t most) {
  ProbeTokens tokens;
  for (std::size_t i = 0; i < held_out.size(); ++i)
    for (std::int64_t p = held_out[i].n_ids - held_out[i].n_targets; p < held_out[i].n_ids; ++p) {
      if (tokens.size() == most) return tokens;
      tokens.sample.push_back(static_cast<std::int64_t>(i));
      tokens.position.push_back(p);
      tokens.target.push_back(static_cast<std::int64_t>(splitmix64(tokens.target.size()) % 151'643));
    }
  return tokens;
}

// What both stacks of a pair would compute in exact arithmetic, and this stack's own difference from it.
class Values {
 public:
  explicit Values(const LargeTrajectory& options) : options_(options) {}

  // About `typical`, the same in all stacks of the seed; with its difference at update `step`.
  double around(const char* name, std::int64_t step, std::int64_t i, double typical, double spread) const {
    return computed(name, step, i, typical * (1.0 + spread * normal(options_.seed, name, step, i)));
  }
  double computed(const char* name, std::int64_t step, std::int64_t i, double exact) const {
    if (options_.difference == 0.0) return exact;
    const double size = options_.difference * std::sqrt(static_cast<double>(step > 0 ? step : 1));
    return exact * (1.0 + size * normal(options_.stack_seed, name, step, i));
  }
  // [n], all positive.
  std::vector<double> row(const char* name, std::int64_t step, std::int64_t n, double typical) const {
    std::vector<double> values(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      values[static_cast<std::size_t>(i)] = std::abs(around(name, step, i, typical, 0.1));
    return values;
  }

 private:
  // Box and Muller's.
  static double normal(std::uint64_t seed, const char* name, std::int64_t step, std::int64_t i) {
    const RandomStream draws(seed, name);
    const auto at = (static_cast<std::uint64_t>(step) << 32) + 2 * static_cast<std::uint64_t>(i);
    return std::sqrt(-2.0 * std::log(1.0 - draws.unit(at))) *
           std::cos(2.0 * std::numbers::pi * draws.unit(at + 1));
  }

  const LargeTrajectory& options_;
};

class Run {
 public:
  Run(const std::filesystem::path& file, const LargeTrajectory& options)
      : options_(options),
        config_(config_of(options)),
        values_(options),
        tensors_(adapter_tensors(options.layers)),
        base_(base_tensors(options.layers)),
        train_(samples("train", options.n_train, options.seed)),
        held_out_(samples("held_out", options.n_held_out, options.seed)),
        order_(config_.spec.seed_order, options.n_train, config_.spec.batch_global),
        writer_(file, header(), 10.0) {
    writer_.set_load(
        base_, cat(R"({"model_type": "qwen3", "hidden_size": )", kHidden, R"(, "intermediate_size": )",
                   kIntermediate, R"(, "num_attention_heads": )", kQuery / kHeadDim, R"(, "head_dim": )",
                   kHeadDim, R"(, "num_hidden_layers": )", options.layers, "}"));
    writer_.set_render(train_, held_out_, sha256_hex("template"));
    probe_ = probe_tokens(held_out_, options.probe);
    if (options.probe > 0) writer_.set_probe(probe_, options.layers);
    std::vector<std::string> names;
    std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
    for (const AdapterTensor& tensor : tensors_) {
      names.push_back(tensor.name);
      shapes.push_back(tensor.shape);
    }
    writer_.set_adapter(names, shapes);
  }

  void write() {
    if (options_.audit_every > 0) weights_in_memory(0);
    evaluation(0);
    for (std::int64_t t = 1; t <= options_.updates; ++t) {
      update(t);
      if (options_.audit_every > 0 && t % options_.audit_every == 0) audit(t);
      if (t % config_.spec.eval_every == 0 || t == options_.updates) evaluation(t);
    }
    writer_.set_loss_adapter_off(kUntrained, kUntrained);
    if (options_.audit_every > 0) weights_in_memory(options_.updates);
    writer_.finish();
  }

 private:
  static constexpr double kUntrained = 3.672389;  // the study's

  TrajectoryHeader header() const {
    TrajectoryHeader header;
    header.stack = options_.stack;
    header.spec_text = canonical_text(config_.spec);
    header.execution_text = canonical_text(config_.execution);
    header.batch_global = config_.spec.batch_global;
    header.provenance = {{"arithmetic", options_.stack},
                         {"orchestration", "tandem"},
                         {"runtime", "tandem/cpu"},
                         {"hosts", cat("node", options_.stack_seed)},
                         {"start", "2026-01-01T00:00:00Z"},
                         {"end", "2026-01-01T06:00:00Z"},
                         {"ranks", "2"},
                         {"threads", "1"}};
    header.records_observed = options_.observe_every > 0;
    header.records_norms = true;
    header.records_audits = options_.audit_every > 0;
    return header;
  }

  std::int64_t n_tensors() const { return static_cast<std::int64_t>(tensors_.size()); }

  // Falls fast, then slowly.
  static double loss_at(std::int64_t step) {
    const auto t = static_cast<double>(step);
    return 2.1635 + (2.45 - 2.1635) * std::exp(-t / 3000.0) + (kUntrained - 2.45) * std::exp(-t / 60.0);
  }

  void update(std::int64_t t) {
    const auto ids = order_.batch(t);
    UpdateRow row;
    row.step = row.optimizer_step = t;
    for (const std::int64_t id : ids) row.n_targets += train_[static_cast<std::size_t>(id)].n_targets;
    row.n_samples = static_cast<std::int64_t>(ids.size());
    row.loss = std::abs(values_.around("loss", t, 0, loss_at(t), 0.05));
    row.grad_norm = std::abs(values_.around("grad_norm", t, 0, 0.8, 0.3));
    if (options_.observe_every > 0 && t % options_.observe_every == 0) {
      const auto norms = values_.row("tensor_grad_norm", t, n_tensors(), 0.05);
      row.grad_norm = std::sqrt(std::inner_product(norms.begin(), norms.end(), norms.begin(), 0.0));
      writer_.append_observed(t, norms);
    }
    row.clip = clip_factor(row.grad_norm, config_.spec.optim_clip);
    row.lr = learning_rate(config_.spec, t);
    row.checksum = splitmix64(options_.stack_seed + static_cast<std::uint64_t>(t));
    row.adapter_checksum = splitmix64(~row.checksum);
    row.seconds = 2.0;
    row.sample_ids = ids;
    writer_.append_update(row);
  }

  void evaluation(std::int64_t t) {
    EvalRow row;
    row.step = t;
    for (const RenderRow& sample : held_out_) row.n_tokens += sample.n_targets;
    row.nll_sum = values_.around("held_out", t, 0, loss_at(t), 1e-3) * static_cast<double>(row.n_tokens);
    row.loss = row.nll_sum / static_cast<double>(row.n_tokens);
    row.seconds = 60.0;
    // All stacks start from one adapter.
    row.adapter_digest =
        t > 0 ? sha256_hex(cat(options_.stack, options_.stack_seed, t)) : sha256_hex(cat(options_.seed));
    row.host_bytes = 5'000'000'000 + 1'000 * t;
    const std::int64_t k = probe_.size();
    const auto nll = values_.row("probe_nll", t, k, loss_at(t)), logit = values_.row("logit", t, k, 12.0);
    std::vector<std::int64_t> top_id;
    std::vector<double> top_logit;
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t rank = 0; rank < kTopLogits; ++rank) {
        top_id.push_back((i * 131 + rank * 977) % kVocabulary);
        top_logit.push_back(20.0 - static_cast<double>(rank));
      }
    const auto rms = values_.row("rms", t, options_.layers, 3.0);
    auto absmax = rms;
    for (double& value : absmax) value *= 40.0;
    row.probe = {nll, logit, top_id, top_logit, rms, absmax};
    const auto after = [&](const char* name, std::int64_t n, double typical) {
      return t > 0 ? values_.row(name, t, n, typical) : std::vector<double>(static_cast<std::size_t>(n));
    };
    const auto ba = after("ba_norm", n_tensors() / 2, 1.5), change = after("update_norm", n_tensors(), 0.01);
    row.norms = {ba, change};
    writer_.append_eval(row);
  }

  void audit(std::int64_t t) {
    const auto error = values_.row("relative_error", t, n_tensors(), 2e-6);
    const auto step_error = values_.row("optimizer_error", t, n_tensors(), 1e-7);
    std::vector<double> projection = values_.row("projection", t, n_tensors(), 1e-7);
    for (double& value : projection) value += 1.0;
    const std::vector<double> bound(static_cast<std::size_t>(n_tensors()), 1e-5);
    AuditRow row;
    row.step = t;
    row.loss_error = 1e-8;
    row.norm_error = 2e-8;
    row.relative_error = error;
    row.projection = projection;
    row.bound = bound;
    row.optimizer_error = step_error;
    writer_.append_audit(row);
    const auto tensor = (t / options_.audit_every - 1) % static_cast<std::int64_t>(base_.size());
    writer_.append_load_memory(t, tensor, base_[static_cast<std::size_t>(tensor)].digest);
  }

  void weights_in_memory(std::int64_t t) {
    for (std::size_t i = 0; i < base_.size(); ++i)
      writer_.append_load_memory(t, static_cast<std::int64_t>(i), base_[i].digest);
  }

  const LargeTrajectory& options_;
  Config config_;
  Values values_;
  std::vector<AdapterTensor> tensors_;
  std::vector<LoadRow> base_;
  std::vector<RenderRow> train_, held_out_;
  ProbeTokens probe_;
  BatchOrder order_;
  TrajectoryWriter writer_;
};

}  // namespace

void write_large_trajectory(const std::filesystem::path& file, const LargeTrajectory& options) {
  Run(file, options).write();
}

}  // namespace tandem::bench
