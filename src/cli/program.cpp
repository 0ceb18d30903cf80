#include "src/cli/program.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <ios>
#include <iostream>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/cli/commands.hpp"
#include "src/cli/cpu_check.hpp"
#include "src/cli/gpu.hpp"
#include "src/cli/help.hpp"
#include "src/cli/launch_rank.hpp"
#include "src/cli/print_error.hpp"
#include "src/cli/version.hpp"
#include "src/spec/nearest.hpp"

namespace tandem {
namespace {

// A file or socket opened while a standard stream is closed would get the stream's number, and then what is
// meant for the stream. Reading finds the end then, stderr goes nowhere, writing to stdout still fails.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) == -1 && errno == EBADF)
      open("/dev/null",
           stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);  // takes the lowest free number: this one
}

// A failed write (closed pipe, full disk, a file as long as is allowed) is seen where it happens, not lost.
void check_output() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::ios::sync_with_stdio(false);
  if (!isatty(STDIN_FILENO)) std::cin.tie(nullptr);  // on a terminal, answers come line by line
  std::cout.exceptions(std::ios::badbit | std::ios::failbit);
}

const Command& find_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  throw Error(ErrorKind::kUsage,
              cat("unknown command `", name, "`, the nearest one is `", nearest(name, names), "`"));
}

struct Job {
  const Command* command = nullptr;  // nullptr: print `text`
  Arguments arguments = {};
  std::string text = {};
};

// What the words alone say, so every rank of a run fails here alike or not at all.
Job read_command_line(const std::vector<std::string>& words) {
  const std::string& first = words.front();
  if (first == "--help" || first == "-h" || first == "help") {
    if (words.size() > 1) return {.text = command_help(find_command(words[1]))};
    return {.text = program_help(commands())};
  }
  if (first == "--version") {
    if (words.size() > 2 || (words.size() == 2 && words[1] != "--json"))
      throw Error(ErrorKind::kUsage,
                  cat("--version: unknown option `", words.back(), "`, the only one is `--json`"));
    const Version v = version(gpu_build() ? &gpu_build()->system() : nullptr);
    return {.text = words.size() == 2 ? version_json(v) : version_text(v)};
  }
  if (first.starts_with("-"))
    throw Error(ErrorKind::kUsage, cat("`", first, "`: the command comes first: tandem COMMAND [options]"));
  Job job{.command = &find_command(first)};
  job.arguments = parse_arguments(*job.command, {words.begin() + 1, words.end()});
  if (job.arguments.help) return {.text = command_help(*job.command)};
  if (job.command->one_process && launch_rank().size > 1)
    throw Error(ErrorKind::kUsage, cat(first, ": runs as one process with threads, not on ",
                                       launch_rank().size, " ranks: start it without mpirun"));
  return job;
}

int run(const std::vector<std::string>& words) {
  Job job;
  try {
    job = read_command_line(words);
  } catch (const Error& error) {
    if (launch_rank().rank == 0) print_error(error.what());
    return error.exit_code();
  }
  int code = 0;
  if (job.command)
    code = job.command->run(job.arguments);
  else
    std::cout << job.text;
  std::cout.flush();
  return code;
}

int guarded(const std::vector<std::string>& words) {
  try {
    errno = 0;
    return run(words);
  } catch (const Error& error) {
    print_error(error.what());
    return error.exit_code();
  } catch (const std::ios_base::failure& error) {
    // Only stdout throws these. What is left in its buffer goes nowhere, so the flush at exit must not throw
    // again.
    std::cout.exceptions(std::ios::goodbit);
    print_error(cat("standard output: cannot be written: ", errno ? std::strerror(errno) : error.what()));
    return static_cast<int>(ErrorKind::kInput);
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return static_cast<int>(ErrorKind::kDevice);
  } catch (const std::exception& error) {
    print_error(cat("internal error: ", error.what()));
    return static_cast<int>(ErrorKind::kInternal);
  }
}

}  // namespace
int run_program(int argc, char** argv, MakeGpuBuild* gpus) {
  if (const char* missing = missing_cpu_feature(kBuildFeatures)) {
    std::fprintf(
        stderr,
        "tandem: this build needs %s, which this CPU lacks: build for it with -DTANDEM_ARCH=x86-64-v3\n",
        missing);
    return static_cast<int>(ErrorKind::kDevice);
  }
  occupy_standard_streams();
  check_output();
  set_gpu_build(gpus);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    std::cerr << program_help(commands());
    return static_cast<int>(ErrorKind::kUsage);
  }
  return guarded(words);
}

}  // namespace tandem
