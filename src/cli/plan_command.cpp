#include "src/cli/plan_command.hpp"

#include <charconv>
#include <ostream>
#include <thread>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/train/inputs.hpp"
#include "src/train/memory_plan.hpp"

namespace tandem {

namespace {

int positive(const std::string& text) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < 1 || value > 4096)
    throw Error(ErrorKind::kUsage, cat("--ranks ", text, ": must be a whole number from 1 to 4096"));
  return value;
}

}  // namespace

int plan_command(Config config, const std::string& local_ranks, std::ostream& out) {
  const int ranks = positive(local_ranks);
  const auto cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const RunInputs inputs =
      load_inputs(config.spec, {.threads = cpus, .cache = config.run.cache.path, .told = {}});
  RunSpec& spec = config.spec;
  resolve(spec, inputs.train.samples.size());
  const int threads =
      config.execution.threads > 0 ? static_cast<int>(config.execution.threads) : std::max(1, cpus / ranks);
  const LoraLayout lora(inputs.config, spec.lora_rank, spec.lora_scale(), spec.lora_targets);
  const bool on_gpu =
      config.execution.precision != "f32" || config.execution.gpu == "on" || config.execution.gpu == "shared";
  const MemoryPlan plan =
      plan_memory(inputs.config, lora, spec, config.execution, inputs.train.samples, inputs.held_out.samples,
                  threads, ranks, memory_limit_bytes(config.execution), on_gpu);
  out << spec.train_updates << " updates of " << spec.batch_global << " samples, "
      << inputs.train.samples.size() << " training and " << inputs.held_out.samples.size()
      << " held-out samples; adapter of " << lora.tensors().size() / 2 << " modules\n";
  for (const std::string& line : plan.lines()) out << line << "\n";
  if (on_gpu) out << "the GPU's memory is planned when the run starts, by what is free there\n";
  return 0;
}

}  // namespace tandem
