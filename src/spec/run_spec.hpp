// What is to be computed (RunSpec), how (Execution), and what is neither (RunOptions). SPEC.md, "Keys".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

// Equal between stacks that are compared. Everything here enters the canonical text and its digest.
struct RunSpec {
  // Inputs: the path as given, and the digest that stands for it in the canonical text ("" = not given).
  struct Input {
    std::string path;
    std::string digest;
  };
  Input model, train, held_out, lora_init;

  std::string data_template = "auto";
  std::int64_t data_max_tokens = 1024;
  std::string data_truncate = "right";         // right | drop
  std::string data_targets = "all";            // all | last
  std::string data_special_in_text = "encode";  // encode | refuse | plain

  std::int64_t lora_rank = 16;
  double lora_alpha = 32.0;
  std::vector<std::string> lora_targets = {"q", "k", "v", "o", "gate", "up", "down"};  // always in this order
  bool lora_rslora = false;
  double lora_dropout = 0.0;

  double optim_lr = 0.0002, optim_lr_min = 0.0;
  std::string optim_schedule = "cosine";  // cosine | linear | constant
  std::int64_t optim_warmup = -1;         // updates; -1: 3 % of train_updates, rounded
  double optim_beta1 = 0.9, optim_beta2 = 0.999, optim_eps = 1e-8, optim_weight_decay = 0.0, optim_clip = 1.0;

  std::int64_t batch_global = 16;
  std::int64_t train_epochs = 1;
  std::int64_t train_updates = -1;  // T; -1: train_epochs times the updates of an epoch
  std::int64_t eval_every = -1;     // updates; -1: ceil(T/42)
  std::uint64_t seed_adapter = 0, seed_order = 0, seed_dropout = 0;

  // s of y = W x + s B(A x)
  double lora_scale() const;
};

struct Execution {
  std::string precision = "f32";
  std::int64_t batch_micro = 4;
  std::int64_t mirror_every = 0;  // 0 = off
  std::int64_t threads = 0;       // per rank; 0: the rank's share of its node's CPUs
};

struct RunOptions {
  std::string out;         // run.out
  bool overwrite = false;  // replace what a non-empty run.out holds
  double flush_s = 10.0;   // output.flush_s: seconds between publications of the trajectory
  std::int64_t log_every = 10;  // log.every: updates between lines when stderr is no terminal
};

struct Config {
  RunSpec spec;
  Execution execution;
  RunOptions run;
};

// Fills in what depends on the number of training samples (after rendering): T, warm-up, eval.every.
// Throws kUsage naming the key where a value does not fit (0 <= warm-up < T, ...).
void resolve(RunSpec& spec, std::int64_t n_train);

// One `key = value` a line, sorted, defaults filled in, paths replaced by digests. The spec must be resolved.
std::string canonical_text(const RunSpec& spec);
std::string canonical_text(const Execution& execution);

// A real as Python's repr writes it: 0.0002, 1.0, 2e-05.
std::string python_repr(double value);

}  // namespace tandem
