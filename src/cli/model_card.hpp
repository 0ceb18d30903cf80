// The README.md of an exported adapter or model: what it was made from, how, and what it is not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "io/adapter.hpp"
#include "src/model/adapter_folder.hpp"
#include "src/model/merge.hpp"

namespace tandem {

// What a run's folder tells about its adapter.
struct RunFacts {
  std::string spec_text, spec_digest;
  std::string model_digest, train_digest, held_out_digest;  // "": none
  struct Evaluation {
    std::int64_t step = 0, n_tokens = 0;
    double loss = 0.0;
  };
  std::optional<Evaluation> first, exported;  // untrained; the one whose adapter is exported
};

// Throws kInput where the folder holds no run, its spec.txt is none, its native.h5 cannot be read, or the
// adapter is not the run's: with other settings than the spec's, or with a digest that no evaluation recorded
// (without evaluations: another checksum than the last update's).
RunFacts read_run_facts(const std::filesystem::path& run, const LoadedAdapter& adapter);

struct ModelCard {
  std::string base_model;  // as a name of the Hugging Face hub, or as the user's path
  AdapterConfig adapter;
  std::int64_t n_modules = 0, n_parameters = 0;
  std::string adapter_digest;
  std::optional<RunFacts> run;        // none: exported from an adapter's folder
  std::optional<MergeReport> merged;  // none: an adapter
  std::string merged_dtype;           // "F32", ...; "": as the base model's
};

std::string model_card_text(const ModelCard& card);

}  // namespace tandem
