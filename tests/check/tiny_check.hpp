// A small model with rows for `tandem check`'s library.
#pragma once

#include <string>

#include "src/check/check.hpp"
#include "tests/mirror/tiny.hpp"

namespace tandem::check_test {

// kind: of tests/mirror/tiny.hpp. Longer rows than one micro-batch; batches of 4 in rows of 2.
inline Config tiny_run(const support::TempFolder& folder, const std::string& kind, bool bf16 = false) {
  Config config;
  config.spec.model.path = mirror::make_tiny(folder, kind, bf16).string();
  config.spec.train.path =
      mirror::make_rows(folder, "train.jsonl", {19, 12, 17, 10, 14, 8, 11, 16}, {4, 5, 3, 6, 7, 2, 8, 3})
          .string();
  config.spec.held_out.path = mirror::make_rows(folder, "held_out.jsonl", {8, 11, 15}, {3, 4, 6}).string();
  config.spec.lora_rank = 3;
  config.spec.lora_alpha = 6.0;
  config.spec.batch_global = 4;
  config.execution.batch_micro = 2;
  return config;
}

}  // namespace tandem::check_test
