// LoRA adapters as PEFT writes them: a folder of adapter_model.safetensors and adapter_config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tandem {

// One matrix of an adapter. The name is SPEC.md's: "<module>.lora_A.weight" [r, in] or
// "<module>.lora_B.weight" [out, r], module as in "model.layers.0.self_attn.q_proj". In the file
// "base_model.model." stands before it.
struct AdapterTensor {
  std::string name;
  std::int64_t rows = 0, cols = 0;
  std::span<const float> data;  // row-major, rows * cols
};

struct AdapterConfig {
  std::int64_t rank = 0;
  double alpha = 0.0;  // the product B(A x) is scaled by alpha/rank (rslora: alpha/sqrt(rank))
  bool rslora = false;
  double dropout = 0.0;
  std::vector<std::string> target_modules;  // "q_proj", ...: exactly those trained
  std::string base_model;                   // base_model_name_or_path; "" is written as null
  std::string warning = {};                 // of reading the settings; "": nothing to say

  // s of y = W x + s B(A x): alpha/rank, with rslora alpha/sqrt(rank)
  double scale() const;
};

// Writes both files into a folder that appears whole (FolderPublisher), after reading them back and comparing
// every bit and setting. A base_model that is no UTF-8, as a path may be, is written with U+FFFD in place of
// its bad bytes. Throws kInput (path, system's words), kInternal for tensors that do not fit the config.
void write_adapter(const std::filesystem::path& folder, const AdapterConfig& config,
                   std::span<const AdapterTensor> tensors);
// The same files in a folder that is there already, with the same comparison; others publish it.
void write_adapter_files(const std::filesystem::path& folder, const AdapterConfig& config,
                         std::span<const AdapterTensor> tensors);

// The settings of a PEFT adapter's folder; target_modules as its tensors have them, in byte order. The file's
// own target_modules must stand for exactly the modules that have tensors: a list matches as PEFT's does (a
// whole name or its end after a dot), "all-linear" stands for the seven projections; any other pattern is not
// compared, with a warning. Throws kInput for that, for keys that are not PEFT's, for tensors of another rank
// than the settings say, and for settings that read_adapter would refuse.
AdapterConfig read_adapter_config(const std::filesystem::path& folder);

struct Adapter {
  AdapterConfig config;
  std::vector<std::vector<float>> tensors;  // in the order asked for
};

// Reads the tensors named in `expected` (their data are not looked at). Throws kInput, naming folder and
// tensor, unless the file holds exactly these with these shapes, F32, BF16 or F16 and all values finite, and
// the config asks for nothing that this program does not compute (DoRA, biases, rank patterns,
// modules_to_save, ..., lora_alpha of 0 or less).
Adapter read_adapter(const std::filesystem::path& folder, std::span<const AdapterTensor> expected);

// SHA-256 of all tensors' float32 bytes in byte order of their names (SPEC.md, "Digests").
std::string adapter_digest(std::span<const AdapterTensor> tensors);

}  // namespace tandem
