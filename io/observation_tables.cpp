#include "io/observation_tables.hpp"

#include <array>

namespace tandem {

namespace {

constexpr std::int64_t kChunk = 64;  // rows

void write_tokens(const hdf5::Id& group, const char* name, const std::vector<std::int64_t>& values,
                  const char* unit, const char* description) {
  const hsize_t count = values.size();
  hdf5::write_array(group, name, hdf5::int64_type(), std::span(&count, 1), values.data(),
                    {unit, description, {"probe token"}});
}

}  // namespace

ProbeTables::ProbeTables(const hdf5::Id& file, const ProbeTokens& tokens, std::int64_t n_layers)
    : probe_(file, "probe", "evaluation", kChunk), activation_(file, "activation", "evaluation", kChunk) {
  const auto real = hdf5::float64_type(), integer = hdf5::int64_type();
  write_tokens(probe_.group(), "sample", tokens.sample, "1", "0-based sample of the held-out set");
  write_tokens(probe_.group(), "position", tokens.position, "tokens", "position in the sample");
  write_tokens(probe_.group(), "target", tokens.target, "1", "token id at that position");
  const std::int64_t top[] = {tokens.size(), kTopLogits};
  const std::vector<std::string> labels = {"probe token", "rank of the logit"};
  probe_
      .add_wide("nll", real, tokens.size(), "probe token", "nat",
                "negative log-likelihood of the target token")
      .add_wide("target_logit", real, tokens.size(), "probe token", "1", "logit of the target token")
      .add_shaped("topk_id", integer, top, labels, "1",
                  "token ids of the largest logits, largest first, equal ones by id; -1 = none")
      .add_shaped("topk_logit", real, top, labels, "1", "the largest logits; NaN = none");
  activation_
      .add_wide("rms", real, n_layers, "layer", "1",
                "root of the mean square of the residual stream after each layer, on the probe")
      .add_wide("absmax", real, n_layers, "layer", "1",
                "largest magnitude in the residual stream after each layer, on the probe");
}

void ProbeTables::append(const ProbeRow& row) {
  probe_.put(row.nll).put(row.target_logit).put(row.topk_id).put(row.topk_logit);
  activation_.put(row.rms).put(row.absmax);
}

void ProbeTables::write_pending() {
  probe_.write_pending();
  activation_.write_pending();
}

hdf5::Table norm_table(const hdf5::Id& file, std::int64_t n_tensors) {
  hdf5::Table table(file, "activation", "evaluation", kChunk);
  table
      .add_wide("ba_norm", hdf5::float64_type(), n_tensors / 2, "module", "1",
                "Frobenius norm of s B A; module i is that of adapter tensors 2i and 2i+1")
      .add_wide("update_norm", hdf5::float64_type(), n_tensors, "tensor", "1",
                "2-norm of the change that the evaluated update made");
  return table;
}

namespace {

// As an attribute has an enumeration: "PASS,CALIBRATED".
std::string joined(std::span<const char* const> names) {
  std::string text;
  for (const char* name : names) text += (text.empty() ? "" : ",") + std::string(name);
  return text;
}

}  // namespace

AuditTable::AuditTable(const hdf5::Id& file, std::int64_t n_tensors)
    : table_(file, "audit", "audit", kChunk),
      unknown_(static_cast<std::size_t>(n_tensors), std::numeric_limits<double>::quiet_NaN()) {
  const auto real = hdf5::float64_type(), integer = hdf5::int64_type(), small = hdf5::int8_type();
  table_.add("step", integer, "updates", "update recomputed")
      .add("scope", small, "1", "what was recomputed: the whole global batch or one micro-batch")
      .add("micro_batch", integer, "1", "0-based micro-batch of the update, -1 = the whole batch")
      .add("loss_error", real, "1", "relative difference of the losses")
      .add("norm_error", real, "1", "relative difference of the gradient norms")
      .add_wide("relative_error", real, n_tensors, "tensor", "1", "|g - g*| / |g*|, g* the mirror's gradient")
      .add_wide("projection", real, n_tensors, "tensor", "1", "<g, g*> / <g*, g*>")
      .add_wide("bound", real, n_tensors, "tensor", "1", "threshold in force for relative_error")
      .add_wide("optimizer_error", real, n_tensors, "tensor", "1",
                "difference of the optimiser's step, given the same gradient and moments")
      .add("verdict", small, "1", "outcome of the audit")
      .add_text("note", "what was found, in words");
  table_.set_attribute("scope", "names", joined(kAuditScopeNames));
  table_.set_attribute("verdict", "names", joined(kVerdictNames));
}

void AuditTable::append(const AuditRow& row) {
  const auto or_unknown = [&](std::span<const double> values) {
    return values.empty() ? std::span<const double>(unknown_) : values;
  };
  table_.put(row.step)
      .put(static_cast<std::int8_t>(row.scope))
      .put(row.micro_batch)
      .put(row.loss_error)
      .put(row.norm_error)
      .put(or_unknown(row.relative_error))
      .put(or_unknown(row.projection))
      .put(or_unknown(row.bound))
      .put(or_unknown(row.optimizer_error))
      .put(static_cast<std::int8_t>(row.verdict))
      .put_text(row.note);
}

hdf5::Table load_memory_table(const hdf5::Id& load) {
  const hdf5::Id digest = hdf5::digest_type();
  hdf5::Table table(load, "memory", "reading", kChunk);
  table.add("step", hdf5::int64_type(), "updates", "updates made before the reading")
      .add("tensor", hdf5::int64_type(), "1", "row of /load/name")
      .add("digest", {digest.get(), digest.get(), hdf5::kDigestChars}, "SHA-256",
           "of the tensor in memory, its values as float32 little-endian");
  return table;
}

}  // namespace tandem
