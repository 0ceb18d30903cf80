// `tandem eval`: held-out loss, or accuracy on multiple-choice questions, of a model and of the model with an
// adapter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>

#include "io/dataset.hpp"

namespace tandem {

struct EvalOptions {
  std::filesystem::path model = {}, adapter = {};  // adapter: empty: the base model alone
  std::filesystem::path data = {};
  RenderOptions render = {};  // vocab_size is filled in
  bool choices = false;
  std::filesystem::path per_token = {};  // JSON Lines of every token's nll; empty: none
  bool json = false;
  std::int64_t micro = 4;
  int threads = 0;
};

// Returns 0. Throws kUsage, kInput.
int eval_command(const EvalOptions& options, std::ostream& out);

}  // namespace tandem
