// Digests that stand for a run's inputs and texts (SPEC.md, "Keys").
#pragma once

#include <filesystem>
#include <string>

#include "src/spec/run_spec.hpp"

namespace tandem {

// SHA-256 over one line `name sha256` for config.json, every *.safetensors, model.safetensors.index.json,
// tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json that lies in the
// folder, sorted by name. Throws kInput where the folder or its config.json is missing.
std::string model_digest(const std::filesystem::path& folder);

// The same over adapter_config.json and adapter_model.safetensors; both must be there.
std::string adapter_folder_digest(const std::filesystem::path& folder);

// Fills in the digests of the inputs that are given; data files: SHA-256 of their bytes.
// Throws kUsage naming the key where model.path or data.train is not given, kInput where a file cannot be
// read.
void digest_inputs(RunSpec& spec);

std::string spec_digest(const RunSpec& spec);  // SHA-256 of the canonical text
std::string execution_digest(const Execution& execution);

}  // namespace tandem
