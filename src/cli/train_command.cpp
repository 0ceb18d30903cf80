#include "src/cli/train_command.hpp"

#include <mpi.h>

#include <exception>
#include <filesystem>
#include <iomanip>
#include <ios>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "comm/launcher.hpp"
#include "comm/mpi_communicator.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/cli/gpu.hpp"
#include "src/cli/print_error.hpp"
#include "src/cli/process_setup.hpp"
#include "src/cli/start_mpi.hpp"
#include "src/cli/stop_signal.hpp"
#include "src/cli/version.hpp"
#include "src/train/run.hpp"
#include "src/train/run_log.hpp"

namespace tandem {

namespace {

std::string summary_text(const Config& config, const RunSummary& summary) {
  std::ostringstream text;
  text << "trained " << counted(summary.updates, "update") << " on " << counted(summary.n_train, "sample")
       << ": " << config.run.out << "/native.h5, " << config.run.out << "/adapter";
  if (summary.loss_before && summary.loss_after)
    text << "\nheld-out loss " << std::fixed << std::setprecision(6) << *summary.loss_before << " before, "
         << *summary.loss_after << " after";
  return text.str();
}

// As a shell takes it.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// run_log: set once the run has one.
int run(Config config, Communicator& comm, const std::vector<std::string>& words,
        std::filesystem::path& run_log) {
  const Version v = version();
  config.execution.build = build_text(v);
  config.execution.instruction_set = v.instruction_set;
  const std::map<std::string, std::string> facts = {
      {"version", v.version},   {"git", v.git},
      {"compiler", v.compiler}, {"build", build_text(v)},
      {"onednn", v.onednn},     {"hdf5", v.hdf5},
      {"mpi", v.mpi},           {"instruction_set", v.instruction_set}};
  const RunControl control{
      .stop = stop_signal_came,
      .command = resuming_command(words, comm.size()),
      .log_opened = [&](const std::filesystem::path& file) { run_log = std::filesystem::absolute(file); },
      .gpus = gpu_build()};
  const RunSummary summary = run_training(config, comm, facts, control);
  if (summary.was_finished) return 0;
  try {
    if (comm.rank() == 0) {
      const std::string text = summary_text(config, summary);
      append_line(run_log, text);
      std::cout << text << "\n" << std::flush;
    }
  } catch (const std::ios_base::failure&) {
    throw Error(ErrorKind::kInput, "standard output: cannot be written; the run is complete");
  }
  return 0;
}

}  // namespace

std::string resuming_command(const std::vector<std::string>& words, int ranks) {
  std::string text = ranks > 1 ? cat("tandem-mpirun -n ", ranks, " tandem train") : "tandem train";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--resume") {
      ++i;  // with its value
    } else if (!word.starts_with("--resume=") && !word.starts_with("--overwrite")) {
      text += " " + quoted(word);
    } else if (word == "--overwrite" && i + 1 < words.size() &&
               (words[i + 1] == "true" || words[i + 1] == "false")) {
      ++i;
    }
  }
  return text + " --resume auto";
}

int train_command(const std::function<Config()>& read_config, const std::vector<std::string>& words) {
  note_stop_signals();
  keep_freed_memory();
  start_mpi();
  int code = 0, size = 1;
  std::filesystem::path run_log;
  const auto say = [&](const std::string& text) {
    print_error(text);
    if (!run_log.empty()) append_line(run_log, error_line(text));
  };
  try {
    int rank = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    check_launcher(size);
    try {
      MpiCommunicator comm(MPI_COMM_WORLD);
      code = run(agree(comm, read_config), comm, words, run_log);
    } catch (const AgreedError& error) {
      if (error.rank() == rank) say(error.what());
      code = error.exit_code();
    }
    MPI_Finalize();
    return code;
  } catch (const Error& error) {
    say(error.what());
    code = error.exit_code();
  } catch (const std::bad_alloc&) {
    say("out of memory");
    code = static_cast<int>(ErrorKind::kDevice);
  } catch (const std::exception& error) {
    say(cat("internal error: ", error.what()));
    code = static_cast<int>(ErrorKind::kInternal);
  }
  // Nobody waits for a rank that is alone, and MPI_Abort would add a page to the error.
  if (size > 1) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
  return code;
}

}  // namespace tandem
