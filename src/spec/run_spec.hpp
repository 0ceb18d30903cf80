// What is to be computed (RunSpec), how (Execution), and what is neither (RunOptions). SPEC.md, "Keys".
// The defaults stand here and nowhere else; keys.hpp gives each field its name, range and help.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// Equal between stacks that are compared. Everything here enters the canonical text and its digest, except
// `seed` and `train_epochs`, which only set what other fields default to.
struct RunSpec {
  // Inputs: the path as given, and the digest that stands for it in the canonical text ("" = not given).
  struct Input {
    std::string path;
    std::string digest;
    bool given() const { return !path.empty(); }
  };
  Input model, train, held_out, lora_init;
  // Those that are given, under their keys.
  std::vector<std::pair<const char*, const Input*>> inputs() const;

  std::string data_template = "auto";
  std::int64_t data_max_tokens = 1024;
  std::string data_truncate = "right";          // right | drop
  std::string data_targets = "all";             // all | last
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
  std::uint64_t seed = 0;           // what the three seeds below default to
  std::uint64_t seed_adapter = 0, seed_order = 0, seed_dropout = 0;

  // s of y = W x + s B(A x): alpha/r, or alpha/sqrt(r) with rslora
  double lora_scale() const;
};

struct Execution {
  std::string precision = "f32";  // f32 | tf32 | bf16; all but f32 on GPUs only
  std::string gpu = "auto";       // auto | off | on | shared
  std::int64_t batch_micro = 4;
  std::string batch_deal = "least_loaded";    // least_loaded | round_robin | reversed
  std::int64_t mirror_every = 0;              // updates between audits; 0 = none
  std::string mirror_mode = "audit";          // audit | free | both
  std::string mirror_scope = "batch";         // batch | microbatch
  std::int64_t mirror_rank = -1;              // where the mirror runs; -1: the last rank
  std::int64_t mirror_threads = 1;            // of the mirror's own
  std::string mirror_when_behind = "wait";    // wait | skip
  std::string mirror_on_mismatch = "record";  // record | stop
  std::int64_t snapshot_every = 0;            // updates; 0 = off
  std::vector<std::string> snapshot_what = {"adapter", "m", "v", "gradient"};  // always in this order
  std::int64_t observe_every = 10;   // updates between the per-tensor rows of the trajectory; 0 = off
  std::int64_t observe_probe = 512;  // held-out tokens whose predictions evaluations record; 0 = none
  double memory_limit = 0.0;         // GiB of host memory for the ranks of one node; 0: what the node has
  std::int64_t threads = 0;          // per rank; 0: the rank's share of its node's CPUs

  bool audits() const { return mirror_mode != "free" && mirror_every > 0; }
  bool free_run() const { return mirror_mode != "audit"; }
  bool mirrored() const { return audits() || free_run(); }

  // Facts of a run rather than keys; `train` fills them in before it writes the execution's text. 0 and "":
  // not known.
  std::int64_t ranks = 0;
  std::string device, build, instruction_set;
};

struct RunOptions {
  RunSpec::Input calibration;      // mirror.calibration: folder of the mirror's thresholds; not given: none
  RunSpec::Input cache;            // data.cache: folder of the token cache; not given: none
  std::string out = "runs/train";  // run.out
  bool overwrite = false;          // replace what a non-empty run.out holds
  std::string resume = "never";    // never | auto | a checkpoint's folder
  std::int64_t checkpoint_every = 0;  // checkpoint.every: updates; 0: none by updates
  double checkpoint_minutes = 15.0;   // checkpoint.minutes; 0: none by time
  std::int64_t checkpoint_keep = 2;   // checkpoint.keep: the newest so many, and the best
  double flush_s = 10.0;              // output.flush_s: seconds between publications of the trajectory
  std::int64_t log_every = 10;        // log.every: updates between lines when stderr is no terminal
};

struct Config {
  RunSpec spec;
  Execution execution;
  RunOptions run;
};

// Fills in what depends on the number of training samples (after rendering): T, warm-up, eval.every. Calling
// it again changes nothing. Throws kInput for n_train < 1, kUsage naming the key where a value does not fit
// (warm-up < T, ...).
void resolve(RunSpec& spec, std::int64_t n_train);

// One `key = value` a line, each ended by a newline, sorted, defaults filled in, paths replaced by digests.
// The spec must be resolved and its inputs digested (digests.hpp), else kInternal.
std::string canonical_text(const RunSpec& spec);
std::string canonical_text(const Execution& execution);

// The values of a canonical text by key, also of one that another version or stack wrote: strings without
// their quotes. Lines that are none of it are passed over.
using CanonicalValues = std::map<std::string, std::string>;
CanonicalValues canonical_values(const std::string& text);
// A number among them; nullopt where the key is not there or its value is none.
std::optional<std::int64_t> integer_of(const CanonicalValues& values, const char* key);
std::optional<double> real_of(const CanonicalValues& values, const char* key);

// A real as Python's repr writes it: 0.0002, 1.0, 2e-05.
std::string python_repr(double value);

}  // namespace tandem
