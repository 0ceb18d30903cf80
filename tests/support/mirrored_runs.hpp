// Runs of `tandem train`, the mirror beside them or not, on a small model and a few rows of text. Needs
// TANDEM_PROGRAM and TANDEM_MPIRUN.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "io/trajectory_reader.hpp"
#include "src/base/text.hpp"
#include "src/cli/init_model_command.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem::support {

struct Command {
  int ranks = 1;
  std::string options;           // further options of `tandem train`
  std::string environment = "";  // "NAME=VALUE ..."
  std::string program = TANDEM_PROGRAM;
  int code = 0;   // expected
  int every = 1;  // mirror.every
};

// A folder with a model and data, made once for all runs of a test program.
class Bench {
 public:
  Bench() {
    InitModelOptions options;
    options.out = folder_ / "model";
    // q and o are square; two query heads share a key-value head.
    options.hidden = 48, options.layers = 2, options.heads = 4, options.kv_heads = 2, options.head_dim = 12;
    options.intermediate = 72;
    std::ostringstream said;
    init_model_command(options, said);
    copy_lines("configs/tiny.jsonl", "train.jsonl", 12);
    copy_lines("configs/tiny_held_out.jsonl", "held_out.jsonl", 4);
  }

  // The run's folder; text of its log in log().
  std::filesystem::path train(const Command& run) {
    const std::filesystem::path out = folder_ / cat("run", n_runs_++);
    const std::string command =
        cat(run.environment, " ", run.ranks > 1 ? cat(TANDEM_MPIRUN, " ", run.ranks) : "", " ", run.program,
            " train ", inputs(), " --run.out ", out.string(), " --threads 1 --mirror.every ", run.every,
            " --mirror.calibration ", (folder_ / "thresholds").string(), " ", run.options, " > ",
            (folder_ / "log").string(), " 2>&1");
    const int status = std::system(command.c_str());
    log_ = read_text(folder_ / "log");
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, run.code) << command << "\n" << log_;
    return out;
  }
  // `tandem check` of such a run; what it prints. Its exit code must be `code`.
  std::string check(const std::string& program, const std::string& environment, const std::string& options,
                    int code) {
    const std::string command = cat(environment, " ", program, " check ", inputs(), " ", options, " > ",
                                    (folder_ / "checked").string(), " 2> ", (folder_ / "log").string());
    const int status = std::system(command.c_str());
    log_ = read_text(folder_ / "log");
    const std::string printed = read_text(folder_ / "checked");
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, code) << command << "\n" << log_ << printed;
    return printed;
  }
  const std::string& log() const { return log_; }
  const TempFolder& folder() const { return folder_; }

 private:
  std::string inputs() const {
    return cat("--model ", (folder_ / "model").string(), " --data.train ", (folder_ / "train.jsonl").string(),
               " --data.held_out ", (folder_ / "held_out.jsonl").string(),
               " --data.max_tokens 320 --lora.rank 4 --lora.alpha 8 --optim.lr 0.01 --batch.global 4");
  }
  void copy_lines(const std::string& from, const std::string& to, int n) const {
    std::ifstream in(std::filesystem::path(TANDEM_SOURCE_DIR) / from);
    std::string text;
    for (std::string line; n > 0 && std::getline(in, line); --n) text += line + "\n";
    write_text(folder_ / to, text);
  }

  TempFolder folder_;
  int n_runs_ = 0;
  std::string log_;
};

}  // namespace tandem::support
