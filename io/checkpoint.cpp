#include "io/checkpoint.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "src/base/clock.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kMark = "checkpoint.json";

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error(ErrorKind::kInput, cat(path.string(), ": ", why));
}

json to_json(const CheckpointState& s) {
  json all = {{"format", "tandem-checkpoint"},
              {"format_version", kCheckpointVersion},
              {"update", s.update},
              {"steps_made", s.steps_made},
              {"evaluated", s.evaluated},
              {"spec", s.spec_text},
              {"execution", s.execution_text},
              {"checksums", s.checksums},
              {"seconds", s.seconds},
              {"tokens", s.tokens},
              {"targets", s.targets},
              {"off_nll_sum", s.off_nll_sum},
              {"off_tokens", s.off_tokens},
              {"update_norms", s.update_norms},
              {"audits_begun", s.audits_begun},
              {"base_weights_closed", s.base_weights_closed},
              {"written_at", s.written_at}};
  if (s.loss_before) all["loss_before"] = *s.loss_before;
  if (s.loss_after) all["loss_after"] = *s.loss_after;
  if (s.loss_update) all["loss_update"] = *s.loss_update;
  return all;
}

template <class T>
std::optional<T> optional_of(const json& all, const char* name) {
  return all.contains(name) ? std::optional<T>(all.at(name).get<T>()) : std::nullopt;
}

CheckpointState from_json(const json& all) {
  if (all.at("format") != "tandem-checkpoint") throw Error(ErrorKind::kInput, "is no checkpoint");
  if (const std::int64_t version = all.at("format_version"); version != kCheckpointVersion)
    throw Error(ErrorKind::kInput,
                cat("has format version ", version, ", this program reads ", kCheckpointVersion));
  CheckpointState s;
  s.update = all.at("update");
  s.steps_made = all.at("steps_made");
  s.evaluated = all.at("evaluated");
  s.spec_text = all.at("spec");
  s.execution_text = all.at("execution");
  s.checksums = all.at("checksums");
  s.seconds = all.at("seconds");
  s.tokens = all.at("tokens");
  s.targets = all.at("targets");
  s.loss_before = optional_of<double>(all, "loss_before");
  s.loss_after = optional_of<double>(all, "loss_after");
  s.loss_update = optional_of<std::int64_t>(all, "loss_update");
  s.off_nll_sum = all.at("off_nll_sum");
  s.off_tokens = all.at("off_tokens");
  s.update_norms = all.at("update_norms").get<std::vector<double>>();
  s.audits_begun = all.at("audits_begun");
  s.base_weights_closed = all.at("base_weights_closed");
  s.written_at = all.at("written_at");
  return s;
}

json read_mark(const fs::path& checkpoint) {
  std::ifstream stream(checkpoint / kMark, std::ios::binary);
  if (!stream) fail(checkpoint, cat("is not complete: no ", kMark));
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  json all = json::parse(text, nullptr, false);
  if (all.is_discarded()) fail(checkpoint / kMark, "is damaged");
  return all;
}

CheckpointState state_of(const fs::path& checkpoint, const json& mark) {
  try {
    return from_json(mark);
  } catch (const json::exception&) {
    fail(checkpoint / kMark, "is damaged");
  } catch (const Error& error) {
    fail(checkpoint, error.what());
  }
}

// Names of all files in it, with / between, but for the mark.
std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      if (const std::string name = entry.path().lexically_relative(folder).generic_string(); name != kMark)
        names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

// Renamed first, so that it is whole or no checkpoint at all.
void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path away = temporary_name(checkpoint, ".old");
  std::error_code error;
  fs::rename(checkpoint, away, error);
  if (!error) fs::remove_all(away, error);
  if (error) fail(checkpoint, cat("cannot be removed: ", error.message()));
}

}  // namespace

std::string checkpoint_text(const CheckpointState& state) { return to_json(state).dump(); }

CheckpointState parse_checkpoint_text(std::string_view text) {
  try {
    return from_json(json::parse(text));
  } catch (const json::exception& error) {
    throw Error(ErrorKind::kInput, cat("checkpoint: ", error.what()));
  }
}

CheckpointWriter::CheckpointWriter(const fs::path& checkpoints, std::int64_t update)
    : path_([&] {
        std::error_code error;
        fs::create_directory(checkpoints, error);  // not its parents: a run folder that vanished stays so
        if (error) fail(checkpoints, cat("cannot be made: ", error.message()));
        return checkpoints / std::to_string(update);
      }()),
      folder_(path_) {}

void CheckpointWriter::add_link(const fs::path& file, const fs::path& name) {
  const fs::path target = staging() / name;
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  if (!error) fs::create_hard_link(file, target, error);
  if (!error) return;
  fs::copy_file(file, target, error);
  if (error) fail(path_, cat("cannot take ", file.string(), ": ", error.message()));
}

void CheckpointWriter::publish(CheckpointState state) {
  state.written_at = utc_now();
  json mark = to_json(state);
  mark["files"] = json::object();
  try {
    for (const std::string& name : files_in(staging()))
      mark["files"][name] = {{"bytes", fs::file_size(staging() / name)},
                             {"sha256", sha256_file(staging() / name)}};
    publish_file(staging() / kMark, mark.dump(1) + "\n");
    folder_.publish();
  } catch (const fs::filesystem_error& error) {
    fail(path_, cat("cannot be written: ", error.code().message()));
  }
}

std::vector<fs::path> list_checkpoints(const fs::path& checkpoints) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error))
    if (const auto update = number_in_name(entry.path().filename().string()))
      found.emplace_back(*update, entry.path());
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> paths;
  for (auto& [update, path] : found) paths.push_back(std::move(path));
  return paths;
}

CheckpointState read_checkpoint(const fs::path& checkpoint) {
  std::error_code error;
  if (!fs::is_directory(checkpoint, error)) fail(checkpoint, "is no folder of a checkpoint");
  const json mark = read_mark(checkpoint);
  CheckpointState state = state_of(checkpoint, mark);
  try {
    for (const auto& [name, about] : mark.at("files").items()) {
      const fs::path file = checkpoint / name;
      const std::uintmax_t bytes = fs::file_size(file, error);
      if (error) fail(file, cat("is missing or cannot be read: ", error.message()));
      if (bytes != about.at("bytes").get<std::uintmax_t>())
        fail(file,
             cat("is damaged: ", bytes, " bytes in place of ", about.at("bytes").get<std::uintmax_t>()));
      if (sha256_file(file) != about.at("sha256").get<std::string>())
        fail(file, "is damaged: its SHA-256 is not the one recorded");
    }
  } catch (const json::exception&) {
    fail(checkpoint / kMark, "is damaged");
  }
  return state;
}

std::optional<FoundCheckpoint> find_checkpoint(const fs::path& checkpoints,
                                               std::vector<std::string>& passed_over) {
  for (const fs::path& path : list_checkpoints(checkpoints)) {
    try {
      return FoundCheckpoint{path, read_checkpoint(path)};
    } catch (const Error& error) {
      passed_over.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

void prune_checkpoints(const fs::path& checkpoints, std::int64_t keep) {
  const std::vector<fs::path> all = list_checkpoints(checkpoints);
  std::optional<double> lowest;
  fs::path best;
  for (const fs::path& path : all) {
    try {
      const CheckpointState state = state_of(path, read_mark(path));
      if (!state.loss_after || state.loss_update != state.update) continue;
      if (!lowest || *state.loss_after <= *lowest) lowest = state.loss_after, best = path;
    } catch (const Error&) {
      // A damaged one is not the best.
    }
  }
  for (std::size_t i = static_cast<std::size_t>(keep); i < all.size(); ++i)
    if (all[i] != best) remove_checkpoint(all[i]);
  remove_broken_saves(checkpoints);
}

void remove_broken_saves(const fs::path& checkpoints) {
  std::error_code error;
  std::vector<fs::path> broken;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    const std::string name = entry.path().filename().string();
    const std::string number = name.substr(0, name.find('.'));
    if (number_in_name(number) && is_temporary_of(name, number)) broken.push_back(entry.path());
  }
  for (const fs::path& path : broken) fs::remove_all(path, error);
}

}  // namespace tandem
