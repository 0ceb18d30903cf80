#include "io/observation_tables.hpp"

#include "io/format/writer.hpp"

namespace tandem {

namespace {

constexpr std::int64_t kChunk = 64;  // rows

}  // namespace

ProbeTables::ProbeTables(const hdf5::Id& file, const ProbeTokens& tokens, std::int64_t n_layers)
    : probe_(format::growing_table(file, "probe", "E", {{"K", tokens.size()}}, kChunk)),
      activation_(format::growing_table(file, "activation", "E", {{"L", n_layers}}, kChunk)) {
  format::write(file, "probe/sample", tokens.sample);
  format::write(file, "probe/position", tokens.position);
  format::write(file, "probe/target", tokens.target);
}

void ProbeTables::append(const ProbeRow& row) {
  probe_.put(row.nll).put(row.target_logit).put(row.topk_id).put(row.topk_logit);
  activation_.put(row.rms).put(row.absmax);
}

void ProbeTables::write_pending() {
  probe_.write_pending();
  activation_.write_pending();
}

AuditTable::AuditTable(const hdf5::Id& file, std::int64_t n_tensors)
    : table_(format::growing_table(file, "audit", "A", {{"P", n_tensors}}, kChunk)),
      unknown_(static_cast<std::size_t>(n_tensors), std::numeric_limits<double>::quiet_NaN()) {
  table_.set_attribute("scope", "names", format::scope_names());
  table_.set_attribute("verdict", "names", format::verdict_names());
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

}  // namespace tandem
