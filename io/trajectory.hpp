// What a run leaves for comparison: the trajectory file of one stack (io/FORMAT.md), written live.
//
// The file is kept in memory and published as a whole: a reader finds a complete, closed HDF5 file at any
// time, however the run ends. One thread uses a writer. Errors are kInput for the file system, kInternal for
// rows that do not fit (a step that does not follow, a row of another width, text with a NUL byte).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/observations.hpp"
#include "io/samples.hpp"

namespace tandem {

inline constexpr std::int64_t kTrajectoryVersion = 1;
inline constexpr std::int64_t kMaxLoadDims = 4;

struct TrajectoryHeader {
  std::string stack = "native";
  std::string spec_text, execution_text;  // canonical; their digests are computed here; "": no such part
  std::int64_t batch_global = 0;          // G: width of /update/sample_ids
  // "arithmetic", "orchestration", "runtime", versions, hosts, ...; more may be set later.
  std::map<std::string, std::string> provenance;
  bool records_updates = true;    // /update exists
  bool records_eval = true;       // /eval and /memory exist
  bool records_observed = false;  // /observed exists; needs set_adapter
  bool records_norms = false;     // /activation/{ba_norm, update_norm} exist; needs set_adapter
  bool records_slow = false;      // /slow exists
  bool records_audits = false;    // /audit and /load/memory exist; needs set_adapter and set_load
};

// /load, level 2: one base tensor as read.
struct LoadRow {
  std::string name;
  std::string digest;               // SHA-256 of its bytes in the file's dtype
  std::vector<std::int64_t> shape;  // at most 4
  std::string dtype;                // as the file writes it
  double mean = 0.0, rms = 0.0;
};

// /render, level 3: one sample.
struct RenderRow {
  std::string digest;  // SampleSet::digest
  std::int64_t n_ids = 0, n_targets = 0;
  std::int64_t last_target_id = -1;  // -1: no target
};

RenderRow render_row(const SampleSet& samples, std::int64_t i);

// /ops, level 1: one operation's largest error on seeded inputs, and what it may be.
struct OperationRow {
  std::string name;
  double error = 0.0, bound = 0.0;
};

struct UpdateRow {
  std::int64_t step = 0;                                   // from 1, each follows the one before
  std::int64_t optimizer_step = 0;                         // steps made so far
  double loss = std::numeric_limits<double>::quiet_NaN();  // NaN: nothing was scored
  std::int64_t n_targets = 0;
  double grad_norm = 0.0, clip = 1.0, lr = 0.0;
  std::int64_t n_samples = 0;
  std::uint64_t checksum = 0;  // of the reduced limbs
  double seconds = 0.0;
  std::uint64_t adapter_checksum = 0;        // after the step
  std::span<const std::int64_t> sample_ids;  // the global batch in order, at most G; the rest becomes -1
};

struct EvalRow {
  std::int64_t step = 0;  // 0 = untrained; ascending
  double nll_sum = 0.0;
  std::int64_t n_tokens = 0;
  double loss = 0.0, seconds = 0.0;
  std::string adapter_digest;                     // 64 characters
  std::int64_t host_bytes = 0, device_bytes = 0;  // peak so far, over ranks; the run's goes to /memory
  ProbeRow probe = {};                            // looked at where set_probe was called
  NormRow norms = {};                             // looked at where the header's records_norms is set
};

// A phase of the run that has become slow on one rank.
struct SlowRow {
  std::int64_t step = 0;  // the last of the updates that were slow, or the update before the last evaluation
  std::int64_t rank = 0;  // -1: all
  double factor = 0.0;    // times its usual time
  std::string phase;      // "gradient", ...
  std::string host, seen;
};

// One part of a snapshot: a flat tensor per adapter tensor, in the order of /adapter/names.
struct SnapshotPart {
  std::string name;  // "adapter", "m", "v" or "gradient"
  std::variant<std::vector<std::span<const float>>, std::vector<std::span<const double>>> tensors;
};

// Whether a published file is complete, and how far it goes; nullopt where there is none or it cannot be
// read.
struct TrajectoryEnd {
  bool complete = false;
  std::int64_t last_update = 0;
  std::string spec_text;
};
std::optional<TrajectoryEnd> trajectory_end(const std::filesystem::path& file);

class TrajectoryWriter {
 public:
  // Nothing is on disk before the first publish(). flush_s: least seconds between maybe_publish()es.
  TrajectoryWriter(std::filesystem::path file, const TrajectoryHeader& header, double flush_s);
  // Continues what the file `begin` holds, whose spec and parts must be the header's; the set_ functions
  // below then compare what is there with what they are given, and throw kInput where it differs. The
  // execution's text is replaced; of provenance, what is there already stays. `begin` itself stays as it is.
  TrajectoryWriter(std::filesystem::path file, const TrajectoryHeader& header, double flush_s,
                   const std::filesystem::path& begin);
  ~TrajectoryWriter();  // publishes nothing
  TrajectoryWriter(TrajectoryWriter&&) noexcept;

  // Each at most once, before the first publication. `config` echoes the model's configuration as read
  // (JSON).
  void set_load(std::span<const LoadRow> tensors, std::string_view config);
  void set_render(std::span<const RenderRow> train, std::span<const RenderRow> held_out,
                  std::string_view template_digest);
  // The same from the samples; with_ids: their ids and target marks too.
  void set_render(const SampleSet& train, const SampleSet& held_out, std::string_view template_digest,
                  bool with_ids = false);
  void set_ops(std::span<const OperationRow> operations);
  // Names "<module>.lora_A.weight" ... and [rows, cols], in the order of every per-tensor column.
  void set_adapter(std::span<const std::string> names,
                   std::span<const std::pair<std::int64_t, std::int64_t>> shapes);
  // /probe, and /activation/{rms, absmax} of that many layers.
  void set_probe(const ProbeTokens& tokens, std::int64_t n_layers);
  // Adds or replaces one attribute of /provenance, at any time.
  void set_provenance(const std::string& name, const std::string& value);
  void set_provenance(const std::string& name, std::int64_t value);
  void set_provenance(const std::string& name, double value);

  // Adds to a list: the entries before it, "; ", the value.
  void add_provenance(const std::string& name, const std::string& value);

  void append_update(const UpdateRow& row);
  void append_eval(const EvalRow& row);
  // /eval/loss_adapter_off: at step 0 and at the end; NaN while not known.
  void set_loss_adapter_off(double start, double end = std::numeric_limits<double>::quiet_NaN());
  // tensor_grad_norm [P].
  void append_observed(std::int64_t step, std::span<const double> tensor_grad_norm);
  // Steps do not descend.
  void append_slow(const SlowRow& row);
  // Steps do not descend.
  void append_audit(const AuditRow& row);
  // /load/memory: tensor `row` of set_load as it lies in memory after update `step`.
  void append_load_memory(std::int64_t step, std::int64_t row, const std::string& digest);
  // Publishes FILE's stem + ".snapshots/<step>.h5" and links it as /snapshot/<step>. Needs set_adapter.
  void write_snapshot(std::int64_t step, std::span<const SnapshotPart> parts);
  bool has_snapshot(std::int64_t step) const;
  // Deletes the snapshots beside the file that it does not link: of a run that got further than where it is
  // continued.
  void remove_other_snapshots() const;

  // Puts all rows so far on disk (see publish.hpp). After an error the writer is whole and may publish again.
  void publish();
  // publish() if flush_s seconds went by since the last one and publishing took at most 5 % of the time since
  // the start, this one included. True if it published.
  bool maybe_publish();
  // The last publication: `complete` becomes 1.
  void finish();

  const std::filesystem::path& path() const;
  double seconds_publishing() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
