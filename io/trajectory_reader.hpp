// Reads trajectory files of any stack, in any of HDF5's kinds of text and numbers (io/FORMAT.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/observations.hpp"

namespace tandem {

// Everything a file holds. A part that is absent is nullopt; a column that is absent in a part with rows is
// empty.
struct Trajectory {
  std::filesystem::path path;
  std::int64_t format_version = 0;
  std::string stack, written_at;
  bool complete = false;
  std::string spec_text, spec_digest, execution_text, execution_digest;
  std::map<std::string, std::string> provenance;  // numbers as text

  struct Load {
    std::vector<std::string> name, digest, dtype;
    std::vector<std::vector<std::int64_t>> shape;  // without the -1
    std::vector<double> mean, rms;
    std::string config;
    // Readings of the weights in memory: after which update, which tensor (a row above), its digest.
    struct Memory {
      std::vector<std::int64_t> step, tensor;
      std::vector<std::string> digest;
    };
    std::optional<Memory> memory;
  };
  struct Render {
    std::vector<std::string> digest;
    std::vector<std::int64_t> n_ids, n_targets, last_target_id;
    std::int64_t n_train = 0;  // the first n_train rows are training samples
    std::string template_digest;
  };
  struct Ops {
    std::vector<std::string> name;
    std::vector<double> error, bound;
  };
  struct AdapterNames {
    std::vector<std::string> names;
    std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
  };
  struct Updates {
    std::int64_t rows = 0, batch_global = 0;
    std::vector<std::int64_t> step, optimizer_step, n_targets, n_samples;
    std::vector<double> loss, grad_norm, clip, lr, seconds;
    std::vector<std::uint64_t> checksum, adapter_checksum;
    std::vector<std::int64_t> sample_ids;  // [rows, batch_global], -1 = none
  };
  struct Observed {
    std::int64_t rows = 0;
    std::vector<std::int64_t> step;
    std::vector<double> tensor_grad_norm;  // [rows, P]
  };
  struct Evals {
    std::int64_t rows = 0;
    std::vector<std::int64_t> step, n_tokens;
    std::vector<double> nll_sum, loss, seconds;
    std::vector<std::string> adapter_digest;
    std::vector<double> loss_adapter_off;  // [2], NaN = not known
  };
  struct Memory {
    std::vector<std::int64_t> host_bytes, device_bytes;  // [E]
  };
  struct Probe {
    std::int64_t rows = 0;
    ProbeTokens tokens;                     // [K]
    std::vector<double> nll, target_logit;  // [rows, K]
    std::vector<std::int64_t> topk_id;      // [rows, K, kTopLogits]
    std::vector<double> topk_logit;
  };
  struct Activations {
    std::int64_t rows = 0, n_layers = 0, n_modules = 0, n_tensors = 0;  // 0: no such column
    std::vector<double> rms, absmax;                                    // [rows, n_layers]
    std::vector<double> ba_norm;                                        // [rows, n_modules]
    std::vector<double> update_norm;                                    // [rows, n_tensors]
  };
  struct Audits {
    std::int64_t rows = 0, n_tensors = 0;
    std::vector<std::int64_t> step, micro_batch;
    std::vector<AuditScope> scope;
    std::vector<double> loss_error, norm_error;
    std::vector<double> relative_error, projection, bound, optimizer_error;  // [rows, n_tensors]
    std::vector<Verdict> verdict;
    std::vector<std::string> note;
  };
  struct SlowPhases {
    std::int64_t rows = 0;
    std::vector<std::int64_t> step, rank;
    std::vector<double> factor;
    std::vector<std::string> phase, host, seen;
  };
  std::optional<Load> load;
  std::optional<Ops> ops;
  std::optional<Render> render;
  std::optional<AdapterNames> adapter;
  std::optional<Updates> updates;
  std::optional<Observed> observed;
  std::optional<Evals> evals;
  std::optional<Memory> memory;
  std::optional<Probe> probe;
  std::optional<Activations> activations;
  std::optional<Audits> audits;
  std::optional<SlowPhases> slow;
  std::vector<std::string> parts;  // every group the file holds, those unknown to this reader too
  // Snapshots: step and file (as linked, made absolute by the folder of `path`).
  std::vector<std::pair<std::int64_t, std::filesystem::path>> snapshots;
};

// Throws kInput, one line with the file and the dataset: not HDF5, damaged, not a trajectory, another major
// version, an unknown value of an enumeration, columns of unequal length, more data announced than stored.
Trajectory read_trajectory(const std::filesystem::path& file);

// For files of unknown origin: HDF5 itself crashes on some damaged ones, so a child process with bounded
// memory and time reads the file first (contained.hpp), and its death is an error (kInput) of this one. Not
// for a process that runs MPI.
Trajectory read_untrusted_trajectory(const std::filesystem::path& file);

// Token ids and target marks of sample i of /render; nullopt where the file does not hold them.
struct RenderedSample {
  std::vector<std::int64_t> ids, targets;
};
std::optional<RenderedSample> read_rendered_sample(const std::filesystem::path& file, std::int64_t i);

// One part ("adapter", "m", "v", "gradient") of a snapshot file, tensor by tensor in the order of `adapter`.
// Throws kInput where one is missing or has another shape.
std::vector<std::vector<double>> read_snapshot(const std::filesystem::path& file, const std::string& part,
                                               const Trajectory::AdapterNames& adapter);

}  // namespace tandem
