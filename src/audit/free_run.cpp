#include "src/audit/free_run.hpp"

#include <cmath>
#include <optional>
#include <utility>

#include "src/base/clock.hpp"

namespace tandem {

FreeRun::FreeRun(const mirror::Mirror& mirror, Options options, std::function<void(MirrorMessage)> post)
    : mirror_(mirror), options_(std::move(options)), post_(std::move(post)) {}

void FreeRun::advance() {
  if (next_ == 0)
    begin();
  else if (next_ <= mirror_.updates())
    update(next_);
  else
    end();
  ++next_;
}

void FreeRun::begin() {
  post_(start_message(mirror_));
  state_ = mirror_.initial();
  if (mirror_.held_out_samples().empty()) return;
  const mirror::Evaluation off = mirror_.evaluate(nullptr);
  off_at_start_ = off.nll_sum / static_cast<double>(off.n_tokens);
  post_(adapter_off_message(off_at_start_, std::nan("")));
  evaluate(0, std::vector<double>(state_.adapter.size(), 0.0));
}

void FreeRun::update(std::int64_t t) {
  const double begin = now_s();
  const mirror::BatchGradient batch = mirror_.gradient(state_.adapter, mirror_.batch(t), t);
  if (options_.snapshot_every > 0 && t % options_.snapshot_every == 0)
    post_(snapshot_message(t, state_, batch, options_.snapshot_what));
  const bool evaluated =
      !mirror_.held_out_samples().empty() && (t % mirror_.eval_every() == 0 || t == mirror_.updates());
  const mirror::Tensors before = evaluated ? state_.adapter : mirror::Tensors();
  const mirror::UpdateResult result = mirror_.step(state_, batch, t);
  const bool observed = options_.observe_every > 0 && t % options_.observe_every == 0;
  post_(update_message(mirror_, t, state_, batch, result, observed, now_s() - begin));
  if (evaluated) evaluate(t, mirror_.update_norms(state_.adapter, before));
}

void FreeRun::evaluate(std::int64_t t, std::vector<double> update_norm) {
  const double begin = now_s();
  const mirror::Evaluation evaluation = mirror_.evaluate(&state_.adapter);
  post_(evaluation_message(mirror_, t, state_.adapter, evaluation, mirror_.probe(state_.adapter), update_norm,
                           now_s() - begin));
}

void FreeRun::end() {
  if (!mirror_.held_out_samples().empty()) {
    const mirror::Evaluation off = mirror_.evaluate(nullptr);
    post_(adapter_off_message(off_at_start_, off.nll_sum / static_cast<double>(off.n_tokens)));
  }
  post_(free_run_ended_message());
  ended_ = true;
}

}  // namespace tandem
