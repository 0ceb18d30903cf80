// Runs of the real program on a tiny model, and what two of them left that differs.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "src/base/random.hpp"
#include "src/base/text.hpp"
#include "tests/support/temp_folder.hpp"
#include "tests/support/tiny_model.hpp"
#include "tests/world/hdf5_differences.hpp"

namespace tandem::world_test {

namespace fs = std::filesystem;

// Epochs of 4 updates, the last of 2 samples; warm-up of 3; evaluations at 3, 6, 9 and 10.
inline constexpr std::int64_t kSamples = 20, kGlobal = 6, kUpdates = 10;

struct Ended {
  int code = 0;
  std::string text;  // stdout and stderr
};

class Runs : public testing::Test {
 protected:
  explicit Runs(std::int64_t head_dim = 20) : head_dim_(head_dim) {}

  void SetUp() override {
    model_ = support::make_tiny_model(folder_, "qwen3", 1, head_dim_);
    write_rows(folder_ / "train.jsonl", kSamples, 1);
    write_rows(folder_ / "held_out.jsonl", 6, 2);
  }

  static void write_rows(const fs::path& file, std::int64_t n, std::uint64_t seed) {
    const RandomStream random(seed, "rows");
    std::uint64_t at = 0;
    std::string rows;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t length = 4 + random.draw(at++) % 30;
      std::string ids, targets;
      for (std::uint64_t p = 0; p < length; ++p) {
        ids += cat(p ? "," : "", random.draw(at++) % support::kTinyVocab);
        targets += cat(p ? "," : "", p > length / 2 ? 1 : 0);
      }
      rows += cat("{\"ids\":[", ids, "],\"targets\":[", targets, "]}\n");
    }
    support::write_text(file, rows);
  }

  std::string command(int ranks, const fs::path& out, const std::string& options,
                      const std::string& program = TANDEM_PROGRAM) const {
    const std::string defaults = options.find("--train.updates") == options.npos
                                     ? cat(" --train.updates ", kUpdates, " --eval.every 3")
                                     : "";
    return cat(TANDEM_MPIRUN, " ", ranks, " ", program, " train --model ", model_.string(), " --data.train ",
               (folder_ / "train.jsonl").string(), " --data.held_out ", (folder_ / "held_out.jsonl").string(),
               " --run.out ", out.string(),
               " --lora.rank 4 --lora.alpha 8 --lora.dropout 0.2 --optim.lr 0.01",
               " --optim.warmup 3 --optim.weight_decay 0.1 --batch.global ", kGlobal, " --batch.micro 2",
               defaults, " --observe.every 2 --threads 1 ", options);
  }

  Ended train(int ranks, const fs::path& out, const std::string& options,
              const std::string& before = "") const {
    const fs::path log = folder_ / "log";
    const int status =
        std::system(cat(before, command(ranks, out, options), " > ", log.string(), " 2>&1").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), support::read_text(log)};
  }

  // What the two runs left that is not the same, times and places apart.
  static std::vector<std::string> differences(const fs::path& a, const fs::path& b) {
    const auto may_differ = [](const std::string& path) {
      return path.starts_with("/provenance@") || path.starts_with("/execution/") ||
             path.starts_with("/memory/") || path.starts_with("/slow/") || path.ends_with("/seconds") ||
             path == "/@written_at";
    };
    std::vector<std::string> all;
    const auto files_of = [](const fs::path& run) {
      std::set<std::string> files;
      for (const auto& entry : fs::recursive_directory_iterator(run)) {
        const std::string name = entry.path().lexically_relative(run).string();
        if (entry.is_regular_file() && !name.starts_with("checkpoints/") && name != "run.log" &&
            name != "execution.txt")
          files.insert(name);
      }
      return files;
    };
    const std::set<std::string> files = files_of(a);
    const std::set<std::string> others = files_of(b);
    for (const std::string& name : others)
      if (!files.contains(name)) all.push_back(cat(name, " is in the second alone"));
    for (const std::string& name : files) {
      if (!others.contains(name)) {
        all.push_back(cat(name, " is in the first alone"));
        continue;
      }
      if (name.ends_with(".h5")) {
        for (const std::string& line : compare_hdf5(a / name, b / name, may_differ).differences)
          all.push_back(cat(name, ": ", line));
      } else if (support::read_text(a / name) != support::read_text(b / name)) {
        all.push_back(cat(name, " differs"));
      }
    }
    return all;
  }

  std::int64_t head_dim_;
  support::TempFolder folder_;
  fs::path model_;
};

}  // namespace tandem::world_test
