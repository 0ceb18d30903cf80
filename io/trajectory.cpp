#include "io/trajectory.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <type_traits>

#include "io/format/writer.hpp"
#include "io/hdf5.hpp"
#include "io/observation_tables.hpp"
#include "io/publish.hpp"
#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using hdf5::Id;

constexpr double kMostOfTheTime = 0.05;            // share of the run spent publishing
constexpr std::size_t kAttributeBytes = 64 << 10;  // larger texts become datasets
constexpr std::int64_t kUpdateChunk = 512;         // rows; 4 KiB of scalars
constexpr std::int64_t kEvalChunk = 64;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

[[noreturn]] void misused(const std::string& what) {
  throw Error(ErrorKind::kInternal, "trajectory: " + what);
}

void check_digest(const std::string& digest, const char* where) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (digest.size() != hdf5::kDigestChars || !std::all_of(digest.begin(), digest.end(), is_hex))
    misused(cat(where, ": \"", digest, "\" is not a SHA-256 digest"));
}

// One text and its digest, as /spec and /execution have them.
void write_canonical(const Id& file, const std::string& group, const std::string& text) {
  hdf5::create_group(file, group);
  format::write(file, group + "/text", text);
  format::write(file, group + "/digest", sha256_hex(text));
}

template <class T>
void write_snapshot_part(const Id& group, const std::vector<std::span<const T>>& tensors,
                         std::span<const std::string> names,
                         std::span<const std::pair<std::int64_t, std::int64_t>> shapes) {
  if (tensors.size() != names.size()) misused("a snapshot of another number of tensors than the adapter has");
  const auto type = std::is_same_v<T, float> ? hdf5::float32_type() : hdf5::float64_type();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const hsize_t dims[] = {static_cast<hsize_t>(shapes[i].first), static_cast<hsize_t>(shapes[i].second)};
    if (tensors[i].size() != dims[0] * dims[1]) misused(cat("a snapshot with another size of ", names[i]));
    hdf5::write_array(group, names[i], type, dims, tensors[i].data(),
                      {"1", "row-major, as the adapter's matrix", {"row", "column"}});
  }
}

}  // namespace

RenderRow render_row(const SampleSet& samples, std::int64_t i) {
  const auto ids = samples.ids(i);
  const auto marks = samples.targets(i);
  RenderRow row{samples.digest(i), samples.length(i), samples.n_scored(i), -1};
  for (std::size_t p = 1; p < ids.size(); ++p)
    if (marks[p]) row.last_target_id = ids[p];
  return row;
}

std::optional<TrajectoryEnd> trajectory_end(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  try {
    const hdf5::Id opened = hdf5::open_for_reading(file);
    const hdf5::Node root(opened, file);
    TrajectoryEnd end;
    end.complete = root.int_attribute("complete").value_or(0) == 1;
    if (const auto spec = root.group("spec")) end.spec_text = spec->text("text").value_or("");
    if (const auto updates = root.group("update"))
      if (const std::vector<std::int64_t> shape = updates->shape("step"); !shape.empty())
        end.last_update = shape[0];
    return end;
  } catch (const Error&) {
    return std::nullopt;
  }
}

struct TrajectoryWriter::State {
  State(fs::path path_, const TrajectoryHeader& header_, double flush_s_, const fs::path& begin)
      : path(std::move(path_)),
        header(header_),
        flush_s(flush_s_),
        file(begin.empty() ? hdf5::create_in_memory(path.string() + " (in memory)")
                           : hdf5::open_in_memory(begin)),
        provenance(hdf5::create_group(file, "provenance")) {
    if (!header.records_updates) return;
    format::Sizes sizes;
    if (header.batch_global > 0) sizes["G"] = header.batch_global;
    updates = format::growing_table(file, "update", "U", sizes, kUpdateChunk);
  }

  // What a file that is continued holds already.
  void find_end(const fs::path& begin) {
    const hdf5::Node root(file, begin);
    if (const auto format = root.text_attribute("format"); format != "tandem-trajectory")
      throw Error(ErrorKind::kInput, cat(begin.string(), ": is no trajectory"));
    const auto last = [&](const char* group, std::int64_t none) {
      const auto node = root.group(group);
      std::vector<std::int64_t> dims;
      const auto steps = node ? node->ints("step", dims) : std::vector<std::int64_t>();
      return steps.empty() ? none : steps.back();
    };
    last_update = last("update", 0);
    last_eval = last("eval", -1);
    last_audit = last("audit", 0);
    last_slow = last("slow", 0);
    const auto peak = [&](const char* name) {
      const auto node = root.group("memory");
      std::vector<std::int64_t> dims;
      const auto bytes = node ? node->ints(name, dims) : std::vector<std::int64_t>();
      return bytes.empty() ? 0 : bytes.back();
    };
    host_peak = peak("host_bytes");
    device_peak = peak("device_bytes");
    if (const auto node = root.group("provenance"))
      for (const std::string& name : node->attributes())
        known_provenance[name] = node->attribute_as_text(name);
    if (hdf5::exists(file, "snapshot")) {
      snapshots = hdf5::open_group(file, "snapshot");
      for (const std::string& name : root.group("snapshot")->members())
        snapshot_steps.insert(std::stoll(name));
    }
  }

  fs::path snapshot_folder() const { return path.parent_path() / (path.stem().string() + ".snapshots"); }

  // Rows of all tables, then the image of the file.
  void write_pending() {
    for (auto* table : {&updates, &evals, &memory, &observed, &norms, &load_memory, &slow})
      if (*table) (*table)->write_pending();
    if (probe) probe->write_pending();
    if (audits) audits->write_pending();
  }

  fs::path path;
  TrajectoryHeader header;
  double flush_s;
  Id file, provenance;
  std::optional<hdf5::Table> updates, evals, memory, observed, norms, load_memory, slow;
  std::optional<ProbeTables> probe;
  std::optional<AuditTable> audits;
  Id snapshots;
  std::set<std::int64_t> snapshot_steps;
  std::map<std::string, std::string> known_provenance;  // of a file that is continued
  std::vector<std::string> adapter_names;
  std::vector<std::pair<std::int64_t, std::int64_t>> adapter_shapes;
  std::int64_t n_base_tensors = 0;
  std::int64_t last_update = 0, last_eval = -1, last_audit = 0, last_slow = 0;
  std::int64_t host_peak = 0, device_peak = 0;  // of earlier processes too, where a run was continued
  std::vector<std::int64_t> sample_ids;         // one padded row
  std::vector<std::byte> image;
  Clock::time_point start = Clock::now(), last_publication = start;
  double seconds_publishing = 0.0, last_publication_s = 0.0;
};

TrajectoryWriter::TrajectoryWriter(fs::path file, const TrajectoryHeader& header, double flush_s)
    : TrajectoryWriter(std::move(file), header, flush_s, {}) {}

TrajectoryWriter::TrajectoryWriter(fs::path file, const TrajectoryHeader& header, double flush_s,
                                   const fs::path& begin)
    : state_(std::make_unique<State>(std::move(file), header, flush_s, begin)) {
  auto& s = *state_;
  if (!begin.empty()) s.find_end(begin);
  hdf5::set_attribute(s.file, "format", "tandem-trajectory");
  hdf5::set_attribute(s.file, "format_version", kTrajectoryVersion);
  hdf5::set_attribute(s.file, "stack", header.stack);
  hdf5::set_attribute(s.file, "complete", std::int64_t{0});
  if (!header.spec_text.empty()) write_canonical(s.file, "spec", header.spec_text);
  if (hdf5::exists(s.file, "execution")) hdf5::remove(s.file, "execution");
  if (!header.execution_text.empty()) write_canonical(s.file, "execution", header.execution_text);
  for (const auto& [name, value] : header.provenance)
    if (!s.known_provenance.contains(name)) set_provenance(name, value);
  s.sample_ids.resize(static_cast<std::size_t>(header.batch_global));
  if (header.records_slow) s.slow = format::growing_table(s.file, "slow", "W", {}, kEvalChunk);
  if (!header.records_eval) return;
  s.evals = format::growing_table(s.file, "eval", "E", {}, kEvalChunk);
  s.memory = format::growing_table(s.file, "memory", "E", {}, kEvalChunk);
  if (!begin.empty()) return;
  const double unknown[] = {std::nan(""), std::nan("")};
  format::write(s.file, "eval/loss_adapter_off", unknown);
}

TrajectoryWriter::~TrajectoryWriter() = default;
TrajectoryWriter::TrajectoryWriter(TrajectoryWriter&&) noexcept = default;

const fs::path& TrajectoryWriter::path() const { return state_->path; }
double TrajectoryWriter::seconds_publishing() const { return state_->seconds_publishing; }

void TrajectoryWriter::set_load(std::span<const LoadRow> tensors, std::string_view config) {
  std::vector<std::string> names, dtypes;
  std::string digests;
  std::vector<std::int64_t> shapes;
  std::vector<double> mean, rms;
  for (const auto& tensor : tensors) {
    if (tensor.shape.size() > kMaxLoadDims)
      misused(cat("/load: ", tensor.name, " has more than 4 dimensions"));
    check_digest(tensor.digest, "/load");
    names.push_back(tensor.name);
    dtypes.push_back(tensor.dtype);
    digests += tensor.digest;
    for (std::size_t d = 0; d < kMaxLoadDims; ++d)
      shapes.push_back(d < tensor.shape.size() ? tensor.shape[d] : -1);
    mean.push_back(tensor.mean);
    rms.push_back(tensor.rms);
  }
  const Id& file = state_->file;
  hdf5::create_group(file, "load");
  format::write(file, "load/name", names);
  format::write(file, "load/digest", digests);
  format::write(file, "load/shape", shapes);
  format::write(file, "load/dtype", dtypes);
  format::write(file, "load/mean", mean);
  format::write(file, "load/rms", rms);
  format::write(file, "load/config", config);
  state_->n_base_tensors = static_cast<std::int64_t>(tensors.size());
  if (state_->header.records_audits)
    state_->load_memory = format::growing_table(file, "load/memory", "R", {}, kEvalChunk);
}

void TrajectoryWriter::set_render(std::span<const RenderRow> train, std::span<const RenderRow> held_out,
                                  std::string_view template_digest) {
  std::string digests;
  std::vector<std::int64_t> n_ids, n_targets, last;
  for (const auto rows : {train, held_out})
    for (const auto& row : rows) {
      check_digest(row.digest, "/render");
      digests += row.digest;
      n_ids.push_back(row.n_ids);
      n_targets.push_back(row.n_targets);
      last.push_back(row.last_target_id);
    }
  const Id& file = state_->file;
  const Id group = hdf5::create_group(file, "render");
  hdf5::set_attribute(group, "n_train", static_cast<std::int64_t>(train.size()));
  format::write(file, "render/digest", digests);
  format::write(file, "render/n_ids", n_ids);
  format::write(file, "render/n_targets", n_targets);
  format::write(file, "render/last_target_id", last);
  format::write(file, "render/template_digest", template_digest);
}

void TrajectoryWriter::set_render(const SampleSet& train, const SampleSet& held_out,
                                  std::string_view template_digest, bool with_ids) {
  const auto rows = [](const SampleSet& samples) {
    std::vector<RenderRow> list;
    for (std::int64_t i = 0; i < samples.size(); ++i) list.push_back(render_row(samples, i));
    return list;
  };
  set_render(rows(train), rows(held_out), template_digest);
  if (!with_ids) return;
  std::vector<std::int64_t> begin = train.all_begins();
  for (std::int64_t i = 1; i <= held_out.size(); ++i)
    begin.push_back(train.all_begins().back() + held_out.all_begins()[i]);
  std::vector<std::int32_t> ids = train.all_ids();
  ids.insert(ids.end(), held_out.all_ids().begin(), held_out.all_ids().end());
  std::vector<std::uint8_t> marks = train.all_targets();
  marks.insert(marks.end(), held_out.all_targets().begin(), held_out.all_targets().end());
  format::write(state_->file, "render/begin", begin);
  format::write(state_->file, "render/ids", ids);
  format::write(state_->file, "render/targets", marks);
}

void TrajectoryWriter::set_ops(std::span<const OperationRow> operations) {
  std::vector<std::string> names;
  std::vector<double> error, bound;
  for (const OperationRow& operation : operations) {
    names.push_back(operation.name);
    error.push_back(operation.error);
    bound.push_back(operation.bound);
  }
  const Id& file = state_->file;
  hdf5::create_group(file, "ops");
  format::write(file, "ops/name", names);
  format::write(file, "ops/error", error);
  format::write(file, "ops/bound", bound);
}

void TrajectoryWriter::set_adapter(std::span<const std::string> names,
                                   std::span<const std::pair<std::int64_t, std::int64_t>> shapes) {
  auto& s = *state_;
  if (names.size() != shapes.size() || names.empty()) misused("/adapter: names and shapes do not match");
  s.adapter_names.assign(names.begin(), names.end());
  s.adapter_shapes.assign(shapes.begin(), shapes.end());
  std::vector<std::int64_t> flat;
  for (const auto& [rows, cols] : shapes) flat.insert(flat.end(), {rows, cols});
  hdf5::create_group(s.file, "adapter");
  format::write(s.file, "adapter/names", names);
  format::write(s.file, "adapter/shapes", flat);
  const auto n_tensors = static_cast<std::int64_t>(names.size());
  const format::Sizes sizes = {{"P", n_tensors}, {"M", n_tensors / 2}};
  if (s.header.records_norms) s.norms = format::growing_table(s.file, "activation", "E", sizes, kEvalChunk);
  if (s.header.records_audits) s.audits.emplace(s.file, n_tensors);
  if (s.header.records_observed)
    s.observed = format::growing_table(s.file, "observed", "O", sizes, kEvalChunk);
}

void TrajectoryWriter::set_probe(const ProbeTokens& tokens, std::int64_t n_layers) {
  if (!state_->evals) misused("a probe, but the header says there are no evaluations");
  if (tokens.size() < 1 || tokens.size() > kMostProbeTokens || tokens.sample.size() != tokens.target.size() ||
      tokens.position.size() != tokens.target.size())
    misused(cat("/probe: of ", tokens.size(), " tokens, or lists of unequal lengths"));
  state_->probe.emplace(state_->file, tokens, n_layers);
}

void TrajectoryWriter::set_provenance(const std::string& name, const std::string& value) {
  auto& group = state_->provenance;
  if (value.size() <= kAttributeBytes) return hdf5::set_attribute(group, name, value);
  hdf5::write_text(group, name, value, {"text", "provenance too long for an attribute"});
}

void TrajectoryWriter::set_provenance(const std::string& name, std::int64_t value) {
  hdf5::set_attribute(state_->provenance, name, value);
}

void TrajectoryWriter::set_provenance(const std::string& name, double value) {
  hdf5::set_attribute(state_->provenance, name, value);
}

void TrajectoryWriter::add_provenance(const std::string& name, const std::string& value) {
  std::string& all = state_->known_provenance[name];
  all += (all.empty() ? "" : "; ") + value;
  set_provenance(name, all);
}

void TrajectoryWriter::append_update(const UpdateRow& row) {
  auto& s = *state_;
  if (!s.updates) misused("an update, but the header says there are none");
  if (row.step != s.last_update + 1)
    misused(cat("update ", row.step, " does not follow update ", s.last_update));
  if (row.sample_ids.size() > s.sample_ids.size())
    misused(cat("update ", row.step, " has ", row.sample_ids.size(), " samples, batch.global is ",
                s.sample_ids.size()));
  s.last_update = row.step;
  std::fill(s.sample_ids.begin(), s.sample_ids.end(), -1);
  std::copy(row.sample_ids.begin(), row.sample_ids.end(), s.sample_ids.begin());
  s.updates->put(row.step)
      .put(row.optimizer_step)
      .put(row.loss)
      .put(row.n_targets)
      .put(row.grad_norm)
      .put(row.clip)
      .put(row.lr)
      .put(row.n_samples)
      .put(row.checksum)
      .put(row.seconds)
      .put(row.adapter_checksum);
  if (!s.sample_ids.empty()) s.updates->put(std::span<const std::int64_t>(s.sample_ids));
}

void TrajectoryWriter::append_eval(const EvalRow& row) {
  auto& s = *state_;
  if (!s.evals) misused("an evaluation, but the header says there are none");
  if (row.step <= s.last_eval)
    misused(cat("evaluation at ", row.step, " does not follow that at ", s.last_eval));
  check_digest(row.adapter_digest, "/eval");
  s.last_eval = row.step;
  s.evals->put(row.step)
      .put(row.nll_sum)
      .put(row.n_tokens)
      .put(row.loss)
      .put(row.seconds)
      .put(std::span<const char>(row.adapter_digest));
  s.host_peak = std::max(s.host_peak, row.host_bytes);
  s.device_peak = std::max(s.device_peak, row.device_bytes);
  s.memory->put(s.host_peak).put(s.device_peak);
  if (s.probe) s.probe->append(row.probe);
  if (s.norms) s.norms->put(row.norms.ba_norm).put(row.norms.update_norm);
}

void TrajectoryWriter::set_loss_adapter_off(double start, double end) {
  auto& s = *state_;
  if (!s.evals) misused("loss_adapter_off, but the header says there are no evaluations");
  const double values[] = {start, end};
  hdf5::overwrite(s.evals->group(), "loss_adapter_off", hdf5::float64_type(), values);
}

void TrajectoryWriter::append_observed(std::int64_t step, std::span<const double> tensor_grad_norm) {
  if (!state_->observed)
    misused("an observation, but the header says there are none, or set_adapter is missing");
  state_->observed->put(step).put(tensor_grad_norm);
}

void TrajectoryWriter::append_audit(const AuditRow& row) {
  auto& s = *state_;
  if (!s.audits) misused("an audit, but the header says there are none, or set_adapter is missing");
  if (row.step < s.last_audit) misused(cat("audit of ", row.step, " after that of ", s.last_audit));
  if ((row.scope == AuditScope::kBatch) != (row.micro_batch < 0))
    misused(cat("audit of ", row.step, ": micro-batch ", row.micro_batch, " does not fit its scope"));
  s.last_audit = row.step;
  s.audits->append(row);
}

void TrajectoryWriter::append_slow(const SlowRow& row) {
  auto& s = *state_;
  if (!s.slow) misused("a slow phase, but the header says there are none");
  if (row.step < s.last_slow) misused(cat("a slow phase at ", row.step, " after one at ", s.last_slow));
  s.last_slow = row.step;
  s.slow->put(row.step)
      .put(row.rank)
      .put(row.factor)
      .put_text(row.phase)
      .put_text(row.host)
      .put_text(row.seen);
}

void TrajectoryWriter::append_load_memory(std::int64_t step, std::int64_t row, const std::string& digest) {
  auto& s = *state_;
  if (!s.load_memory) misused("weights in memory, but the header says there are no audits, or no set_load");
  if (row < 0 || row >= s.n_base_tensors)
    misused(cat("/load/memory: tensor ", row, " of ", s.n_base_tensors));
  check_digest(digest, "/load/memory");
  s.load_memory->put(step).put(row).put(std::span<const char>(digest));
}

void TrajectoryWriter::write_snapshot(std::int64_t step, std::span<const SnapshotPart> parts) {
  auto& s = *state_;
  if (s.adapter_names.empty()) misused("a snapshot before set_adapter");
  const fs::path folder = s.snapshot_folder();
  fs::create_directories(folder);
  const std::string name = std::to_string(step);
  FilePublisher publisher(folder / (name + ".h5"));
  try {
    // HDF5 writes into the publisher's temporary; closing it leaves a whole file to publish.
    Id file = hdf5::create_on_disk(publisher.temporary());
    for (const auto& part : parts) {
      const Id group = hdf5::create_group(file, part.name);
      std::visit(
          [&](const auto& tensors) {
            write_snapshot_part(group, tensors, s.adapter_names, s.adapter_shapes);
          },
          part.tensors);
    }
    hdf5::close_file(file);
  } catch (const Error& error) {
    throw Error(error.kind(), cat(publisher.path().string(), ": ", error.what()));
  }
  publisher.publish();
  if (!s.snapshots) s.snapshots = hdf5::create_group(s.file, "snapshot");
  hdf5::link_external(s.snapshots, name, (folder.filename() / (name + ".h5")).string());
  s.snapshot_steps.insert(step);
}

bool TrajectoryWriter::has_snapshot(std::int64_t step) const { return state_->snapshot_steps.contains(step); }

void TrajectoryWriter::remove_other_snapshots() const {
  std::error_code error;
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(state_->snapshot_folder(), error)) {
    bool linked = false;
    for (const std::int64_t step : state_->snapshot_steps)
      linked = linked || entry.path().filename() == cat(step, ".h5");
    if (!linked) others.push_back(entry.path());
  }
  for (const fs::path& file : others) {
    fs::remove_all(file, error);
    if (error) throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be removed: ", error.message()));
  }
}

void TrajectoryWriter::publish() {
  auto& s = *state_;
  const auto begin = Clock::now();
  s.write_pending();
  hdf5::set_attribute(s.file, "written_at", utc_now());
  hdf5::file_image(s.file, s.image);
  publish_file(s.path, s.image);
  s.last_publication = Clock::now();
  s.last_publication_s = seconds_between(begin, s.last_publication);
  s.seconds_publishing += s.last_publication_s;
}

bool TrajectoryWriter::maybe_publish() {
  auto& s = *state_;
  const auto now = Clock::now();
  if (seconds_between(s.last_publication, now) < s.flush_s) return false;
  const double after = s.seconds_publishing + s.last_publication_s;
  if (after > kMostOfTheTime * (seconds_between(s.start, now) + s.last_publication_s)) return false;
  publish();
  return true;
}

void TrajectoryWriter::finish() {
  hdf5::set_attribute(state_->file, "complete", std::int64_t{1});
  try {
    publish();
  } catch (...) {
    hdf5::set_attribute(state_->file, "complete", std::int64_t{0});
    throw;
  }
}

}  // namespace tandem
