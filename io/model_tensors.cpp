#include "io/model_tensors.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "io/text/strict_json.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace fs = std::filesystem;

namespace {

// A shard is a file of this folder, never a path that leads elsewhere.
bool plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && fs::path(name).filename() == fs::path(name);
}

}  // namespace

ModelTensors::ModelTensors(const fs::path& model_dir) : main_file_(model_dir / "model.safetensors") {
  const fs::path index = model_dir / "model.safetensors.index.json";
  std::error_code error;
  if (fs::exists(main_file_, error) || !fs::exists(index, error)) {
    files_.emplace_back(main_file_);
    for (const TensorRecord& tensor : files_[0].tensors()) file_of_.emplace(tensor.name, 0);
  } else {
    main_file_ = index;
    read_index(index);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(model_dir, error)) {
    const bool ours = std::any_of(files_.begin(), files_.end(), [&](const SafetensorsFile& file) {
      return file.path().filename() == entry.path().filename();
    });
    if (entry.path().extension() == ".safetensors" && !ours)
      ignored_files_.push_back(entry.path().filename().string());
  }
  std::sort(ignored_files_.begin(), ignored_files_.end());
}

void ModelTensors::read_index(const fs::path& index) {
  const auto refuse = [&](const auto&... parts) {
    throw Error(ErrorKind::kInput, cat(index.string(), ": ", parts...));
  };
  const nlohmann::json object = read_strict_json(index);
  if (!object.is_object() || !object.contains("weight_map") || !object["weight_map"].is_object())
    refuse("has no object \"weight_map\"");
  std::map<std::string, std::size_t> opened;
  for (const auto& [tensor, shard] : object["weight_map"].items()) {
    if (!shard.is_string() || !plain_file_name(shard.get<std::string>()))
      refuse("tensor ", tensor, ": ", shard.dump(), " is no file name");
    const std::string name = shard.get<std::string>();
    const auto [place, is_new] = opened.emplace(name, files_.size());
    if (is_new) {
      if (!fs::exists(index.parent_path() / name))
        refuse("names ", name, ", which is not in the folder; fetch all shards");
      files_.emplace_back(index.parent_path() / name);
    }
    if (!files_[place->second].find(tensor)) refuse("tensor ", tensor, " is not in ", name);
    file_of_.emplace(tensor, place->second);
  }
  if (files_.empty()) refuse("names no tensor");
  for (std::size_t i = 0; i < files_.size(); ++i)
    for (const TensorRecord& tensor : files_[i].tensors()) {
      const auto at = file_of_.find(tensor.name);
      if (at == file_of_.end() || at->second != i)
        refuse(files_[i].path().filename().string(), " holds tensor ", tensor.name, ", which the index ",
               at == file_of_.end() ? "does not name"
                                    : "places in " + files_[at->second].path().filename().string());
    }
}

const TensorRecord* ModelTensors::find(std::string_view name) const {
  const auto at = file_of_.find(name);
  return at == file_of_.end() ? nullptr : files_[at->second].find(name);
}

const TensorRecord& ModelTensors::require(std::string_view name, std::span<const std::int64_t> shape) const {
  const auto at = file_of_.find(name);
  if (at == file_of_.end())
    throw Error(ErrorKind::kInput, cat(main_file_.string(), ": tensor ", name, " is missing"));
  return files_[at->second].require(name, shape);
}

const fs::path& ModelTensors::file_of(std::string_view name) const {
  const auto at = file_of_.find(name);
  return at == file_of_.end() ? main_file_ : files_[at->second].path();
}

std::vector<std::string> ModelTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, unused] : file_of_) names.push_back(name);
  return names;
}

}  // namespace tandem
