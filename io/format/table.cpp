#include "io/format/table.hpp"

#include <algorithm>

#include "io/observations.hpp"
#include "src/base/text.hpp"

namespace tandem::format {

namespace {

constexpr Extent kTensors{"T", "tensor"}, kOps{"ops", "operation"}, kReadings{"R", "reading"};
constexpr Extent kSamples{"S", "sample"}, kBegins{"S+1", "sample"}, kTokens{"tokens", "token"};
constexpr Extent kUpdates{"U", "update"}, kBatch{"G", "sample"}, kObservations{"O", "observation"};
constexpr Extent kEvals{"E", "evaluation"}, kAudits{"A", "audit"}, kSlow{"W", "slow phase"};
constexpr Extent kAdapter{"P", "tensor"}, kModules{"M", "module"}, kLayers{"L", "layer"};
constexpr Extent kProbe{"K", "probe token"}, kTop{"8", "rank of the logit", kTopLogits};
constexpr Extent kTwoSizes{"2", "dimension", 2}, kFourSizes{"4", "dimension", 4}, kWhen{"2", "when", 2};

constexpr bool kOptional = true;

std::vector<Dataset> make_datasets() {
  using enum Kind;
  return {
      {"spec", "text", kText, {}, "text", "canonical text of what is to be computed (SPEC.md, Keys)"},
      {"spec", "digest", kText, {}, "SHA-256", "SHA-256 of text, hexadecimal"},
      {"execution", "text", kText, {}, "text", "canonical text of how it is computed (SPEC.md, Keys)"},
      {"execution", "digest", kText, {}, "SHA-256", "SHA-256 of text, hexadecimal"},

      {"load", "name", kText, {kTensors}, "text", "base tensors as the files name them"},
      {"load", "digest", kDigest, {kTensors}, "SHA-256", "of the tensor's bytes in the file's dtype"},
      {"load", "shape", kInt64, {kTensors, kFourSizes}, "elements", "-1 = no such dimension"},
      {"load", "dtype", kText, {kTensors}, "text", "as the file names it"},
      {"load", "mean", kFloat64, {kTensors}, "1", "mean of the elements"},
      {"load", "rms", kFloat64, {kTensors}, "1", "root of the mean square of the elements"},
      {"load", "config", kText, {}, "JSON", "the model's configuration as read", kOptional},
      {"load/memory", "step", kInt64, {kReadings}, "updates", "updates made before the reading"},
      {"load/memory", "tensor", kInt64, {kReadings}, "1", "row of /load/name"},
      {"load/memory",
       "digest",
       kDigest,
       {kReadings},
       "SHA-256",
       "of the tensor in memory, its values as float32 little-endian"},

      {"ops", "name", kText, {kOps}, "text", "operation"},
      {"ops", "error", kFloat64, {kOps}, "1", "largest error found"},
      {"ops", "bound", kFloat64, {kOps}, "1", "largest error allowed"},

      {"render",
       "digest",
       kDigest,
       {kSamples},
       "SHA-256",
       "of the token ids and target marks (SPEC.md, Digests)"},
      {"render", "n_ids", kInt64, {kSamples}, "tokens", "length of the sample"},
      {"render", "n_targets", kInt64, {kSamples}, "tokens", "target tokens"},
      {"render", "last_target_id", kInt64, {kSamples}, "1", "token id of the last target, -1 = none"},
      {"render",
       "template_digest",
       kText,
       {},
       "SHA-256",
       "of the chat template, empty where none was used",
       kOptional},
      {"render", "begin", kInt64, {kBegins}, "tokens", "sample i is ids [begin[i], begin[i+1])", kOptional},
      {"render", "ids", kInt32, {kTokens}, "1", "token ids, sample after sample", kOptional},
      {"render", "targets", kUint8, {kTokens}, "1", "target mark of each token", kOptional},

      {"adapter",
       "names",
       kText,
       {kAdapter},
       "text",
       "adapter tensors, the order of every per-tensor column"},
      {"adapter", "shapes", kInt64, {kAdapter, kTwoSizes}, "elements", "rows and columns"},

      {"update", "step", kInt64, {kUpdates}, "updates", "number of the update, from 1"},
      {"update", "optimizer_step", kInt64, {kUpdates}, "updates", "optimizer steps made so far"},
      {"update",
       "loss",
       kFloat64,
       {kUpdates},
       "nat/token",
       "mean negative log-likelihood of the target tokens, NaN where there are none"},
      {"update", "n_targets", kInt64, {kUpdates}, "tokens", "scored target tokens"},
      {"update",
       "grad_norm",
       kFloat64,
       {kUpdates},
       "nat/token",
       "2-norm of all adapter gradients before clipping"},
      {"update", "clip", kFloat64, {kUpdates}, "1", "factor applied to the gradients"},
      {"update", "lr", kFloat64, {kUpdates}, "1", "learning rate"},
      {"update", "n_samples", kInt64, {kUpdates}, "samples", "samples of the global batch"},
      {"update",
       "checksum",
       kUint64,
       {kUpdates},
       "1",
       "weighted sum of the reduced limbs modulo 2^64",
       kOptional},
      {"update", "seconds", kFloat64, {kUpdates}, "s", "wall-clock time of the update", kOptional},
      {"update",
       "adapter_checksum",
       kUint64,
       {kUpdates},
       "1",
       "weighted sum of the adapter's bits after the step modulo 2^64",
       kOptional},
      {"update",
       "sample_ids",
       kInt64,
       {kUpdates, kBatch},
       "1",
       "0-based indices of the samples in order, -1 = none",
       kOptional},

      {"observed", "step", kInt64, {kObservations}, "updates", "update observed"},
      {"observed",
       "tensor_grad_norm",
       kFloat64,
       {kObservations, kAdapter},
       "nat/token",
       "2-norm of each adapter tensor's gradient before clipping"},

      {"eval", "step", kInt64, {kEvals}, "updates", "updates made before the evaluation, 0 = untrained"},
      {"eval",
       "nll_sum",
       kFloat64,
       {kEvals},
       "nat",
       "sum of the negative log-likelihood over the held-out target tokens"},
      {"eval", "n_tokens", kInt64, {kEvals}, "tokens", "scored target tokens"},
      {"eval", "loss", kFloat64, {kEvals}, "nat/token", "nll_sum / n_tokens"},
      {"eval", "seconds", kFloat64, {kEvals}, "s", "wall-clock time of the evaluation", kOptional},
      {"eval",
       "adapter_digest",
       kDigest,
       {kEvals},
       "SHA-256",
       "digest of the adapter evaluated (SPEC.md, Digests)",
       kOptional},
      {"eval",
       "loss_adapter_off",
       kFloat64,
       {kWhen},
       "nat/token",
       "held-out loss without the adapter: at step 0, at the end; NaN = not known",
       kOptional},

      {"probe", "sample", kInt64, {kProbe}, "1", "0-based sample of the held-out set"},
      {"probe", "position", kInt64, {kProbe}, "tokens", "position in the sample"},
      {"probe", "target", kInt64, {kProbe}, "1", "token id at that position"},
      {"probe", "nll", kFloat64, {kEvals, kProbe}, "nat", "negative log-likelihood of the target token"},
      {"probe", "target_logit", kFloat64, {kEvals, kProbe}, "1", "logit of the target token"},
      {"probe",
       "topk_id",
       kInt64,
       {kEvals, kProbe, kTop},
       "1",
       "token ids of the largest logits, largest first, equal ones by id; -1 = none",
       kOptional},
      {"probe",
       "topk_logit",
       kFloat64,
       {kEvals, kProbe, kTop},
       "1",
       "the largest logits; NaN = none",
       kOptional},

      {"activation",
       "rms",
       kFloat64,
       {kEvals, kLayers},
       "1",
       "root of the mean square of the residual stream after each layer, on the probe",
       kOptional},
      {"activation",
       "absmax",
       kFloat64,
       {kEvals, kLayers},
       "1",
       "largest magnitude in the residual stream after each layer, on the probe",
       kOptional},
      {"activation",
       "ba_norm",
       kFloat64,
       {kEvals, kModules},
       "1",
       "Frobenius norm of s B A; module i is that of adapter tensors 2i and 2i+1",
       kOptional},
      {"activation",
       "update_norm",
       kFloat64,
       {kEvals, kAdapter},
       "1",
       "2-norm of the change that the evaluated update made",
       kOptional},

      {"audit", "step", kInt64, {kAudits}, "updates", "update recomputed"},
      {"audit",
       "scope",
       kInt8,
       {kAudits},
       "1",
       "what was recomputed: the whole global batch or one micro-batch"},
      {"audit",
       "micro_batch",
       kInt64,
       {kAudits},
       "1",
       "0-based micro-batch of the update, -1 = the whole batch"},
      {"audit", "loss_error", kFloat64, {kAudits}, "1", "relative difference of the losses"},
      {"audit", "norm_error", kFloat64, {kAudits}, "1", "relative difference of the gradient norms"},
      {"audit",
       "relative_error",
       kFloat64,
       {kAudits, kAdapter},
       "1",
       "|g - g*| / |g*|, g* the mirror's gradient"},
      {"audit", "projection", kFloat64, {kAudits, kAdapter}, "1", "<g, g*> / <g*, g*>"},
      {"audit", "bound", kFloat64, {kAudits, kAdapter}, "1", "threshold in force for relative_error"},
      {"audit",
       "optimizer_error",
       kFloat64,
       {kAudits, kAdapter},
       "1",
       "difference of the optimiser's step, given the same gradient and moments"},
      {"audit", "verdict", kInt8, {kAudits}, "1", "outcome of the audit"},
      {"audit", "note", kText, {kAudits}, "text", "what was found, in words", kOptional},

      {"slow", "step", kInt64, {kSlow}, "updates", "last update of the slow phase"},
      {"slow", "rank", kInt64, {kSlow}, "1", "where, -1 = on all ranks"},
      {"slow", "factor", kFloat64, {kSlow}, "1", "its time per useful operation by the median before"},
      {"slow", "phase", kText, {kSlow}, "text", "gradient, all-reduce, step, evaluation or update"},
      {"slow", "host", kText, {kSlow}, "text", "of the rank"},
      {"slow", "seen", kText, {kSlow}, "text", "what the system counted meanwhile, in words"},

      {"memory",
       "host_bytes",
       kInt64,
       {kEvals},
       "bytes",
       "peak resident memory so far, largest over the ranks"},
      {"memory",
       "device_bytes",
       kInt64,
       {kEvals},
       "bytes",
       "peak device memory so far, largest over the ranks"},
  };
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kFloat64:
      return "float64";
    case Kind::kInt64:
      return "int64";
    case Kind::kUint64:
      return "uint64";
    case Kind::kInt32:
      return "int32";
    case Kind::kInt8:
      return "int8";
    case Kind::kUint8:
      return "uint8";
    case Kind::kText:
      return "text";
    case Kind::kDigest:
      return "digest";
  }
  return "";
}

std::string Dataset::path() const { return std::string(group) + "/" + name; }

std::string Dataset::shape() const {
  std::string text;
  for (const Extent& extent : extents) text += (text.empty() ? "[" : ", ") + std::string(extent.symbol);
  return text + (text.empty() ? "" : "] ") + name_of(kind);
}

const std::vector<Dataset>& datasets() {
  static const std::vector<Dataset> table = make_datasets();
  return table;
}

const Dataset* find(std::string_view path) {
  for (const Dataset& dataset : datasets())
    if (dataset.path() == path) return &dataset;
  return nullptr;
}

std::vector<std::string> groups() {
  std::vector<std::string> names;
  for (const Dataset& dataset : datasets())
    if (std::find(names.begin(), names.end(), dataset.group) == names.end()) names.push_back(dataset.group);
  return names;
}

std::string scope_names() { return joined(kAuditScopeNames, ","); }
std::string verdict_names() { return joined(kVerdictNames, ","); }

}  // namespace tandem::format
