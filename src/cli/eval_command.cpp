#include "src/cli/eval_command.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "io/choices.hpp"
#include "io/publish.hpp"
#include "src/base/error.hpp"
#include "src/base/paths.hpp"
#include "src/base/progress.hpp"
#include "src/base/text.hpp"
#include "src/cli/process_setup.hpp"
#include "src/train/choice_statistics.hpp"
#include "src/train/format_numbers.hpp"
#include "src/train/run_log.hpp"
#include "src/train/scorer.hpp"

namespace tandem {

namespace {

using nlohmann::ordered_json;

// One of the two that are compared: the base model, and it with the adapter.
struct Side {
  const char* name;
  Scores scores;
};

std::vector<Side> score_sides(const CpuContext& ctx, const ModelAndAdapter& model, const SampleSet& samples,
                              std::int64_t micro, RunLog& log) {
  Scorer scorer(ctx, model, samples, micro);
  std::vector<Side> sides;
  for (const char* name : {"base", "adapter"}) {
    const bool adapted = !sides.empty();
    if (adapted && !model.adapter) break;
    const ProgressBar bar(name);
    sides.push_back({name, scorer.score(adapted, [&](double share) { log.progress(bar.line(share)); })});
  }
  return sides;
}

// The tokens that are scored, in their order.
std::vector<std::int32_t> scored_ids(const SampleSet& samples, std::int64_t i) {
  std::vector<std::int32_t> ids;
  for (std::size_t p = 1; p < samples.ids(i).size(); ++p)
    if (samples.targets(i)[p]) ids.push_back(samples.ids(i)[p]);
  return ids;
}

ordered_json tokens_json(const SampleSet& samples, std::int64_t i, const std::vector<Side>& sides) {
  ordered_json object;
  object["targets"] = scored_ids(samples, i);
  for (const Side& side : sides) object[side.name] = side.scores.of(i);
  return object;
}

ordered_json adapter_json(const LoadedAdapter& adapter) {
  return {{"rank", adapter.config.rank},
          {"alpha", adapter.config.alpha},
          {"rslora", adapter.config.rslora},
          {"modules", adapter.n_modules()},
          {"active_modules", adapter.n_active()}};
}

// ---- loss ----

void write_sample_tokens(const std::filesystem::path& file, const SampleSet& samples,
                         const std::vector<Side>& sides) {
  FilePublisher out(file);
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    ordered_json object = {{"line", samples.line(i)}};
    object.update(tokens_json(samples, i, sides));
    out.write(object.dump() + "\n");
  }
  out.publish();
}

std::string loss_text(const std::vector<Side>& sides, const SampleSet& samples) {
  std::string text = cat(samples.size(), " samples, ", sides[0].scores.result.n_tokens, " scored tokens\n",
                         "          loss        perplexity    sum of nll\n");
  for (const Side& side : sides) {
    const EvalResult& result = side.scores.result;
    text += formatted("%-8s  %-10.6f  %-12.6g  %.6f\n", side.name, result.loss(), std::exp(result.loss()),
                      result.nll_sum);
  }
  if (sides.size() > 1)
    text += formatted("change    %+.6f\n", sides[1].scores.result.loss() - sides[0].scores.result.loss());
  return text;
}

ordered_json loss_json(const std::vector<Side>& sides, const SampleSet& samples) {
  ordered_json object = {{"samples", samples.size()}, {"tokens", sides[0].scores.result.n_tokens}};
  for (const Side& side : sides) {
    const EvalResult& result = side.scores.result;
    object[side.name] = {
        {"loss", result.loss()}, {"perplexity", std::exp(result.loss())}, {"nll_sum", result.nll_sum}};
  }
  return object;
}

ordered_json eval_loss(const EvalOptions& options, const CpuContext& ctx, const ModelAndAdapter& model,
                       RunLog& log, std::string& text) {
  const Dataset data = load_dataset(options.data, options.model, options.render);
  if (const std::string note = data.report.form_note(); !note.empty()) log.line("note: " + note);
  for (const std::string& warning : data.report.warnings()) log.warning(warning);
  if (data.report.target_tokens == 0)
    throw Error(ErrorKind::kInput, cat(options.data.string(), ": no sample has a token to score"));
  const std::vector<Side> sides = score_sides(ctx, model, data.samples, options.micro, log);
  if (!options.per_token.empty()) write_sample_tokens(options.per_token, data.samples, sides);
  text = loss_text(sides, data.samples);
  return loss_json(sides, data.samples);
}

// ---- choices ----

struct Preferred {
  const char* name;                           // for people
  const char* key;                            // in JSON
  std::vector<std::vector<std::int64_t>> of;  // by side
};

std::vector<Preferred> preferred_by_rule(const ChoiceSet& set, const std::vector<Side>& sides) {
  std::vector<Preferred> rules = {{"sum of nll", "sum", {}}, {"nll per token", "per_token", {}}};
  for (const Side& side : sides) {
    rules[0].of.push_back(preferred_options(set, side.scores, ChoiceRule::kSum));
    rules[1].of.push_back(preferred_options(set, side.scores, ChoiceRule::kPerToken));
  }
  return rules;
}

void write_option_tokens(const std::filesystem::path& file, const ChoiceSet& set,
                         const std::vector<Side>& sides, const std::vector<Preferred>& rules) {
  FilePublisher out(file);
  for (std::size_t q = 0; q < set.questions.size(); ++q) {
    const ChoiceSet::Question& question = set.questions[q];
    ordered_json object = {{"line", question.line}, {"answer", question.answer}};
    for (const Preferred& rule : rules)
      for (std::size_t s = 0; s < sides.size(); ++s)
        object["preferred"][rule.key][sides[s].name] = rule.of[s][q];
    for (std::int64_t i = 0; i < question.n_options; ++i)
      object["choices"].push_back(tokens_json(set.samples, question.first + i, sides));
    out.write(object.dump() + "\n");
  }
  out.publish();
}

double chance(const ChoiceSet& set) {
  double sum = 0.0;
  for (const ChoiceSet::Question& question : set.questions)
    sum += 1.0 / static_cast<double>(question.n_options);
  return sum / static_cast<double>(set.questions.size());
}

std::string choices_text(const ChoiceSet& set, const std::vector<Side>& sides,
                         const std::vector<Preferred>& rules) {
  const auto n = static_cast<std::int64_t>(set.questions.size());
  std::string text = cat(n, " questions, ", set.samples.size(), " options",
                         formatted(", chance %.1f %%", 100.0 * chance(set)),
                         "\nright answers, with the 95 % interval (Wilson)\n");
  for (const Preferred& rule : rules) {
    for (std::size_t s = 0; s < sides.size(); ++s) {
      const std::int64_t right = count_right(set, rule.of[s]);
      const Interval interval = wilson_interval(right, n);
      text += formatted("  %-14s  %-8s  %6lld  %5.1f %%  [%.1f, %.1f]\n", rule.name, sides[s].name,
                        static_cast<long long>(right),
                        100.0 * static_cast<double>(right) / static_cast<double>(n), 100.0 * interval.low,
                        100.0 * interval.high);
    }
    if (sides.size() < 2) continue;
    const Paired paired = compare_answers(set, rule.of[0], rule.of[1]);
    text += formatted(
        "  %-14s  right only with the adapter %lld, only without %lld, McNemar p = %.3g; %lld answers "
        "changed\n",
        "", static_cast<long long>(paired.only_adapter), static_cast<long long>(paired.only_base),
        paired.p_value(), static_cast<long long>(paired.changed));
  }
  return text;
}

ordered_json choices_json(const ChoiceSet& set, const std::vector<Side>& sides,
                          const std::vector<Preferred>& rules) {
  const auto n = static_cast<std::int64_t>(set.questions.size());
  ordered_json object = {
      {"questions", n}, {"options", set.samples.size()}, {"chance", chance(set)}, {"left_out", set.too_long}};
  for (std::size_t r = 0; r < rules.size(); ++r) {
    ordered_json& rule = object[rules[r].key];
    for (std::size_t s = 0; s < sides.size(); ++s) {
      const std::int64_t right = count_right(set, rules[r].of[s]);
      const Interval interval = wilson_interval(right, n);
      rule[sides[s].name] = {{"right", right},
                             {"accuracy", static_cast<double>(right) / static_cast<double>(n)},
                             {"interval", {interval.low, interval.high}}};
    }
    if (sides.size() < 2) continue;
    const Paired paired = compare_answers(set, rules[r].of[0], rules[r].of[1]);
    rule["paired"] = {{"only_base", paired.only_base},
                      {"only_adapter", paired.only_adapter},
                      {"changed", paired.changed},
                      {"mcnemar_p", paired.p_value()}};
  }
  return object;
}

ordered_json eval_choices(const EvalOptions& options, const CpuContext& ctx, const ModelAndAdapter& model,
                          RunLog& log, std::string& text) {
  const ChoiceSet set = load_choices(options.data, options.model, options.render);
  if (set.too_long > 0)
    log.warning(cat(set.too_long, " questions with an option longer than data.max_tokens = ",
                    options.render.max_tokens, " are left out"));
  const std::vector<Side> sides = score_sides(ctx, model, set.samples, options.micro, log);
  const std::vector<Preferred> rules = preferred_by_rule(set, sides);
  if (!options.per_token.empty()) write_option_tokens(options.per_token, set, sides, rules);
  text = choices_text(set, sides, rules);
  return choices_json(set, sides, rules);
}

// What is read is not written over.
void check_output(const EvalOptions& options) {
  if (options.per_token.empty()) return;
  require_replaceable(options.per_token);
  for (const auto& [name, input] :
       {std::pair{"--model", options.model}, {"--adapter", options.adapter}, {"--data", options.data}}) {
    if (input.empty() || path_inside(options.per_token, input).empty()) continue;
    throw Error(ErrorKind::kUsage, cat("--per-token ", options.per_token.string(), ": is part of ", name, " ",
                                       input.string(), "; choose another name"));
  }
}

}  // namespace

int eval_command(const EvalOptions& given, std::ostream& out) {
  EvalOptions options = given;
  check_output(options);
  RunLog log(true);
  const CpuContext ctx = one_process_context(options.threads);
  const ModelAndAdapter model = load_model_and_adapter(options.model, options.adapter);
  if (options.render.max_tokens > model.model.config.max_positions)
    throw Error(ErrorKind::kUsage,
                cat("data.max_tokens = ", options.render.max_tokens, ": the model takes at most ",
                    model.model.config.max_positions, " (max_position_embeddings)"));
  options.render.vocab_size = model.model.config.vocab_size;
  options.render.threads = ctx.threads;
  for (const std::string& warning : model.warnings()) log.warning(warning);
  std::string text;
  ordered_json object = options.choices ? eval_choices(options, ctx, model, log, text)
                                        : eval_loss(options, ctx, model, log, text);
  log.progress("");
  if (options.json) {
    if (model.adapter) object["adapter_settings"] = adapter_json(*model.adapter);
    out << object.dump() << '\n';
    return 0;
  }
  if (model.adapter) out << "adapter: " << model.adapter->text() << '\n';
  out << text;
  return 0;
}

}  // namespace tandem
