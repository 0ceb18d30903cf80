// What a program that was built with CUDA brings to a run. One built without brings none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/gpu_system.hpp"
#include "kernels/context.hpp"
#include "src/model/transformer.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/engine.hpp"

namespace tandem {

// What an engine is made from; all must outlive it. ctx: of the host.
struct EngineParts {
  const CpuContext& ctx;
  Communicator& comm;
  const Execution& execution;
  const ModelConfig& config;
  const Weights& weights;
  const LoraLayout& lora;
  BatchLimits limits;
  LoraDropout dropout;
};

struct GpuEngine {
  std::unique_ptr<Engine> engine;
  std::vector<std::string> lines;  // of this rank: its memory, what carries the sum over ranks
};

class GpuBuild {
 public:
  virtual ~GpuBuild() = default;
  virtual GpuSystem& system() = 0;
  // Collective. Throws AgreedError on every rank: kUsage where the model's shape is not computed on GPUs,
  // kDevice where one of them has not the memory.
  virtual GpuEngine engine(const EngineParts& parts, const GpuPlan& plan) = 0;
};

// The one of CUDA. Only in programs that link tandem_train_cuda.
std::unique_ptr<GpuBuild> cuda_build();

// The device of a run by its keys (gpu, precision): a plan without a device means the CPU. build: may be
// none. Collective. Throws AgreedError: as plan_gpus() does; kUsage where a key asks for what this program
// has not, or for a model that GPUs do not compute.
GpuPlan choose_device(Communicator& comm, const std::string& host, const Execution& execution,
                      const HeadShape& heads, GpuBuild* build);

}  // namespace tandem
