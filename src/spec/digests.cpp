#include "src/spec/digests.hpp"

#include <algorithm>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

std::string digest_of_files(const fs::path& folder, std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  Sha256 hash;
  for (const std::string& name : names) hash.update(name + " " + sha256_file(folder / name) + "\n");
  return hash.hex();
}

void require_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(ErrorKind::kInput,
                cat(folder.string(), ": is no folder", error ? ": " + error.message() : ""));
}

void require_file(const fs::path& file, const char* why) {
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    throw Error(ErrorKind::kInput, cat(file.string(), ": is missing: ", why));
}

}  // namespace

std::string model_digest(const fs::path& folder) {
  require_folder(folder);
  require_file(folder / "config.json", "a model's folder has one");
  std::vector<std::string> names;
  for (const char* name : {"config.json", "model.safetensors.index.json", "tokenizer.json",
                           "tokenizer_config.json", "chat_template.jinja", "generation_config.json"})
    if (fs::exists(folder / name)) names.emplace_back(name);
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; entry != end && !error; entry.increment(error))
    if (entry->path().extension() == ".safetensors") names.push_back(entry->path().filename().string());
  if (error) throw Error(ErrorKind::kInput, cat(folder.string(), ": cannot be read: ", error.message()));
  return digest_of_files(folder, std::move(names));
}

std::string adapter_folder_digest(const fs::path& folder) {
  require_folder(folder);
  const std::vector<std::string> names = {"adapter_config.json", "adapter_model.safetensors"};
  for (const std::string& name : names) require_file(folder / name, "a PEFT adapter has one");
  return digest_of_files(folder, names);
}

void digest_inputs(RunSpec& spec) {
  if (!spec.model.given()) throw Error(ErrorKind::kUsage, "model.path: is not given (--model DIR)");
  if (!spec.train.given()) throw Error(ErrorKind::kUsage, "data.train: is not given (--data FILE)");
  // Missing data files are found before a large model is read.
  for (RunSpec::Input* input : {&spec.train, &spec.held_out})
    if (input->given()) input->digest = sha256_file(input->path);
  if (spec.lora_init.given()) spec.lora_init.digest = adapter_folder_digest(spec.lora_init.path);
  spec.model.digest = model_digest(spec.model.path);
}

std::string spec_digest(const RunSpec& spec) { return sha256_hex(canonical_text(spec)); }
std::string execution_digest(const Execution& execution) { return sha256_hex(canonical_text(execution)); }

}  // namespace tandem
