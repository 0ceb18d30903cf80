// The tensors of a model folder: one model.safetensors, or the shards that its index names.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.hpp"

namespace tandem {

// The index decides: every file and tensor it names must be there, each tensor in the one shard it names;
// other safetensors files in the folder are not looked at. Where both forms lie in the folder, the single
// file is used.
class ModelTensors {
 public:
  // Throws kInput: file, tensor, what is wrong.
  explicit ModelTensors(const std::filesystem::path& model_dir);

  // nullptr where there is none of that name.
  const TensorRecord* find(std::string_view name) const;
  // Throws kInput where it is missing, has another shape or a dtype this program does not compute with.
  const TensorRecord& require(std::string_view name, std::span<const std::int64_t> shape) const;
  // The file that holds a tensor, for messages; the folder's main file where there is none of that name.
  const std::filesystem::path& file_of(std::string_view name) const;

  std::vector<std::string> names() const;  // in byte order
  // safetensors files in the folder that are not part of the model.
  const std::vector<std::string>& ignored_files() const { return ignored_files_; }

 private:
  void read_index(const std::filesystem::path& index);

  std::filesystem::path main_file_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;
  std::vector<std::string> ignored_files_;
};

}  // namespace tandem
