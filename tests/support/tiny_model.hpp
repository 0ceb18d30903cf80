// A small random model in a folder of its own, and random tokenised samples, for tests of the whole
// computation.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "io/samples.hpp"
#include "src/base/random.hpp"
#include "src/cli/init_model_command.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem::support {

inline constexpr std::int64_t kTinyVocab = 300;

// Qwen3 (tied) or Llama (untied, head_dim unlike hidden/heads) of the same few sizes.
inline std::filesystem::path make_tiny_model(const TempFolder& folder, const std::string& type,
                                             std::uint64_t seed = 1, std::int64_t head_dim = 20) {
  InitModelOptions options;
  options.seed = seed;
  options.out = folder.path() / ("model-" + type);
  options.type = type;
  options.hidden = 48, options.layers = 3, options.heads = 4, options.kv_heads = 2,
  options.head_dim = head_dim;
  options.intermediate = 72, options.vocab = kTinyVocab, options.tied = type == "qwen3";
  std::ostringstream said;
  init_model_command(options, said);
  return options.out;
}

// Sample i has lengths[i] tokens, the last targets[i] of them marked.
inline SampleSet make_samples(const std::vector<std::int64_t>& lengths,
                              const std::vector<std::int64_t>& targets, std::uint64_t seed = 7) {
  SampleSet samples;
  const RandomStream stream(seed, "samples");
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::int32_t> ids;
    std::vector<std::uint8_t> marks;
    for (std::int64_t p = 0; p < lengths[i]; ++p) {
      ids.push_back(static_cast<std::int32_t>(stream.draw(n++) % static_cast<std::uint64_t>(kTinyVocab)));
      marks.push_back(p >= lengths[i] - targets[i]);
    }
    samples.add(ids, marks, static_cast<std::int64_t>(i) + 1);
  }
  return samples;
}

}  // namespace tandem::support
