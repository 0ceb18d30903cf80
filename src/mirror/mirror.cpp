#include "src/mirror/mirror.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "src/base/sha256.hpp"
#include "src/mirror/check.hpp"
#include "src/mirror/cost.hpp"
#include "src/mirror/digests.hpp"
#include "src/mirror/optimizer.hpp"
#include "src/mirror/parallel.hpp"
#include "src/mirror/probe.hpp"
#include "src/mirror/random.hpp"
#include "src/mirror/samples.hpp"
#include "src/mirror/transformer.hpp"

namespace tandem::mirror {
namespace {

void expect_digest(const std::string& key, const std::string& in_spec, const std::string& found) {
  if (in_spec != found)
    throw Error(ErrorKind::kInput,
                cat("mirror: ", key, ": the input's digest is ", found, ", the spec's ", in_spec));
}

void expect_both(const char* key, bool in_spec, bool given) {
  if (in_spec != given)
    throw Error(
        ErrorKind::kUsage,
        cat("mirror: ", key, given ? " is given, but not in the spec" : " is in the spec, but not given"));
}

Inputs checked(Inputs inputs, const Spec& spec) {
  if (inputs.threads < 1) throw Error(ErrorKind::kUsage, "mirror: fewer than 1 thread");
  if (inputs.probe < 0) throw Error(ErrorKind::kUsage, "mirror: observe.probe is negative");
  expect_both("data.held_out", spec.data_held_out.has_value(), inputs.held_out.has_value());
  expect_both("lora.init", spec.lora_init.has_value(), inputs.lora_init.has_value());
  expect_digest("model.path", spec.model_path, model_digest(inputs.model));
  expect_digest("data.train", spec.data_train, sha256_file(inputs.train));
  if (inputs.held_out) expect_digest("data.held_out", *spec.data_held_out, sha256_file(*inputs.held_out));
  if (inputs.lora_init) expect_digest("lora.init", *spec.lora_init, peft_digest(*inputs.lora_init));
  return inputs;
}

Config checked(Config config, const Spec& spec) {
  if (spec.data_max_tokens > config.max_position_embeddings)
    throw Error(ErrorKind::kUsage,
                cat("mirror: data.max_tokens = ", spec.data_max_tokens,
                    " is above the model's max_position_embeddings = ", config.max_position_embeddings));
  return config;
}

bool any_scored(const std::vector<Sample>& samples) {
  for (const Sample& sample : samples)
    if (!sample.scored.empty()) return true;
  return false;
}

std::vector<RenderedSample> describe_all(const std::vector<Sample>& samples) {
  std::vector<RenderedSample> described;
  for (const Sample& sample : samples) described.push_back(describe(sample));
  return described;
}

std::optional<Rounding> rounding_of_sample(const std::optional<Rounding>& rounding, std::uint64_t sample) {
  if (!rounding) return std::nullopt;
  return Rounding{rounding->unit, splitmix64(rounding->seed) + splitmix64(sample)};
}

}  // namespace

using OnToken = std::function<void(const ProbeToken&, double nll)>;

struct Mirror::State {
  explicit State(Inputs given)
      : spec(read_spec(given.spec_text)),
        inputs(checked(std::move(given), spec)),
        config(checked(read_config(inputs.model / "config.json"), spec)),
        weights(inputs.model, config),
        lora(spec, weights),
        transformer(config, weights, lora, inputs.cancelled),
        cost(config, weights, lora) {
    Renderer renderer(spec, inputs.model, config.vocab_size);
    train = renderer.read(inputs.train);
    if (!any_scored(train))
      throw Error(ErrorKind::kInput, cat(inputs.train.string(), ": no token is scored"));
    if (inputs.held_out) held_out = renderer.read(*inputs.held_out);
    if (inputs.held_out && !any_scored(held_out))
      throw Error(ErrorKind::kInput, cat(inputs.held_out->string(), ": no token is scored"));
    rendered_train = describe_all(train);
    rendered_held_out = describe_all(held_out);
    template_digest = renderer.template_digest();
    warnings = weights.warnings();
    warnings.insert(warnings.end(), renderer.warnings().begin(), renderer.warnings().end());
    probe_tokens = first_scored_tokens(held_out, inputs.probe);
  }

  // Of the first n held-out samples.
  Evaluation evaluate(std::size_t n, const Tensors* adapter, const std::optional<Rounding>& rounding,
                      const OnToken& each) const;

  void check_update(std::int64_t t) const {
    check(t >= 1 && t <= spec.train_updates, "update ", t, " of ", spec.train_updates);
  }

  Spec spec;
  Inputs inputs;
  Config config;
  Weights weights;
  Lora lora;
  Transformer transformer;
  Cost cost;
  std::vector<Sample> train, held_out;
  std::vector<RenderedSample> rendered_train, rendered_held_out;
  std::string template_digest;
  std::vector<std::string> warnings;
  std::vector<ProbeToken> probe_tokens;
  std::optional<std::pair<std::int64_t, std::vector<std::int64_t>>> order;  // of the epoch last asked for
};

Mirror::Mirror(Inputs inputs) : state_(std::make_unique<State>(std::move(inputs))) {}
Mirror::~Mirror() = default;
Mirror::Mirror(Mirror&&) noexcept = default;
Mirror& Mirror::operator=(Mirror&&) noexcept = default;

const std::vector<AdapterTensor>& Mirror::adapter_tensors() const { return state_->lora.tensors(); }
const std::vector<std::string>& Mirror::modules() const { return state_->lora.modules(); }
const std::vector<RenderedSample>& Mirror::training_samples() const { return state_->rendered_train; }
const std::vector<RenderedSample>& Mirror::held_out_samples() const { return state_->rendered_held_out; }
const std::string& Mirror::template_digest() const { return state_->template_digest; }
std::string Mirror::config_echo() const { return state_->config.echo(); }
std::int64_t Mirror::updates() const { return state_->spec.train_updates; }
std::int64_t Mirror::eval_every() const { return state_->spec.eval_every; }
std::int64_t Mirror::layers() const { return state_->config.layers; }
const std::vector<std::string>& Mirror::warnings() const { return state_->warnings; }
std::vector<std::string> Mirror::tensor_names() const { return state_->weights.names(); }
std::string Mirror::model_digest() const { return state_->spec.model_path; }
LoadedTensor Mirror::load(const std::string& name) const { return state_->weights.describe(name); }
std::string Mirror::memory_digest(const std::string& name) const {
  return state_->weights.memory_digest(name);
}

std::vector<LoadedTensor> Mirror::load() const {
  const auto names = tensor_names();
  std::vector<LoadedTensor> loaded;
  in_order(
      state_->inputs.threads, names.size(), [&](std::size_t i) { return load(names[i]); },
      [&](std::size_t, LoadedTensor tensor) { loaded.push_back(std::move(tensor)); });
  return loaded;
}

std::vector<std::int64_t> Mirror::batch(std::int64_t t) const {
  state_->check_update(t);
  const auto n = static_cast<std::int64_t>(state_->train.size()), global = state_->spec.batch_global;
  // A batch never spans epochs, so an epoch's last one may be short.
  const std::int64_t an_epoch = (n + global - 1) / global;
  const std::int64_t epoch = (t - 1) / an_epoch, first = (t - 1) % an_epoch * global;
  if (!state_->order || state_->order->first != epoch)
    state_->order = {epoch, epoch_order(state_->spec.seed_order, static_cast<std::uint64_t>(epoch), n)};
  const auto& order = state_->order->second;
  return {order.begin() + first, order.begin() + std::min(n, first + global)};
}

double Mirror::lr(std::int64_t t) const {
  state_->check_update(t);
  return learning_rate(state_->spec, t);
}

AdapterState Mirror::initial() const {
  const State& s = *state_;
  Tensors adapter =
      s.inputs.lora_init ? s.lora.imported(*s.inputs.lora_init, s.spec) : s.lora.drawn(s.spec.seed_adapter);
  return {std::move(adapter), s.lora.zeros(), s.lora.zeros(), 0};
}

BatchGradient Mirror::gradient(const Tensors& adapter, std::span<const std::int64_t> sample_ids,
                               std::int64_t t, const std::optional<Rounding>& rounding) const {
  const State& s = *state_;
  s.check_update(t);
  s.lora.check_shapes(adapter);
  for (const std::int64_t id : sample_ids)
    check(id >= 0 && id < static_cast<std::int64_t>(s.train.size()), "no training sample ", id);
  struct Result {
    Column nll;
    Tensors gradient;
    std::vector<double> term_squares;
  };
  const auto compute = [&](std::size_t i) {
    const auto id = static_cast<std::size_t>(sample_ids[i]);
    Transformer::Pass pass{&adapter, std::nullopt, rounding_of_sample(rounding, id)};
    if (s.lora.dropout() > 0)
      pass.dropout = {s.lora.dropout(), s.spec.seed_dropout, static_cast<std::uint64_t>(t), id};
    Result result{{}, s.lora.zeros(), std::vector<double>(adapter.size())};
    result.nll = s.transformer.nll_with_gradient(s.train[id].ids, s.train[id].scored, pass, result.gradient,
                                                 result.term_squares);
    return result;
  };
  BatchGradient sum{0, 0, s.lora.zeros(), std::vector<double>(adapter.size())};
  in_order(s.inputs.threads, sample_ids.size(), compute, [&](std::size_t, const Result& result) {
    for (const double nll : result.nll) sum.nll_sum += nll;
    sum.n_scored += result.nll.size();
    for (std::size_t p = 0; p < sum.gradient.size(); ++p) {
      for (std::size_t i = 0; i < sum.gradient[p].size(); ++i) sum.gradient[p][i] += result.gradient[p][i];
      sum.term_squares[p] += result.term_squares[p];
    }
  });
  return sum;
}

UpdateResult Mirror::step(AdapterState& state, const BatchGradient& batch, std::int64_t t) const {
  state_->check_update(t);
  state_->lora.check_shapes(batch.gradient);
  const double learning_rate = lr(t);
  if (batch.n_scored == 0) return {std::numeric_limits<double>::quiet_NaN(), 0, 0, 1, learning_rate};
  const auto n = static_cast<double>(batch.n_scored);
  Tensors mean = batch.gradient;
  for (auto& tensor : mean)
    for (double& g : tensor) g /= n;
  const double loss = batch.nll_sum / n, norm = total_norm(mean);
  if (!std::isfinite(loss) || !std::isfinite(norm))
    throw Error(ErrorKind::kInput, cat("mirror: update ", t, ": loss ", loss, ", gradient norm ", norm));
  const double clip = clip_factor(norm);
  adamw(state, mean, clip, learning_rate);
  return {loss, batch.n_scored, norm, clip, learning_rate};
}

void Mirror::adamw(AdapterState& state, const Tensors& gradient, double clip, double learning_rate) const {
  const Spec& spec = state_->spec;
  for (const Tensors* tensors :
       {&std::as_const(state.adapter), &std::as_const(state.m), &std::as_const(state.v), &gradient})
    state_->lora.check_shapes(*tensors);
  const AdamW rule{spec.optim_beta1, spec.optim_beta2, spec.optim_eps, spec.optim_weight_decay};
  ++state.steps;
  for (std::size_t p = 0; p < gradient.size(); ++p) {
    std::vector<double> clipped = gradient[p];
    for (double& g : clipped) g *= clip;
    rule.step(state.adapter[p], state.m[p], state.v[p], clipped, learning_rate, state.steps);
  }
}

std::vector<double> Mirror::tensor_norms(const Tensors& tensors) const {
  return update_norms(tensors, state_->lora.zeros());
}

std::vector<double> Mirror::update_norms(const Tensors& after, const Tensors& before) const {
  state_->lora.check_shapes(after);
  state_->lora.check_shapes(before);
  std::vector<double> norms;
  for (std::size_t p = 0; p < after.size(); ++p) {
    double sum = 0;
    for (std::size_t i = 0; i < after[p].size(); ++i)
      sum += (after[p][i] - before[p][i]) * (after[p][i] - before[p][i]);
    norms.push_back(std::sqrt(sum));
  }
  return norms;
}

double Mirror::clip_factor(double norm) const { return mirror::clip_factor(norm, state_->spec.optim_clip); }

Evaluation Mirror::State::evaluate(std::size_t n, const Tensors* adapter,
                                   const std::optional<Rounding>& rounding, const OnToken& each) const {
  if (adapter) lora.check_shapes(*adapter);
  const auto compute = [&](std::size_t i) {
    return transformer.nll(held_out[i].ids, held_out[i].scored,
                           {adapter, std::nullopt, rounding_of_sample(rounding, i)});
  };
  Evaluation sum;
  in_order(inputs.threads, n, compute, [&](std::size_t i, const Column& nll) {
    const Sample& sample = held_out[i];
    for (std::size_t k = 0; k < sample.scored.size(); ++k) {
      const std::int64_t position = sample.scored[k];
      const double value = nll(static_cast<Index>(k));
      sum.nll_sum += value;
      if (each)
        each({static_cast<std::int64_t>(i), position, sample.ids[static_cast<std::size_t>(position)]}, value);
    }
    sum.n_tokens += nll.size();
  });
  return sum;
}

Evaluation Mirror::evaluate(const Tensors* adapter, const OnToken& each) const {
  return state_->evaluate(state_->held_out.size(), adapter, std::nullopt, each);
}

Evaluation Mirror::evaluate_first(std::int64_t samples, const Tensors* adapter,
                                  const std::optional<Rounding>& rounding) const {
  check(samples >= 0 && samples <= static_cast<std::int64_t>(state_->held_out.size()), "no ", samples,
        " held-out samples");
  return state_->evaluate(static_cast<std::size_t>(samples), adapter, rounding, nullptr);
}

const std::vector<ProbeToken>& Mirror::probe_tokens() const { return state_->probe_tokens; }

Probe Mirror::probe(const Tensors& adapter) const {
  const State& s = *state_;
  s.lora.check_shapes(adapter);
  return run_probe(s.transformer, s.weights, s.lora, s.held_out, s.probe_tokens, adapter, s.inputs.threads);
}

std::string Mirror::adapter_digest(const Tensors& adapter) const { return mirror::adapter_digest(adapter); }
std::uint64_t Mirror::adapter_checksum(const Tensors& adapter) const {
  return mirror::adapter_checksum(adapter);
}

double Mirror::gradient_flops(std::int64_t n_ids, std::int64_t n_scored) const {
  return state_->cost.gradient(n_ids, n_scored);
}

double Mirror::update_flops(std::int64_t t) const {
  double sum = 0;
  for (const std::int64_t id : batch(t)) {
    const RenderedSample& sample = state_->rendered_train[static_cast<std::size_t>(id)];
    sum += gradient_flops(sample.n_ids, sample.n_targets);
  }
  return sum;
}

double Mirror::evaluation_flops() const {
  return evaluation_flops(static_cast<std::int64_t>(state_->held_out.size()));
}

double Mirror::evaluation_flops(std::int64_t samples) const {
  double sum = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(samples); ++i) {
    const RenderedSample& sample = state_->rendered_held_out[i];
    if (sample.n_targets > 0) sum += state_->cost.forward(sample.n_ids, sample.n_targets);
  }
  return sum;
}

double Mirror::flops_per_second() const {
  const State& s = *state_;
  // The scored sample of median length.
  std::vector<std::pair<std::int64_t, std::size_t>> lengths;
  for (std::size_t i = 0; i < s.train.size(); ++i)
    if (!s.train[i].scored.empty()) lengths.emplace_back(s.rendered_train[i].n_ids, i);
  const auto median = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), median, lengths.end());
  const Sample& sample = s.train[median->second];

  Config one = s.config;
  one.layers = 1;
  const Transformer layer(one, s.weights, s.lora, s.inputs.cancelled);
  const double flops = s.cost.of_one_layer(s.config.layers)
                           .gradient(median->first, static_cast<std::int64_t>(sample.scored.size()));
  const Tensors adapter = s.lora.drawn(s.spec.seed_adapter);
  Tensors gradient = s.lora.zeros();
  std::vector<double> term_squares(adapter.size());
  return operations_per_second(flops, [&] {
    layer.nll_with_gradient(sample.ids, sample.scored, {&adapter, std::nullopt, std::nullopt}, gradient,
                            term_squares);
  });
}

}  // namespace tandem::mirror
