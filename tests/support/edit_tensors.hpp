// Changes the tensors of a safetensors file in place, as float32: bad models and adapters from good ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/safetensors.hpp"

namespace tandem::support {

struct EditedTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// change(std::map<std::string, EditedTensor>&)
template <class Change>
void edit_tensors(const std::filesystem::path& path, Change change) {
  std::map<std::string, EditedTensor> tensors;
  {
    const SafetensorsFile file(path);
    for (const TensorRecord& record : file.tensors()) {
      EditedTensor& tensor = tensors[record.name];
      tensor.shape = record.shape;
      tensor.values.resize(static_cast<std::size_t>(record.count()));
      widen_to_f32(record, tensor.values);
    }
  }
  change(tensors);
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, DType::kF32, tensor.shape});
  SafetensorsWriter writer(path, specs);
  for (const auto& [name, tensor] : tensors) writer.write(std::span<const float>(tensor.values));
  writer.publish();
}

}  // namespace tandem::support
