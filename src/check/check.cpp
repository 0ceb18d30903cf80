#include "src/check/check.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>

#include "io/model_tensors.hpp"
#include "io/publish.hpp"
#include "io/trajectory.hpp"
#include "src/base/arena.hpp"
#include "src/base/error.hpp"
#include "src/base/paths.hpp"
#include "src/base/random.hpp"
#include "src/base/text.hpp"
#include "src/check/adapter_check.hpp"
#include "src/check/inputs_check.hpp"
#include "src/check/loss_check.hpp"
#include "src/check/subject.hpp"
#include "src/check/update_check.hpp"
#include "src/spec/digests.hpp"
#include "src/train/auditor.hpp"
#include "src/train/first_adapter.hpp"
#include "src/train/memory_plan.hpp"

namespace tandem {

namespace {

constexpr std::uint64_t kSeed = 0x7461'6e64'656d'0003;

RunInputs read_inputs(Config& config, const CpuContext& ctx, const CheckOptions& options) {
  digest_inputs(config.spec);
  RunInputs inputs = load_inputs(
      config.spec, {.threads = ctx.threads, .cache = config.run.cache.path, .told = options.progress});
  resolve(config.spec, inputs.train.samples.size());
  config.execution.ranks = 1;
  config.execution.device = "cpu";
  return inputs;
}

mirror::Inputs mirror_inputs(const Config& config, int threads) {
  mirror::Inputs inputs = mirror_options(config, {}).inputs;
  inputs.threads = threads;
  return inputs;
}

// B as large as a few updates make it: the loss moves, and the thresholds are those of training's beginning.
void draw_b(std::vector<float>& flat, const LoraLayout& lora) {
  constexpr double kSize = 1e-2;
  for (const LoraTensor& tensor : lora.tensors()) {
    if (!tensor.name.ends_with(".lora_B.weight")) continue;
    const RandomStream stream(kSeed, "check." + tensor.name);
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      flat[static_cast<std::size_t>(tensor.offset + i)] =
          static_cast<float>(kSize * (2.0 * stream.unit(static_cast<std::uint64_t>(i)) - 1.0));
  }
}

void clear_b(std::vector<float>& flat, const LoraLayout& lora) {
  for (const LoraTensor& tensor : lora.tensors())
    if (tensor.name.ends_with(".lora_B.weight"))
      std::fill_n(flat.begin() + tensor.offset, tensor.size(), 0.0f);
}

CheckLine operations_line(const std::vector<OperationCheck>& operations) {
  CheckLine line{1, "operations"};
  const OperationCheck* nearest = nullptr;
  const auto share = [](const OperationCheck& operation) {
    return operation.alarm > 0.0 ? operation.error / operation.alarm : 0.0;
  };
  for (const OperationCheck& operation : operations) {
    if (operation.verdict() != Verdict::kPass)
      line.fail(operation.verdict(),
                cat(operation.name, operation.where, ": error ",
                    std::isnan(operation.error) ? "not a number" : cat(operation.error, " of its size"), ", ",
                    operation.verdict() == Verdict::kCalibrated ? cat("expected below ", operation.alarm)
                                                                : cat("at most ", operation.bound)));
    if (!nearest || share(operation) > share(*nearest)) nearest = &operation;
  }
  line.summary = cat(operations.size(), " results; nearest to its alarm: ", nearest->name, ", ",
                     static_cast<int>(100.0 * std::min(share(*nearest), 9.99) + 0.5), " %");
  return line;
}

void write_file(const Config& config, const RunInputs& inputs, const Weights& weights,
                const CheckReport& report, const CheckOptions& options) {
  TrajectoryHeader header;
  header.spec_text = canonical_text(config.spec);
  header.execution_text = canonical_text(config.execution);
  header.records_updates = header.records_eval = false;
  header.provenance = options.facts;
  header.provenance.insert(
      {{"arithmetic", "native"}, {"orchestration", "tandem"}, {"runtime", "tandem/cpu"}});
  TrajectoryWriter writer(options.out, header, 0.0);
  writer.set_load(weights.load_rows(), inputs.config.echo());
  writer.set_render(inputs.train.samples, inputs.held_out.samples, inputs.train.report.template_digest);
  std::vector<OperationRow> rows;
  for (const OperationCheck& operation : report.operations)
    rows.push_back({operation.name, operation.error, operation.bound});
  writer.set_ops(rows);
  writer.finish();
}

// Before anything is computed: the file can be written, and is none of what is read.
void require_output(const std::filesystem::path& out, const RunSpec& spec) {
  if (out.empty()) return;
  for (const auto& [key, input] : spec.inputs())
    if (!path_inside(out, input->path).empty())
      throw Error(ErrorKind::kUsage, cat("--out ", out.string(), ": is part of ", key, " = ", input->path,
                                         "; choose another name"));
  require_replaceable(out);
  const std::filesystem::path folder = out.has_parent_path() ? out.parent_path() : ".";
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    throw Error(ErrorKind::kInput,
                cat("--out ", out.string(), ": cannot be written: ", std::strerror(errno)));
}

}  // namespace

CheckReport run_check(Config config, const CpuContext& ctx, const CheckOptions& options) {
  if (config.execution.precision != "f32")
    throw Error(
        ErrorKind::kUsage,
        cat("precision = ", config.execution.precision,
            ": check looks at what the CPU computes, which is f32; tests/device/check.sh looks at a GPU"));
  require_output(options.out, config.spec);
  const auto progress = [&](const char* what) {
    if (options.progress) options.progress(what);
  };
  const auto warn = [&](const std::vector<std::string>& warnings) {
    for (const std::string& warning : warnings)
      if (options.warning) options.warning(warning);
  };
  progress("reading model and rows");
  const RunInputs inputs = read_inputs(config, ctx, options);
  const std::int64_t memory_bytes = memory_limit_bytes(config.execution);
  Arena memory(Weights::bytes(inputs.config), "model weights");
  Weights weights(inputs.config, memory.block());
  weights.load(ModelTensors(config.spec.model.path));
  const RunSpec& spec = config.spec;
  const LoraLayout lora(inputs.config, spec.lora_rank, spec.lora_scale(), spec.lora_targets);
  for (const Dataset* data : {&inputs.train, &inputs.held_out}) warn(data->report.warnings());
  warn(weights.warnings());

  progress("the mirror reads them too");
  const mirror::Mirror mirror(mirror_inputs(config, ctx.threads));
  CheckSubject subject{ctx,          config, inputs, weights, lora, mirror, mirror.flops_per_second(),
                       memory_bytes, {},     {},     {}};
  subject.untrained.resize(static_cast<std::size_t>(lora.size()));
  if (const std::string warning = first_adapter(subject.untrained, lora, spec); !warning.empty())
    warn({"lora.init: " + warning});
  clear_b(subject.untrained, lora);
  subject.seeded = subject.untrained;
  draw_b(subject.seeded, lora);

  CheckReport report;
  report.spec_digest = spec_digest(spec);
  for (const LoraTensor& tensor : lora.tensors()) report.adapter_tensors.push_back(tensor.name);
  for (const std::span<const float> tensor : lora.spans(subject.seeded))
    subject.seeded_tensors.emplace_back(tensor.begin(), tensor.end());
  for (std::int64_t i = 0; i < std::min(options.shown, inputs.train.samples.size()); ++i)
    report.shown.add(inputs.train.samples.ids(i), inputs.train.samples.targets(i),
                     inputs.train.samples.line(i));

  progress("loading");
  const CheckLine loading = check_loading(mirror, weights);
  progress("rendering");
  const CheckLine rendering = check_rendering(mirror, inputs.train, inputs.held_out);
  progress("operations");
  report.operations = check_operations({ctx, inputs.config, weights, lora, spec});
  report.lines.push_back(operations_line(report.operations));

  // What follows starts from these; a difference there would only be seen again.
  const CheckLine* cause = loading.verdict != Verdict::kPass     ? &loading
                           : rendering.verdict != Verdict::kPass ? &rendering
                                                                 : nullptr;
  const auto unless_caused = [&](const char* name, const auto& check) {
    if (cause)
      return CheckLine::not_checked(
          1, name, cat("the stacks differ already in ", cause->name, " (level ", cause->level, ")"));
    progress(name);
    return check();
  };
  std::optional<HeldOutLosses> losses;
  report.lines.push_back(
      unless_caused("first update", [&] { return check_first_update(subject, options.seconds, report); }));
  report.lines.push_back(unless_caused(
      "untrained loss", [&] { return check_untrained_loss(subject, options.seconds, report, losses); }));
  report.lines.push_back(loading);
  progress("adapter");
  report.lines.push_back(check_adapter(subject, options.seconds, losses, report));
  report.lines.push_back(rendering);
  progress("");
  if (!options.out.empty()) write_file(config, inputs, weights, report, options);
  return report;
}

}  // namespace tandem
