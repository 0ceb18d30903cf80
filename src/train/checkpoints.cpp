#include "src/train/checkpoints.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <system_error>

#include "io/publish.hpp"
#include "io/safetensors.hpp"
#include "io/trajectory.hpp"
#include "kernels/checksum.hpp"
#include "src/base/error.hpp"
#include "src/base/paths.hpp"
#include "src/base/text.hpp"
#include "src/train/format_numbers.hpp"
#include "src/train/recorder.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr const char* kMoments = "moments.safetensors";
constexpr const char* kMirror = "mirror.cbor";
constexpr const char* kAdapter = "adapter";      // at this update
constexpr const char* kEvaluated = "evaluated";  // run.out/adapter at that time

// Keys of the execution that decide about bits, or about what the trajectory holds.
constexpr const char* kFixed[] = {"precision",     "batch.micro",   "mirror.every",
                                  "mirror.mode",   "mirror.scope",  "snapshot.every",
                                  "snapshot.what", "observe.every", "observe.probe"};

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error(ErrorKind::kInput, cat(path.string(), ": ", why));
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void require_same_spec(const std::string& there, const RunSpec& spec, const fs::path& where) {
  const std::vector<std::string> differing = keys_that_differ(there, canonical_text(spec));
  if (!differing.empty())
    fail(where, cat("is of another run: ", joined(differing, "; "),
                    "; give what it was started with, or another run.out, or --resume never --overwrite"));
}

// Throws, or returns what differs and may.
std::vector<std::string> other_execution(const CheckpointState& state, const Execution& execution,
                                         const fs::path& checkpoint) {
  std::vector<std::string> fixed, free;
  for (const std::string& line : keys_that_differ(state.execution_text, canonical_text(execution))) {
    const std::string key = line.substr(0, line.find(' '));
    const bool must = std::find(std::begin(kFixed), std::end(kFixed), key) != std::end(kFixed);
    (must ? fixed : free).push_back(line);
  }
  if (!fixed.empty())
    fail(checkpoint, cat("cannot be continued otherwise than it was begun: ", joined(fixed, "; ")));
  return free;
}

Beginning resumed(FoundCheckpoint found, const Config& config) {
  require_same_spec(found.state.spec_text, config.spec, found.path);
  Beginning beginning{
      .kind = Beginning::Kind::kResumed, .checkpoint = found.path, .state = {}, .lines = {}, .warnings = {}};
  beginning.lines.push_back(cat("resumed from ", found.path.string(), ": update ", found.state.update, " of ",
                                config.spec.train_updates, ", saved at ", found.state.written_at));
  for (const std::string& line : other_execution(found.state, config.execution, found.path)) {
    const bool device = line.starts_with("device ");
    // A node without its GPU must not go on unseen, at another speed and with other bits.
    const bool cpu = line.find("= cpu there") != line.npos || line.ends_with(" cpu here");
    if (device && cpu && config.execution.gpu == "auto")
      fail(found.path, cat("was saved with another ", line, ": give gpu = on or gpu = off to go on there"));
    const bool bits = device || line.starts_with("build ") || line.starts_with("instruction_set ");
    (bits ? beginning.warnings : beginning.lines)
        .push_back(cat("resumed with another ", line, bits ? ": what follows may have other bits" : ""));
  }
  beginning.state = std::move(found.state);
  return beginning;
}

// Nothing was saved there: a run of the same spec makes the same rows again.
Beginning begun_anew(const RunFolder& folder, const Config& config) {
  std::error_code error;
  Beginning beginning;
  const std::optional<TrajectoryEnd> end = trajectory_end(folder.trajectory());
  const std::string there = end ? end->spec_text : text_of(folder.spec());
  const bool holds = fs::exists(folder.trajectory(), error) || fs::exists(folder.spec(), error);
  if (holds && !config.run.overwrite) {
    if (there.empty())
      fail(folder.path,
           "run.out: holds a run that cannot be read and no checkpoint; choose another folder, or "
           "--overwrite to replace it");
    require_same_spec(there, config.spec, folder.path);
  }
  beginning.lines.push_back(cat("no checkpoint in ", folder.path.string(), ": begun anew",
                                holds && end ? cat(" (", counted(end->last_update, "update"),
                                                   " made there were not saved and are made again)")
                                             : ""));
  return beginning;
}

bool finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

// All tensors of m, then of v.
std::vector<TensorSpec> moment_specs(const LoraLayout& lora) {
  std::vector<TensorSpec> specs;
  for (const char* part : {"m.", "v."})
    for (const LoraTensor& tensor : lora.tensors())
      specs.push_back({part + tensor.name, DType::kF32, {tensor.rows, tensor.cols}});
  return specs;
}

// Said before anything is written; where a quota or another writer takes the room meanwhile, the write says
// it.
void require_room(const fs::path& folder, std::uintmax_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.capacity == 0 || space.available >= bytes) return;  // no capacity: it does not say
  const auto mib = [](std::uintmax_t n) { return formatted("%.1f MiB", static_cast<double>(n) / 0x1p20); };
  fail(folder, cat("no room for a checkpoint: ", mib(bytes), " are needed, ", mib(space.available), " free, ",
                   mib(bytes - space.available), " missing; make room and go on with --resume auto"));
}

void link_in_place(const fs::path& file, const fs::path& name) {
  const fs::path temporary = temporary_name(name, ".tmp");
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_hard_link(file, temporary, error);
  if (error) fs::copy_file(file, temporary, error);
  if (!error) fs::rename(temporary, name, error);
  if (!error) fs::remove(temporary, error);  // rename leaves it where both are one file already
  if (error) fail(name, cat("cannot be put back from the checkpoint: ", error.message()));
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail(path, cat("cannot be removed: ", error.message()));
}

}  // namespace

std::vector<std::string> keys_that_differ(const std::string& text_a, const std::string& text_b,
                                          const std::string& where_a, const std::string& where_b) {
  const CanonicalValues a = canonical_values(text_a), b = canonical_values(text_b);
  std::vector<std::string> lines;
  const auto value = [](const CanonicalValues& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("absent") : found->second;
  };
  std::map<std::string, int> keys;
  for (const auto* values : {&a, &b})
    for (const auto& [key, text] : *values) keys[key] = 0;
  for (const auto& [key, unused] : keys)
    if (value(a, key) != value(b, key))
      lines.push_back(cat(key, " = ", value(a, key), " ", where_a, ", ", value(b, key), " ", where_b));
  return lines;
}

Beginning find_beginning(const RunFolder& folder, const Config& config) {
  const std::string& asked = config.run.resume;
  if (asked == "never") return {};
  if (asked != "auto") {
    fs::path path = fs::path(asked).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();  // FOLDER/
    if (path_inside(path, folder.checkpoints()).empty())
      fail(path, cat("resume: is no checkpoint of run.out = ", folder.path.string(), "; they lie in ",
                     folder.checkpoints().string()));
    CheckpointState state = read_checkpoint(path);
    return resumed({path, std::move(state)}, config);
  }
  if (const auto end = trajectory_end(folder.trajectory()); end && end->complete) {
    require_same_spec(end->spec_text, config.spec, folder.path);
    Beginning beginning;
    beginning.kind = Beginning::Kind::kFinished;
    beginning.lines.push_back(cat(folder.path.string(), ": the run is finished (",
                                  counted(end->last_update, "update"), "): nothing is left to do"));
    return beginning;
  }
  std::vector<std::string> passed_over;
  std::optional<FoundCheckpoint> found = find_checkpoint(folder.checkpoints(), passed_over);
  Beginning beginning;
  if (found) {
    beginning = resumed(std::move(*found), config);
  } else if (!passed_over.empty() && !config.run.overwrite) {
    fail(folder.checkpoints(),
         cat("holds no sound checkpoint (", joined(passed_over, "; "), "); --overwrite begins the run anew"));
  } else {
    beginning = begun_anew(folder, config);
  }
  for (const std::string& why : passed_over)
    beginning.warnings.insert(beginning.warnings.begin(), cat("passed over: ", why));
  return beginning;
}

void share_beginning(Communicator& comm, Beginning& beginning) {
  const std::string mine =
      comm.rank() == 0
          ? cat(static_cast<int>(beginning.kind),
                beginning.kind == Beginning::Kind::kResumed ? checkpoint_text(beginning.state) : "")
          : std::string();
  const std::string all = comm.all_gather_text(mine)[0];
  beginning.kind = static_cast<Beginning::Kind>(all[0] - '0');
  if (beginning.kind == Beginning::Kind::kResumed)
    beginning.state = parse_checkpoint_text(std::string_view(all).substr(1));
}

void read_tensors(const fs::path& checkpoint, const RunSpec& spec, Trainer& trainer) {
  const LoraLayout& lora = trainer.lora();
  (void)lora.load(trainer.adapter(), checkpoint / kAdapter, adapter_config(spec));
  const SafetensorsFile moments(checkpoint / kMoments);
  for (const auto& [part, flat] : {std::pair{"m.", trainer.m()}, {"v.", trainer.v()}}) {
    for (const LoraTensor& tensor : lora.tensors()) {
      const std::int64_t shape[] = {tensor.rows, tensor.cols};
      widen_to_f32(
          moments.require(part + tensor.name, shape),
          flat.subspan(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.size())));
    }
  }
}

std::array<std::uint64_t, 3> state_checksums(const Trainer& trainer) {
  const auto sum = [&](std::span<const float> flat) {
    return adapter_checksum(trainer.lora().spans(flat), trainer.threads());
  };
  return {sum(trainer.adapter()), sum(trainer.m()), sum(trainer.v())};
}

void share_tensors(Communicator& comm, const CheckpointState& state, Trainer& trainer) {
  for (const std::span<float> flat : {trainer.adapter(), trainer.m(), trainer.v()})
    comm.broadcast(std::as_writable_bytes(flat), 0);
  agree(comm, [&] {
    trainer.restore(state.steps_made, state.update_norms);
    if (state_checksums(trainer) != state.checksums)
      throw Error(ErrorKind::kInput, cat("the checkpoint of update ", state.update,
                                         ": adapter or moments as read are not those that were saved"));
  });
}

void write_checkpoint(const RunFolder& folder, const Config& config, CheckpointState state,
                      const Trainer& trainer, std::span<const std::uint8_t> mirror) {
  for (const std::span<const float> flat :
       {std::span<const float>(trainer.adapter()), std::span<const float>(trainer.m()),
        std::span<const float>(trainer.v())})
    if (!finite(flat))
      throw Error(ErrorKind::kInternal, cat("update ", state.update,
                                            ": adapter or moments are not finite: no checkpoint is written"));
  constexpr std::uintmax_t kSmallFiles = 1 << 17;  // headers, checkpoint.json, folders
  require_room(folder.path, 3 * trainer.adapter().size_bytes() + mirror.size() + kSmallFiles);
  CheckpointWriter writer(folder.checkpoints(), state.update);
  const fs::path& staging = writer.staging();
  std::error_code error;
  fs::create_directory(staging / kAdapter, error);
  if (error) fail(staging / kAdapter, error.message());
  const LoraLayout& lora = trainer.lora();
  write_adapter_files(staging / kAdapter, adapter_config(config.spec), lora.views(trainer.adapter()));
  SafetensorsWriter moments(staging / kMoments, moment_specs(lora));
  for (const std::span<const float> flat :
       {std::span<const float>(trainer.m()), std::span<const float>(trainer.v())})
    for (const std::span<const float> tensor : lora.spans(flat)) moments.write(tensor);
  moments.publish();
  if (!mirror.empty()) publish_file(staging / kMirror, std::as_bytes(mirror));
  for (const fs::path& file : {folder.trajectory(), folder.mirror_trajectory()})
    if (fs::exists(file, error)) writer.add_link(file, file.filename());
  for (const auto& entry : fs::directory_iterator(folder.adapter(), error))
    writer.add_link(entry.path(), fs::path(kEvaluated) / entry.path().filename());
  writer.publish(std::move(state));
  prune_checkpoints(folder.checkpoints(), config.run.checkpoint_keep);
}

std::vector<std::uint8_t> read_mirror_bytes(const fs::path& checkpoint) {
  const std::string text = text_of(checkpoint / kMirror);
  return {text.begin(), text.end()};
}

void go_back_to(const RunFolder& folder, const fs::path& checkpoint, std::int64_t update) {
  std::error_code error;
  const fs::path mirror = checkpoint / folder.mirror_trajectory().filename();
  if (fs::exists(mirror, error)) {
    link_in_place(mirror, folder.mirror_trajectory());
  } else {
    remove_tree(folder.mirror_trajectory());
    remove_tree(folder.path / "mirror.snapshots");
  }
  if (fs::exists(checkpoint / kEvaluated, error)) {
    FolderPublisher adapter(folder.adapter());
    for (const auto& entry : fs::directory_iterator(checkpoint / kEvaluated, error)) {
      fs::copy_file(entry.path(), adapter.staging() / entry.path().filename(), error);
      if (error) fail(folder.adapter(), error.message());
    }
    adapter.publish();
  } else {
    remove_tree(folder.adapter());
  }
  for (const fs::path& path : list_checkpoints(folder.checkpoints()))
    if (number_in_name(path.filename().string()) > update) remove_tree(path);
  remove_broken_saves(folder.checkpoints());
  remove_temporaries(folder);
}

}  // namespace tandem
