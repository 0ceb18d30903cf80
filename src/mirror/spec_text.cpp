#include "src/mirror/spec_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/base/error.hpp"

namespace tandem::mirror {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::kUsage, "mirror: spec: " + what); }

// Values by key; each is taken once, so that what is left over is unknown.
class Lines {
 public:
  explicit Lines(const std::string& text) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      const auto equals = line.find(" = ");
      if (equals == std::string::npos) refuse(cat("`", line, "` is no `key = value`"));
      if (!values_.emplace(line.substr(0, equals), line.substr(equals + 3)).second)
        refuse(cat("`", line.substr(0, equals), "` is there twice"));
    }
  }

  std::string take(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) refuse(cat("`", key, "` is missing"));
    std::string value = std::move(found->second);
    values_.erase(found);
    return value;
  }

  template <class Number>
  Number number(const std::string& key) {
    const std::string text = take(key);
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      refuse(cat("`", key, " = ", text, "`: no number"));
    return value;
  }

  std::int64_t count(const std::string& key, std::int64_t least) {
    const auto value = number<std::int64_t>(key);
    if (value < least) refuse(cat("`", key, " = ", value, "`: below ", least));
    return value;
  }

  double real(const std::string& key, bool good(double)) {
    const auto value = number<double>(key);
    if (!std::isfinite(value) || !good(value)) refuse(cat("`", key, " = ", value, "`: out of range"));
    return value;
  }

  bool boolean(const std::string& key) {
    const std::string text = take(key);
    if (text != "true" && text != "false") refuse(cat("`", key, " = ", text, "`: neither true nor false"));
    return text == "true";
  }

  std::string string(const std::string& key, const std::vector<std::string>& words = {}) {
    const std::string text = take(key);
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_string()) refuse(cat("`", key, " = ", text, "`: no string"));
    const auto value = json.get<std::string>();
    if (!words.empty() && std::find(words.begin(), words.end(), value) == words.end())
      refuse(cat("`", key, " = ", text, "`: not known"));
    return value;
  }

  std::optional<std::string> optional(const std::string& key) {
    if (const auto found = values_.find(key); found != values_.end() && found->second == "none") {
      values_.erase(found);
      return std::nullopt;
    }
    return string(key);
  }

  void expect_none_left() const {
    if (!values_.empty()) refuse(cat("`", values_.begin()->first, "` is unknown"));
  }

 private:
  std::map<std::string, std::string> values_;
};

std::vector<std::string> projections(const std::string& list) {
  static const std::vector<std::string> all = {"q", "k", "v", "o", "gate", "up", "down"};
  std::vector<std::string> chosen;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    if (std::find(all.begin(), all.end(), word) == all.end() ||
        std::find(chosen.begin(), chosen.end(), word) != chosen.end())
      refuse(cat("`lora.targets`: ", word, " is unknown or there twice"));
    chosen.push_back(word);
  }
  if (chosen.empty()) refuse("`lora.targets` is empty");
  return chosen;
}

bool any(double) { return true; }
bool positive(double x) { return x > 0; }
bool not_negative(double x) { return x >= 0; }
bool share(double x) { return x >= 0 && x < 1; }

}  // namespace

Spec read_spec(const std::string& text) {
  Lines lines(text);
  Spec s;
  s.batch_global = lines.count("batch.global", 1);
  s.data_held_out = lines.optional("data.held_out");
  s.data_max_tokens = lines.count("data.max_tokens", 2);
  s.data_special_in_text = lines.string("data.special_in_text", {"encode", "refuse", "plain"});
  s.data_targets = lines.string("data.targets", {"all", "last"});
  s.data_template = lines.string("data.template");
  s.data_train = lines.string("data.train");
  s.data_truncate = lines.string("data.truncate", {"right", "drop"});
  s.eval_every = lines.count("eval.every", 1);
  s.lora_alpha = lines.real("lora.alpha", positive);
  s.lora_dropout = lines.real("lora.dropout", share);
  s.lora_init = lines.optional("lora.init");
  s.lora_rank = lines.count("lora.rank", 1);
  s.lora_rslora = lines.boolean("lora.rslora");
  s.lora_targets = projections(lines.string("lora.targets"));
  s.model_path = lines.string("model.path");
  s.optim_beta1 = lines.real("optim.beta1", share);
  s.optim_beta2 = lines.real("optim.beta2", share);
  s.optim_clip = lines.real("optim.clip", any);
  s.optim_eps = lines.real("optim.eps", positive);
  s.optim_lr = lines.real("optim.lr", not_negative);
  s.optim_lr_min = lines.real("optim.lr_min", not_negative);
  s.optim_schedule = lines.string("optim.schedule", {"cosine", "linear", "constant"});
  s.optim_warmup = lines.count("optim.warmup", 0);
  s.optim_weight_decay = lines.real("optim.weight_decay", not_negative);
  s.seed_adapter = lines.number<std::uint64_t>("seed.adapter");
  s.seed_dropout = lines.number<std::uint64_t>("seed.dropout");
  s.seed_order = lines.number<std::uint64_t>("seed.order");
  s.train_updates = lines.count("train.updates", 1);
  lines.expect_none_left();
  if (s.optim_warmup >= s.train_updates)
    refuse(cat("`optim.warmup = ", s.optim_warmup, "` is not below train.updates = ", s.train_updates));
  if (s.optim_lr_min > s.optim_lr) refuse("`optim.lr_min` is above optim.lr");
  return s;
}

}  // namespace tandem::mirror
