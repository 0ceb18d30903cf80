#include "io/trajectory_reader.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <tuple>

#include "io/contained.hpp"
#include "io/hdf5.hpp"
#include "io/trajectory.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

using hdf5::Node;
using Dims = std::vector<std::int64_t>;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::kInput, cat(where, ": ", what));
}

// The second extent of a two-dimensional dataset; 0 where it is absent.
std::int64_t width_of(const Node& group, const char* name) {
  if (!group.has(name)) return 0;
  const Dims dims = group.shape(name);
  if (dims.size() != 2 || dims[1] < 1) refuse(group.where() + name, "is not two-dimensional");
  return dims[1];
}

// Reads the columns of one group and holds them to one number of rows; a column that is absent stays empty.
class TableReader {
 public:
  explicit TableReader(const Node& group) : group_(group) {}

  // row_shape: of one row; empty: one element per row.
  TableReader& read(const char* name, std::vector<double>& out, const Dims& row_shape = {}) {
    return take(name, row_shape, out, [&](Dims& dims) { return group_.doubles(name, dims); });
  }
  TableReader& read(const char* name, std::vector<std::int64_t>& out, const Dims& row_shape = {}) {
    return take(name, row_shape, out, [&](Dims& dims) { return group_.ints(name, dims); });
  }
  TableReader& read(const char* name, std::vector<std::uint64_t>& out) {
    return take(name, {}, out, [&](Dims& dims) { return group_.uints(name, dims); });
  }
  TableReader& read(const char* name, std::vector<std::string>& out) {
    return take(name, {}, out, [&](Dims& dims) { return group_.texts(name, dims); });
  }
  // A dataset [rows, columns]; returns its columns, 0 where it is absent.
  std::int64_t read_wide(const char* name, std::vector<double>& out) {
    const std::int64_t width = width_of(group_, name);
    if (width > 0) read(name, out, {width});
    return width;
  }
  std::int64_t rows() const { return rows_ < 0 ? 0 : rows_; }

 private:
  template <class T, class Get>
  TableReader& take(const char* name, const Dims& row_shape, std::vector<T>& out, Get&& get) {
    if (!group_.has(name)) return *this;
    // The shape first: what does not fit is not read.
    Dims dims = group_.shape(name);
    if (dims.empty() || !std::equal(dims.begin() + 1, dims.end(), row_shape.begin(), row_shape.end())) {
      std::string wanted;
      for (const std::int64_t size : row_shape) wanted += cat(", ", size);
      refuse(group_.where() + name,
             row_shape.empty() ? "is not one value per row" : cat("is not [rows", wanted, "]"));
    }
    if (rows_ >= 0 && dims[0] != rows_)
      refuse(group_.where() + name, cat("has ", dims[0], " rows, other columns of its table have ", rows_));
    out = get(dims);
    rows_ = dims[0];
    return *this;
  }

  const Node& group_;
  std::int64_t rows_ = -1;
};

void check_ascending(const Node& group, const std::vector<std::int64_t>& step) {
  for (std::size_t i = 1; i < step.size(); ++i)
    if (step[i] <= step[i - 1])
      refuse(group.where() + "step", cat("row ", i, " is step ", step[i], " after step ", step[i - 1]));
}

Trajectory::Load read_load(const Node& group) {
  Trajectory::Load load;
  std::vector<std::int64_t> shapes;
  const auto width = width_of(group, "shape");
  TableReader table(group);
  table.read("name", load.name).read("digest", load.digest).read("dtype", load.dtype).read("mean", load.mean);
  table.read("rms", load.rms);
  if (width > 0) table.read("shape", shapes, {width});
  if (width > 0)
    for (std::int64_t i = 0; i < table.rows(); ++i) {
      auto& shape = load.shape.emplace_back();
      for (std::int64_t d = 0; d < width; ++d)
        if (const auto size = shapes[static_cast<std::size_t>(i * width + d)]; size >= 0)
          shape.push_back(size);
    }
  load.config = group.text("config").value_or("");
  if (const auto memory = group.group("memory")) {
    auto& out = load.memory.emplace();
    TableReader(*memory).read("step", out.step).read("tensor", out.tensor).read("digest", out.digest);
    for (const std::int64_t row : out.tensor)
      if (row < 0 || row >= static_cast<std::int64_t>(load.name.size()))
        refuse(memory->where() + "tensor", cat("names tensor ", row, " of ", load.name.size()));
  }
  return load;
}

Trajectory::Render read_render(const Node& group) {
  Trajectory::Render render;
  TableReader table(group);
  table.read("digest", render.digest).read("n_ids", render.n_ids).read("n_targets", render.n_targets);
  table.read("last_target_id", render.last_target_id);
  render.n_train = group.int_attribute("n_train").value_or(table.rows());
  if (render.n_train < 0 || render.n_train > table.rows())
    refuse(group.where() + "n_train", cat("= ", render.n_train, " of ", table.rows(), " samples"));
  render.template_digest = group.text("template_digest").value_or("");
  return render;
}

Trajectory::Ops read_ops(const Node& group) {
  Trajectory::Ops ops;
  TableReader(group).read("name", ops.name).read("error", ops.error).read("bound", ops.bound);
  return ops;
}

Trajectory::AdapterNames read_adapter_names(const Node& group) {
  Trajectory::AdapterNames adapter;
  std::vector<std::int64_t> shapes;
  TableReader(group).read("names", adapter.names).read("shapes", shapes, {2});
  for (std::size_t i = 0; i + 1 < shapes.size(); i += 2)
    adapter.shapes.emplace_back(shapes[i], shapes[i + 1]);
  return adapter;
}

Trajectory::Updates read_updates(const Node& group) {
  Trajectory::Updates updates;
  TableReader table(group);
  table.read("step", updates.step)
      .read("optimizer_step", updates.optimizer_step)
      .read("loss", updates.loss)
      .read("n_targets", updates.n_targets)
      .read("grad_norm", updates.grad_norm)
      .read("clip", updates.clip)
      .read("lr", updates.lr)
      .read("n_samples", updates.n_samples)
      .read("checksum", updates.checksum)
      .read("seconds", updates.seconds)
      .read("adapter_checksum", updates.adapter_checksum);
  updates.batch_global = width_of(group, "sample_ids");
  if (updates.batch_global > 0) table.read("sample_ids", updates.sample_ids, {updates.batch_global});
  updates.rows = table.rows();
  check_ascending(group, updates.step);
  return updates;
}

Trajectory::Observed read_observed(const Node& group) {
  Trajectory::Observed observed;
  TableReader table(group);
  table.read("step", observed.step);
  table.read_wide("tensor_grad_norm", observed.tensor_grad_norm);
  observed.rows = table.rows();
  check_ascending(group, observed.step);
  return observed;
}

Trajectory::Evals read_evals(const Node& group) {
  Trajectory::Evals evals;
  TableReader table(group);
  table.read("step", evals.step).read("nll_sum", evals.nll_sum).read("n_tokens", evals.n_tokens);
  table.read("loss", evals.loss).read("seconds", evals.seconds).read("adapter_digest", evals.adapter_digest);
  evals.rows = table.rows();
  check_ascending(group, evals.step);
  Dims dims;
  evals.loss_adapter_off = group.doubles("loss_adapter_off", dims);
  if (!dims.empty() && dims != Dims{2})
    refuse(group.where() + "loss_adapter_off", "does not hold two values");
  return evals;
}

Trajectory::Probe read_probe(const Node& group) {
  Trajectory::Probe probe;
  TableReader(group)
      .read("sample", probe.tokens.sample)
      .read("position", probe.tokens.position)
      .read("target", probe.tokens.target);
  const std::int64_t k = probe.tokens.size();
  TableReader table(group);
  table.read("nll", probe.nll, {k}).read("target_logit", probe.target_logit, {k});
  table.read("topk_id", probe.topk_id, {k, kTopLogits}).read("topk_logit", probe.topk_logit, {k, kTopLogits});
  probe.rows = table.rows();
  return probe;
}

Trajectory::Activations read_activations(const Node& group) {
  Trajectory::Activations out;
  TableReader table(group);
  out.n_layers = table.read_wide("rms", out.rms);
  if (out.n_layers > 0) table.read("absmax", out.absmax, {out.n_layers});
  out.n_modules = table.read_wide("ba_norm", out.ba_norm);
  out.n_tensors = table.read_wide("update_norm", out.update_norm);
  out.rows = table.rows();
  return out;
}

// The values of an enumeration 0..last; another one means a file that this program does not understand.
template <class Enum>
std::vector<Enum> read_enumeration(const Node& group, const char* name, Enum last, const char* what) {
  Dims dims;
  std::vector<Enum> values;
  for (const std::int64_t value : group.ints(name, dims)) {
    if (value < 0 || value > static_cast<std::int64_t>(last))
      refuse(group.where() + name, cat("holds ", value, ", ", what, " this program does not know"));
    values.push_back(static_cast<Enum>(value));
  }
  return values;
}

Trajectory::Audits read_audits(const Node& group) {
  Trajectory::Audits audits;
  TableReader table(group);
  std::vector<std::int64_t> verdict, scope;
  table.read("step", audits.step)
      .read("micro_batch", audits.micro_batch)
      .read("loss_error", audits.loss_error)
      .read("norm_error", audits.norm_error)
      .read("scope", scope)
      .read("verdict", verdict)
      .read("note", audits.note);
  audits.scope = read_enumeration(group, "scope", AuditScope::kMicroBatch, "a scope");
  audits.verdict = read_enumeration(group, "verdict", Verdict::kSkipped, "a verdict");
  for (const auto& [name, column] :
       {std::pair("relative_error", &audits.relative_error), std::pair("projection", &audits.projection),
        std::pair("bound", &audits.bound), std::pair("optimizer_error", &audits.optimizer_error)}) {
    const std::int64_t width = table.read_wide(name, *column);
    if (width > 0 && audits.n_tensors > 0 && width != audits.n_tensors)
      refuse(group.where() + name, cat("has ", width, " columns, others have ", audits.n_tensors));
    audits.n_tensors = std::max(audits.n_tensors, width);
  }
  audits.rows = table.rows();
  for (std::size_t i = 1; i < audits.step.size(); ++i)
    if (audits.step[i] < audits.step[i - 1])
      refuse(group.where() + "step",
             cat("row ", i, " is step ", audits.step[i], " after step ", audits.step[i - 1]));
  return audits;
}

Trajectory::SlowPhases read_slow_phases(const Node& group) {
  Trajectory::SlowPhases slow;
  TableReader table(group);
  table.read("step", slow.step)
      .read("rank", slow.rank)
      .read("factor", slow.factor)
      .read("phase", slow.phase)
      .read("host", slow.host)
      .read("seen", slow.seen);
  slow.rows = table.rows();
  return slow;
}

void read_snapshots(const Node& group, Trajectory& out) {
  for (const auto& name : group.members()) {
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    const auto link = group.external(name);
    if (!link) continue;
    // A file may not send its reader elsewhere.
    const std::filesystem::path file = link->file;
    if (file.is_absolute() || std::find(file.begin(), file.end(), "..") != file.end())
      refuse(group.where() + name, cat("leads out of the file's folder, to ", link->file));
    out.snapshots.emplace_back(step, out.path.parent_path() / file);
  }
  std::sort(out.snapshots.begin(), out.snapshots.end());
}

void read_root(const Node& root, Trajectory& out) {
  const auto format = root.text_attribute("format");
  if (format != "tandem-trajectory")
    refuse(out.path.string(), "is an HDF5 file, but not a Tandem trajectory");
  const auto version = root.int_attribute("format_version");
  if (!version) refuse(out.path.string(), "lacks the attribute format_version");
  if (*version != kTrajectoryVersion)
    refuse(out.path.string(),
           cat("has trajectory format ", *version, ", this program reads format ", kTrajectoryVersion,
               *version > kTrajectoryVersion ? ": use a newer tandem" : ""));
  out.format_version = *version;
  out.stack = root.text_attribute("stack").value_or("");
  if (out.stack.empty()) refuse(out.path.string(), "does not name its stack (attribute stack)");
  const auto complete = root.int_attribute("complete").value_or(0);
  if (complete != 0 && complete != 1)
    refuse(out.path.string(), cat("attribute complete = ", complete, " (0 or 1)"));
  out.complete = complete == 1;
  out.written_at = root.text_attribute("written_at").value_or("");
}

}  // namespace

Trajectory read_trajectory(const std::filesystem::path& file) {
  const hdf5::Id id = hdf5::open_for_reading(file);
  const Node root(id, file);
  Trajectory out;
  out.path = file;
  read_root(root, out);
  for (const auto& [name, text, digest] :
       {std::tuple("spec", &out.spec_text, &out.spec_digest),
        std::tuple("execution", &out.execution_text, &out.execution_digest)}) {
    const auto group = root.group(name);
    if (!group) continue;
    *text = group->text("text").value_or("");
    *digest = group->text("digest").value_or("");
  }
  if (const auto group = root.group("provenance")) {
    for (const auto& name : group->attributes()) out.provenance[name] = group->attribute_as_text(name);
    for (const auto& name : group->members())
      if (const auto text = group->text(name)) out.provenance[name] = *text;
  }
  if (const auto group = root.group("load")) out.load = read_load(*group);
  if (const auto group = root.group("ops")) out.ops = read_ops(*group);
  if (const auto group = root.group("render")) out.render = read_render(*group);
  if (const auto group = root.group("adapter")) out.adapter = read_adapter_names(*group);
  if (const auto group = root.group("update")) out.updates = read_updates(*group);
  if (const auto group = root.group("observed")) out.observed = read_observed(*group);
  if (const auto group = root.group("eval")) out.evals = read_evals(*group);
  if (const auto group = root.group("probe")) out.probe = read_probe(*group);
  if (const auto group = root.group("activation")) out.activations = read_activations(*group);
  if (const auto group = root.group("audit")) out.audits = read_audits(*group);
  if (const auto group = root.group("slow")) out.slow = read_slow_phases(*group);
  if (const auto group = root.group("memory")) {
    auto& memory = out.memory.emplace();
    TableReader(*group).read("host_bytes", memory.host_bytes).read("device_bytes", memory.device_bytes);
  }
  if (const auto group = root.group("snapshot")) read_snapshots(*group, out);
  out.parts = root.members();
  return out;
}

Trajectory read_untrusted_trajectory(const std::filesystem::path& file) {
  run_contained(file, [&] {
    read_trajectory(file);
    return std::string();
  });
  return read_trajectory(file);
}

std::optional<RenderedSample> read_rendered_sample(const std::filesystem::path& file, std::int64_t i) {
  const hdf5::Id id = hdf5::open_for_reading(file);
  const auto group = Node(id, file).group("render");
  if (!group || !group->has("begin") || !group->has("ids") || !group->has("targets")) return std::nullopt;
  const auto ends = group->ints_at("begin", i, 2);
  return RenderedSample{group->ints_at("ids", ends[0], ends[1] - ends[0]),
                        group->ints_at("targets", ends[0], ends[1] - ends[0])};
}

std::vector<std::vector<double>> read_snapshot(const std::filesystem::path& file, const std::string& part,
                                               const Trajectory::AdapterNames& adapter) {
  const hdf5::Id id = hdf5::open_for_reading(file);
  const auto group = Node(id, file).group(part);
  if (!group) refuse(file.string(), cat("holds no ", part));
  std::vector<std::vector<double>> tensors;
  for (std::size_t p = 0; p < adapter.names.size(); ++p) {
    const std::string& name = adapter.names[p];
    if (!group->has(name)) refuse(group->where() + name, "is missing");
    Dims dims;
    tensors.push_back(group->doubles(name, dims));
    if (p >= adapter.shapes.size()) continue;  // an adapter whose shapes are not known
    const auto& [rows, columns] = adapter.shapes[p];
    if (dims != Dims{rows, columns})
      refuse(group->where() + name, cat("has the shape [", joined(dims), "], not [", rows, ", ", columns,
                                        "] as /adapter/shapes says"));
  }
  return tensors;
}

}  // namespace tandem
