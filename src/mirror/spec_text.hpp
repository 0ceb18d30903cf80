// The run as its canonical text says it (SPEC.md, "Canonical text" and "Keys").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem::mirror {

struct Spec {
  std::int64_t batch_global;
  std::optional<std::string> data_held_out;  // digest
  std::int64_t data_max_tokens;
  std::string data_special_in_text;  // encode, refuse, plain
  std::string data_targets;          // all, last
  std::string data_template;         // auto, or a template's name
  std::string data_train;            // digest
  std::string data_truncate;         // right, drop
  std::int64_t eval_every;
  double lora_alpha, lora_dropout;
  std::optional<std::string> lora_init;  // digest
  std::int64_t lora_rank;
  bool lora_rslora;
  std::vector<std::string> lora_targets;  // of q, k, v, o, gate, up, down
  std::string model_path;                 // digest
  double optim_beta1, optim_beta2, optim_clip, optim_eps, optim_lr, optim_lr_min;
  std::string optim_schedule;  // cosine, linear, constant
  std::int64_t optim_warmup;
  double optim_weight_decay;
  std::uint64_t seed_adapter, seed_dropout, seed_order;
  std::int64_t train_updates;
};

// Every key once, none unknown, every value of its kind and range; else kUsage naming the line.
Spec read_spec(const std::string& text);

}  // namespace tandem::mirror
