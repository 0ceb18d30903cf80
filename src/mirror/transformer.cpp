#include "src/mirror/transformer.hpp"

#include <numeric>

#include "src/mirror/check.hpp"
#include "src/mirror/random.hpp"

namespace tandem::mirror {
namespace {

// A tape of one layer. Its perturbations depend on the layer only, so recomputing it gives the same numbers.
class LayerTape {
 public:
  LayerTape(const Transformer::Pass& pass, std::uint64_t layer) {
    if (pass.rounding) perturbation_.emplace(pass.rounding->unit, splitmix64(pass.rounding->seed) + layer);
    tape_.emplace(perturbation_ ? &*perturbation_ : nullptr);
  }
  Tape& operator*() { return *tape_; }
  Tape* operator->() { return &*tape_; }

 private:
  std::optional<Perturbation> perturbation_;
  std::optional<Tape> tape_;
};

std::vector<Index> predictor_rows(const std::vector<std::int64_t>& scored) {
  std::vector<Index> rows;
  for (const std::int64_t position : scored) {
    check(position >= 1, "token 0 is never scored");
    rows.push_back(position - 1);
  }
  return rows;
}

}  // namespace

Matrix Dropout::mask(const std::string& module, Index tokens, Index channels) const {
  const Draws draws(seed, "dropout." + module);
  const std::uint64_t h = splitmix64(update << 32 | sample);
  Matrix mask(tokens, channels);
  for (Index i = 0; i < mask.size(); ++i)
    mask.data()[i] = unit(draws(h + static_cast<std::uint64_t>(i))) >= p ? 1 / (1 - p) : 0;
  return mask;
}

// One layer on a tape.
class Transformer::LayerPass {
 public:
  struct Trained {
    std::size_t tensor;  // in digest order
    Var value;
  };

  LayerPass(const Transformer& model, const Pass& pass, const RopeTable& table, Tape& tape,
            bool differentiate)
      : model_(model), pass_(pass), table_(table), tape_(tape), differentiate_(differentiate) {}

  Var operator()(const LayerWeights& w, Var x) {
    const double eps = model_.config_.rms_norm_eps;
    x = add(x, attention_block(w, rms_norm(x, w.input_norm, eps)));
    return add(x, feed_forward(w, rms_norm(x, w.post_attention_norm, eps)));
  }

  const std::vector<Trained>& trained() const { return trained_; }

 private:
  Var attention_block(const LayerWeights& w, Var x) {
    const Index heads = model_.config_.heads, kv_heads = model_.config_.kv_heads;
    const Var q = rope(normed_heads(projected(w.q, x), w.q_norm), table_);
    const Var k = rope(normed_heads(projected(w.k, x), w.k_norm), table_);
    const Var v = projected(w.v, x);
    return projected(w.o, attention(q, k, v, heads, kv_heads));
  }

  // SwiGLU (Shazeer 2020): down(silu(gate x) * up x)
  Var feed_forward(const LayerWeights& w, Var x) {
    return projected(w.down, multiply(silu(projected(w.gate, x)), projected(w.up, x)));
  }

  // Qwen3: RMSNorm over each head, one weight for all of them, before the rotation.
  Var normed_heads(Var x, const Row& weight) {
    if (weight.size() == 0) return x;
    const Index d = weight.size(), tokens = x.rows(), channels = x.cols();
    return reshape(rms_norm(reshape(x, tokens * channels / d, d), weight, model_.config_.rms_norm_eps),
                   tokens, channels);
  }

  // W x + b + s B (A x)
  Var projected(const Projection& p, Var x) {
    Var y = frozen_product(x, p.weight);
    if (p.bias.size() > 0) y = add_to_rows(y, p.bias);
    const auto tensor = pass_.adapter ? model_.lora_.find(p.module) : std::nullopt;
    if (!tensor) return y;
    const Var a = adapter_value(*tensor), b = adapter_value(*tensor + 1);
    const Var kept =
        pass_.dropout ? multiply(x, tape_.constant(pass_.dropout->mask(p.module, x.rows(), x.cols()))) : x;
    return add(y, scale(product_transposed(product_transposed(kept, a), b), model_.lora_.scale()));
  }

  Var adapter_value(std::size_t tensor) {
    const AdapterTensor& shape = model_.lora_.tensors()[tensor];
    Matrix value = Eigen::Map<const Matrix>((*pass_.adapter)[tensor].data(), shape.rows, shape.columns);
    if (!differentiate_) return tape_.constant(std::move(value));
    trained_.push_back({tensor, tape_.variable(std::move(value))});
    return trained_.back().value;
  }

  const Transformer& model_;
  const Pass& pass_;
  const RopeTable& table_;
  Tape& tape_;
  bool differentiate_;
  std::vector<Trained> trained_;
};

Transformer::Transformer(const Config& config, const Weights& weights, const Lora& lora,
                         const std::atomic<bool>* cancelled)
    : config_(config),
      weights_(weights),
      lora_(lora),
      cancelled_(cancelled),
      frequencies_(rope_frequencies(config.head_dim, config.rope_theta,
                                    config.rope_scaling ? &*config.rope_scaling : nullptr)) {}

void Transformer::go_on() const {
  if (cancelled_ && *cancelled_) throw Error(ErrorKind::kStopped, "mirror: given up");
}

Matrix Transformer::embed(std::span<const std::int32_t> ids) const {
  Matrix x(static_cast<Index>(ids.size()), config_.hidden_size);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    check(ids[t] >= 0 && ids[t] < config_.vocab_size, "token id ", ids[t], " beyond the vocabulary");
    x.row(static_cast<Index>(t)) = weights_.embedding().widen(ids[t], 1);
  }
  return x;
}

Matrix Transformer::forward(std::span<const std::int32_t> ids, const Pass& pass, const OnLayer& on_layer,
                            std::vector<Matrix>* inputs) const {
  const RopeTable table = rope_table(frequencies_, static_cast<std::int64_t>(ids.size()));
  Matrix x = embed(ids);
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    go_on();
    LayerTape tape(pass, static_cast<std::uint64_t>(layer));
    LayerPass compute(*this, pass, table, *tape, false);
    const Var y = compute(weights_.layers()[static_cast<std::size_t>(layer)], tape->constant(x));
    if (inputs) inputs->push_back(std::move(x));
    x = y.value();
    if (on_layer) on_layer(layer, x);
  }
  return x;
}

Matrix Transformer::residual(std::span<const std::int32_t> ids, const Pass& pass,
                             const OnLayer& on_layer) const {
  return forward(ids, pass, on_layer, nullptr);
}

Matrix Transformer::predictors(const Matrix& residual, const std::vector<std::int64_t>& scored) const {
  Tape tape;
  const Var x = rows(tape.constant(residual), predictor_rows(scored));
  return rms_norm(x, weights_.final_norm(), config_.rms_norm_eps).value();
}

Var Transformer::loss(Var residual, std::span<const std::int32_t> ids,
                      const std::vector<std::int64_t>& scored) const {
  std::vector<std::int64_t> targets;
  for (const std::int64_t position : scored) targets.push_back(ids[static_cast<std::size_t>(position)]);
  const Var x = rms_norm(rows(residual, predictor_rows(scored)), weights_.final_norm(), config_.rms_norm_eps);
  return head_nll(x, weights_.head(), targets);
}

Column Transformer::nll(std::span<const std::int32_t> ids, const std::vector<std::int64_t>& scored,
                        const Pass& pass) const {
  if (scored.empty()) return {};
  LayerTape tape(pass, static_cast<std::uint64_t>(config_.layers));
  return loss(tape->constant(forward(ids, pass, nullptr, nullptr)), ids, scored).value();
}

Column Transformer::nll_with_gradient(std::span<const std::int32_t> ids,
                                      const std::vector<std::int64_t>& scored, const Pass& pass,
                                      Tensors& gradient, std::vector<double>& term_squares) const {
  if (scored.empty()) return {};
  std::vector<Matrix> inputs;
  Matrix last = forward(ids, pass, nullptr, &inputs);
  LayerTape head(pass, static_cast<std::uint64_t>(config_.layers));
  const Var x = head->variable(std::move(last));
  const Var nll = loss(x, ids, scored);
  head->backward(nll, Matrix::Ones(nll.rows(), 1));
  Matrix g = head->gradient(x);

  const RopeTable table = rope_table(frequencies_, static_cast<std::int64_t>(ids.size()));
  for (std::int64_t layer = config_.layers - 1; layer >= 0; --layer) {
    go_on();
    LayerTape tape(pass, static_cast<std::uint64_t>(layer));
    LayerPass compute(*this, pass, table, *tape, true);
    Matrix input = std::move(inputs[static_cast<std::size_t>(layer)]);
    // Nothing before layer 0 is trained.
    const Var in = layer > 0 ? tape->variable(std::move(input)) : tape->constant(std::move(input));
    const Var out = compute(weights_.layers()[static_cast<std::size_t>(layer)], in);
    tape->backward(out, std::move(g));
    for (const auto& trained : compute.trained()) {
      term_squares[trained.tensor] += tape->term_squares(trained.value);
      std::vector<double>& sum = gradient[trained.tensor];
      Eigen::Map<Matrix>(sum.data(), trained.value.rows(), trained.value.cols()) +=
          tape->gradient(trained.value);
    }
    if (layer > 0) g = tape->gradient(in);
  }
  return nll.value();
}

}  // namespace tandem::mirror
