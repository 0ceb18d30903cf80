#include "src/audit/free_run.hpp"

#include <cmath>
#include <optional>
#include <utility>

#include "src/base/clock.hpp"

namespace tandem {

FreeRun::FreeRun(const mirror::Mirror& mirror, Options options, std::shared_ptr<const State> begin)
    : mirror_(mirror),
      options_(std::move(options)),
      state_(begin ? std::move(begin) : std::make_shared<const State>()) {}

std::vector<MirrorMessage> FreeRun::advance() {
  messages_.clear();
  auto state = std::make_shared<State>(*state_);
  if (state->next == 0)
    begin(*state);
  else if (state->next <= mirror_.updates())
    update(*state);
  else
    end(*state);
  ++state->next;
  state_ = std::move(state);
  return std::exchange(messages_, {});
}

void FreeRun::begin(State& state) {
  post(start_message(mirror_));
  state.adapter = mirror_.initial();
  if (mirror_.held_out_samples().empty()) return;
  const mirror::Evaluation off = mirror_.evaluate(nullptr);
  state.off_at_start = off.nll_sum / static_cast<double>(off.n_tokens);
  post(adapter_off_message(state.off_at_start, std::nan("")));
  evaluate(state, 0, std::vector<double>(state.adapter.adapter.size(), 0.0));
}

void FreeRun::update(State& state) {
  const double begin = now_s();
  const std::int64_t t = state.next;
  mirror::AdapterState& adapter = state.adapter;
  const mirror::BatchGradient batch = mirror_.gradient(adapter.adapter, mirror_.batch(t), t);
  if (options_.snapshot_every > 0 && t % options_.snapshot_every == 0)
    post(snapshot_message(t, adapter, batch, options_.snapshot_what));
  const bool evaluated =
      !mirror_.held_out_samples().empty() && (t % mirror_.eval_every() == 0 || t == mirror_.updates());
  const mirror::UpdateResult result = mirror_.step(adapter, batch, t);
  const bool observed = options_.observe_every > 0 && t % options_.observe_every == 0;
  post(update_message(mirror_, t, adapter, batch, result, observed, now_s() - begin));
  if (evaluated) evaluate(state, t, mirror_.update_norms(adapter.adapter, state_->adapter.adapter));
}

void FreeRun::evaluate(const State& state, std::int64_t t, std::vector<double> update_norm) {
  const double begin = now_s();
  const mirror::Tensors& adapter = state.adapter.adapter;
  const mirror::Evaluation evaluation = mirror_.evaluate(&adapter);
  post(evaluation_message(mirror_, t, adapter, evaluation, mirror_.probe(adapter), update_norm,
                          now_s() - begin));
}

void FreeRun::end(State& state) {
  if (!mirror_.held_out_samples().empty()) {
    const mirror::Evaluation off = mirror_.evaluate(nullptr);
    post(adapter_off_message(state.off_at_start, off.nll_sum / static_cast<double>(off.n_tokens)));
  }
  post(free_run_ended_message());
  state.ended = true;
}

}  // namespace tandem
