#include "src/spec/keys.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

constexpr double kMaxCount = std::numeric_limits<std::int32_t>::max();

Range between(double low, double high) { return {.low = low, .high = high}; }
Range at_least(double low) { return {.low = low, .high_unbounded = true}; }
Range above(double low) { return {.low = low, .low_open = true, .high_unbounded = true}; }
Range below_one() { return {.low = 0, .high = 1, .high_open = true}; }
Range any_real() { return {.low_unbounded = true, .high_unbounded = true}; }

constexpr auto kSpec = KeyClass::kSpec;
constexpr auto kExecution = KeyClass::kExecution;
constexpr auto kNeither = KeyClass::kNeither;

std::vector<Key> make_table() {
  return {
      {.name = "model.path",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.model; },
       .help = "folder of a model in Hugging Face's layout: config.json, model.safetensors, tokenizer.json",
       .is_path = true},
      {.name = "data.train",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.train; },
       .help = "training rows, JSON Lines: messages, prompt + completion, or ids + targets",
       .is_path = true},
      {.name = "data.held_out",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.held_out; },
       .help = "held-out rows, same forms; none: no evaluation",
       .is_path = true},
      {.name = "data.template",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.data_template; },
       .help = "chat template; auto: the model's own, recognised by its text",
       .choices = {"auto", "qwen3", "smollm2", "chatml"}},
      {.name = "data.max_tokens",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.data_max_tokens; },
       .unit = "tokens",
       .help = "longest sample; longer ones are treated as data.truncate says",
       .range = between(2, 1 << 20)},
      {.name = "data.truncate",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.data_truncate; },
       .help = "too long samples: keep the first data.max_tokens, or leave the sample out",
       .choices = {"right", "drop"}},
      {.name = "data.targets",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.data_targets; },
       .help = "which assistant turns are scored",
       .choices = {"all", "last"}},
      {.name = "data.special_in_text",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.data_special_in_text; },
       .help = "control tokens inside a row's text: let them act, refuse the row, or spell them out",
       .choices = {"encode", "refuse", "plain"}},
      {.name = "lora.rank",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.lora_rank; },
       .help = "r: rows of A, columns of B",
       .range = between(1, 4096)},
      {.name = "lora.alpha",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.lora_alpha; },
       .help = "the adapter's output is multiplied by alpha / r",
       .range = above(0)},
      {.name = "lora.targets",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.lora_targets; },
       .help = "projections with an adapter, separated by commas, in any order",
       .choices = {"q", "k", "v", "o", "gate", "up", "down"}},
      {.name = "lora.rslora",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.lora_rslora; },
       .help = "multiply by alpha / sqrt(r) instead"},
      {.name = "lora.dropout",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.lora_dropout; },
       .help = "share of the elements of A's input that are dropped in training",
       .range = below_one()},
      {.name = "lora.init",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.lora_init; },
       .help = "folder of a PEFT adapter to start from; none: A drawn, B zero",
       .is_path = true},
      {.name = "optim.lr",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.optim_lr; },
       .help = "learning rate after warm-up",
       .range = at_least(0)},
      {.name = "optim.lr_min",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.optim_lr_min; },
       .help = "learning rate of the last update (cosine, linear); not above optim.lr",
       .range = at_least(0)},
      {.name = "optim.schedule",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.optim_schedule; },
       .help = "shape of the learning rate after warm-up",
       .choices = {"cosine", "linear", "constant"}},
      {.name = "optim.warmup",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.optim_warmup; },
       .unit = "updates",
       .help = "the learning rate rises linearly over these; fewer than train.updates",
       .range = between(0, kMaxCount),
       .computed_default = "3 % of train.updates, rounded"},
      {.name = "optim.beta1",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.optim_beta1; },
       .help = "AdamW: decay of the first moment",
       .range = below_one()},
      {.name = "optim.beta2",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.optim_beta2; },
       .help = "AdamW: decay of the second moment",
       .range = below_one()},
      {.name = "optim.eps",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.optim_eps; },
       .help = "AdamW: added to the root of the second moment",
       .range = above(0)},
      {.name = "optim.weight_decay",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.optim_weight_decay; },
       .help = "AdamW: decoupled decay, times the learning rate, of every A and B",
       .range = at_least(0)},
      {.name = "optim.clip",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.optim_clip; },
       .help = "largest gradient norm; 0 or less: no clipping",
       .range = any_real()},
      {.name = "batch.global",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.batch_global; },
       .unit = "samples",
       .help = "samples of one update, over all ranks",
       .range = between(1, 1 << 20)},
      {.name = "train.epochs",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.train_epochs; },
       .unit = "epochs",
       .help = "passes over the training rows; only sets what train.updates defaults to",
       .range = between(1, kMaxCount),
       .only_default = true},
      {.name = "train.updates",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.train_updates; },
       .unit = "updates",
       .help = "T, the length of the run; overrides the epochs",
       .range = between(1, kMaxCount),
       .computed_default = "train.epochs x ceil(samples / batch.global)"},
      {.name = "eval.every",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.eval_every; },
       .unit = "updates",
       .help = "updates between evaluations; there is always one before update 1 and one after the last",
       .range = between(1, kMaxCount),
       .computed_default = "train.updates / 42, rounded up"},
      {.name = "seed",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.seed; },
       .help = "only sets what the three seeds below default to",
       .only_default = true},
      {.name = "seed.adapter",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.seed_adapter; },
       .help = "draws the initial A matrices",
       .computed_default = "seed"},
      {.name = "seed.order",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.seed_order; },
       .help = "draws the order of the samples",
       .computed_default = "seed"},
      {.name = "seed.dropout",
       .key_class = kSpec,
       .field = +[](Config& c) { return &c.spec.seed_dropout; },
       .help = "draws what lora.dropout drops",
       .computed_default = "seed"},

      {.name = "precision",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.precision; },
       .help = "number format of weights, activations and products; tf32 and bf16 on GPUs only",
       .choices = {"f32", "tf32", "bf16"}},
      {.name = "gpu",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.gpu; },
       .help = "a GPU per rank where there is one; never; always; or also with several ranks on one GPU",
       .choices = {"auto", "off", "on", "shared"}},
      {.name = "batch.micro",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.batch_micro; },
       .unit = "samples",
       .help = "samples packed into one row of tokens and computed together",
       .range = between(1, 1 << 20)},
      {.name = "batch.deal",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.batch_deal; },
       .help = "which rank computes which micro-batch; changes the time and nothing else",
       .choices = {"least_loaded", "round_robin", "reversed"}},
      {.name = "mirror.every",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.mirror_every; },
       .unit = "updates",
       .help = "updates between audits by the mirror, the float64 stack; 0: none",
       .range = between(0, kMaxCount)},
      {.name = "mirror.mode",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.mirror_mode; },
       .help = "the mirror audits updates, trains freely beside the run (mirror.h5), or does both",
       .choices = {"audit", "free", "both"}},
      {.name = "mirror.scope",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.mirror_scope; },
       .help = "an audit computes the whole update's gradient, or that of one micro-batch in turn",
       .choices = {"batch", "microbatch"}},
      {.name = "mirror.rank",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.mirror_rank; },
       .help = "rank beside which the mirror computes; -1: the last",
       .range = between(-1, 1 << 20)},
      {.name = "mirror.threads",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.mirror_threads; },
       .unit = "threads",
       .help = "of the mirror; its rank's own threads leave it as many CPUs where they can",
       .range = between(1, 4096)},
      {.name = "mirror.when_behind",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.mirror_when_behind; },
       .help = "an audit that is due while the last ones are not done: training waits, or leaves it out",
       .choices = {"wait", "skip"}},
      {.name = "mirror.on_mismatch",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.mirror_on_mismatch; },
       .help = "an audit that fails is recorded, or also ends the run (exit 5)",
       .choices = {"record", "stop"}},
      {.name = "snapshot.every",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.snapshot_every; },
       .unit = "updates",
       .help = "updates between stored states; 0: none",
       .range = between(0, kMaxCount)},
      {.name = "snapshot.what",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.snapshot_what; },
       .help = "tensors of a stored state, separated by commas",
       .choices = {"adapter", "m", "v", "gradient"}},
      {.name = "observe.every",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.observe_every; },
       .unit = "updates",
       .help = "updates between gradient norms per tensor in the trajectory; 0: none",
       .range = between(0, kMaxCount)},
      {.name = "observe.probe",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.observe_probe; },
       .unit = "tokens",
       .help =
           "held-out tokens whose loss, 8 largest logits and activations every evaluation records; 0: none",
       .range = between(0, 512)},
      {.name = "memory.limit",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.memory_limit; },
       .unit = "GiB",
       .help =
           "host memory for the ranks of one node; what does not fit is computed again; 0: what the node has",
       .range = at_least(0)},
      {.name = "threads",
       .key_class = kExecution,
       .field = +[](Config& c) { return &c.execution.threads; },
       .unit = "threads",
       .help = "per rank; 0: the rank's share of the CPUs its node allows",
       .range = between(0, 4096)},

      {.name = "mirror.calibration",
       .key_class = kNeither,
       .field = +[](Config& c) { return &c.run.calibration; },
       .help =
           "folder where the mirror's thresholds are kept for the next run of the same model; none: not kept",
       .is_path = true},
      {.name = "data.cache",
       .key_class = kNeither,
       .field = +[](Config& c) { return &c.run.cache; },
       .help = "folder where tokenised rows are kept for the next run with the same inputs; none: not kept",
       .is_path = true},
      {.name = "run.out",
       .key_class = kNeither,
       .field = +[](Config& c) { return &c.run.out; },
       .help = "folder for the trajectory, the adapter and the log; must be empty or absent",
       .is_path = true},
      {.name = "overwrite",
       .key_class = kNeither,
       .field = +[](Config& c) { return &c.run.overwrite; },
       .help = "replace what an earlier run left in run.out"},
      {.name = "resume",
       .key_class = kNeither,
       .field = +[](Config& c) { return &c.run.resume; },
       .help =
           "auto: go on from the newest whole checkpoint in run.out, or begin where it holds none; a folder: "
           "from that checkpoint; never: begin"},
      {.name = "checkpoint.every",
       .key_class = kNeither,
       .field = +[](Config& c) { return &c.run.checkpoint_every; },
       .unit = "updates",
       .help = "updates between checkpoints; 0: none by updates",
       .range = between(0, kMaxCount)},
      {.name = "checkpoint.minutes",
       .key_class = kNeither,
       .field = +[](Config& c) { return &c.run.checkpoint_minutes; },
       .unit = "minutes",
       .help = "time between checkpoints; 0: none by time; a signal saves one in any case",
       .range = at_least(0)},
      {.name = "checkpoint.keep",
       .key_class = kNeither,
       .field = +[](Config& c) { return &c.run.checkpoint_keep; },
       .unit = "checkpoints",
       .help =
           "the newest so many are kept, and of those at an evaluation the one with the lowest held-out loss",
       .range = between(1, kMaxCount)},
      {.name = "output.flush_s",
       .key_class = kNeither,
       .field = +[](Config& c) { return &c.run.flush_s; },
       .unit = "seconds",
       .help = "time between publications of the trajectory file",
       .range = above(0)},
      {.name = "log.every",
       .key_class = kNeither,
       .field = +[](Config& c) { return &c.run.log_every; },
       .unit = "updates",
       .help = "updates between progress lines where stderr is no terminal",
       .range = between(1, kMaxCount)},
  };
}

template <class T>
inline constexpr bool kIsNumber = std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>;

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return false;
  if constexpr (std::is_same_v<T, double>) return std::isfinite(value);
  return true;
}

bool inside(const Range& range, double value) {
  const bool low = range.low_unbounded || (range.low_open ? value > range.low : value >= range.low);
  const bool high = range.high_unbounded || (range.high_open ? value < range.high : value <= range.high);
  return low && high;
}

// "q, k" -> the chosen ones in the order of `choices`; empty where a part is unknown or twice, or nothing is
// chosen.
std::vector<std::string> parse_list(std::string_view text, const std::vector<std::string>& choices) {
  std::vector<bool> chosen(choices.size(), false);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string_view part = text.substr(begin, end - begin);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    const auto found = std::find(choices.begin(), choices.end(), part);
    if (found == choices.end() || chosen[found - choices.begin()]) return {};
    chosen[found - choices.begin()] = true;
    begin = end + 1;
  }
  std::vector<std::string> list;
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (chosen[i]) list.push_back(choices[i]);
  return list;
}

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string join_or(const std::vector<std::string>& parts) {
  std::string text = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) text += (i + 1 == parts.size() ? " or " : ", ") + parts[i];
  return text;
}

// A bound as people write it: 1, not 1.0.
std::string bound_text(double value) {
  if (value == kMaxCount) return "2^31-1";
  return value == std::floor(value) && std::abs(value) < 1e15
             ? std::to_string(static_cast<std::int64_t>(value))
             : python_repr(value);
}

template <class T>
bool parse(const Key& key, std::string_view text, T& value) {
  if constexpr (kIsNumber<T>) {
    return parse_number(text, value) && inside(key.range, static_cast<double>(value));
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return parse_number(text, value);
  } else if constexpr (std::is_same_v<T, bool>) {
    value = text == "true";
    return text == "true" || text == "false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = text;
    return !text.empty() && (key.choices.empty() ||
                             std::find(key.choices.begin(), key.choices.end(), text) != key.choices.end());
  } else if constexpr (std::is_same_v<T, RunSpec::Input>) {
    value = {.path = text == "none" ? std::string() : std::string(text), .digest = {}};
    return !text.empty();
  } else {
    value = parse_list(text, key.choices);
    return !value.empty();
  }
}

template <class T>
std::string write(const Key& key, const T& value, bool quoted) {
  if constexpr (std::is_same_v<T, std::int64_t>)
    return value < 0 && !key.computed_default.empty() ? "" : std::to_string(value);
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    return std::to_string(value);
  else if constexpr (std::is_same_v<T, double>)
    return python_repr(value);
  else if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::is_same_v<T, RunSpec::Input>)
    return !value.given() ? "none" : quoted ? json_string(value.path) : value.path;
  else if constexpr (std::is_same_v<T, std::string>)
    return quoted ? json_string(value) : value;
  else
    return quoted ? json_string(join(value, ",")) : join(value, ",");
}

// The field's accessor takes a mutable Config so that one function serves reading and writing.
template <class Visitor>
auto visit_value(const Key& key, const Config& config, Visitor visitor) {
  return std::visit([&](auto field) { return visitor(std::as_const(*field(const_cast<Config&>(config)))); },
                    key.field);
}

}  // namespace

const char* name_of(KeyClass key_class) {
  return key_class == kSpec ? "spec" : key_class == kExecution ? "execution" : "neither";
}

void Key::set(Config& config, std::string_view value) const {
  const bool good = std::visit(
      [&](auto access) {
        auto& target = *access(config);
        std::decay_t<decltype(target)> parsed{};
        if (!parse(*this, value, parsed)) return false;
        target = std::move(parsed);
        return true;
      },
      field);
  if (!good) {
    const std::string must_be = range_text();
    throw Error(ErrorKind::kUsage,
                cat(name, " = ", value, ": must be ", must_be, unit.empty() ? "" : " ", unit));
  }
}

std::string Key::get(const Config& config) const {
  return visit_value(*this, config, [&](const auto& value) { return write(*this, value, true); });
}

std::string Key::plain(const Config& config) const {
  return visit_value(*this, config, [&](const auto& value) { return write(*this, value, false); });
}

std::string Key::placeholder() const {
  if (!unit.empty()) {
    std::string upper = unit;
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return upper;
  }
  if (is_path) return "PATH";
  return visit_value(*this, Config{}, [](const auto& value) -> std::string {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, double>) return "X";
    if constexpr (std::is_same_v<T, bool>) return "BOOL";
    if constexpr (std::is_same_v<T, std::string>) return "WORD";
    if constexpr (std::is_same_v<T, std::vector<std::string>>) return "LIST";
    return "N";
  });
}

std::string Key::default_text() const {
  return computed_default.empty() ? plain(Config{}) : computed_default;
}

std::string Key::range_text() const {
  return visit_value(*this, Config{}, [&](const auto& value) -> std::string {
    using T = std::decay_t<decltype(value)>;
    if constexpr (kIsNumber<T>) {
      const std::string kind = std::is_same_v<T, double> ? "a number" : "an integer";
      if (range.low_unbounded) return kind;
      const std::string low = bound_text(range.low);
      if (range.high_unbounded) return kind + (range.low_open ? " > " : " >= ") + low;
      if (range.high_open) return cat(kind, " >= ", low, " and < ", bound_text(range.high));
      return cat(kind, " from ", low, " to ", bound_text(range.high));
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      return "an integer from 0 to 2^64-1";
    } else if constexpr (std::is_same_v<T, bool>) {
      return "true or false";
    } else if constexpr (std::is_same_v<T, std::string>) {
      return is_path ? "a path" : choices.empty() ? "a name" : join_or(choices);
    } else if constexpr (std::is_same_v<T, RunSpec::Input>) {
      return "a path or none";
    } else {
      return "one or more of " + join(choices, ",");
    }
  });
}

const std::vector<Key>& keys() {
  static const std::vector<Key> table = make_table();
  return table;
}

const Key* find_key(std::string_view name) {
  for (const Key& key : keys())
    if (key.name == name) return &key;
  return nullptr;
}

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const Key& key : keys()) names.push_back(key.name);
  return names;
}

}  // namespace tandem
