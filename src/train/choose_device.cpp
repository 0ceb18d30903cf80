#include "kernels/attention.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/train/gpu_build.hpp"

namespace tandem {

GpuPlan choose_device(Communicator& comm, const std::string& host, const Execution& execution,
                      const HeadShape& heads, GpuBuild* build) {
  const std::string& asked = execution.gpu;
  const bool must = asked == "on" || asked == "shared", only_gpu = execution.precision != "f32";
  GpuPlan plan;
  ErrorKind kind = ErrorKind::kUsage;
  if (asked == "off") {
    plan.why_none = "gpu = off";
  } else if (!build) {
    plan.why_none = "this program was built without CUDA (cmake --preset cuda)";
  } else if (!on_device(heads)) {
    plan.why_none =
        cat("the model's heads have ", heads.head_dim, " dimensions, GPUs compute those of 64 and 128");
  } else {
    kind = ErrorKind::kDevice;
    try {
      plan = plan_gpus(comm, host, build->system(), asked == "shared");
    } catch (const AgreedError& error) {
      if (must || only_gpu) throw;
      throw AgreedError(error.kind(), cat(error.what(), "; or compute on CPUs (gpu = off)"), error.rank());
    }
  }
  if (plan.device) return plan;
  if (must) throw AgreedError(kind, cat("gpu = ", asked, ": ", plan.why_none), 0);
  if (only_gpu)
    throw AgreedError(kind,
                      cat("precision = ", execution.precision,
                          ": is computed on GPUs only, the CPU has f32: ", plan.why_none),
                      0);
  return plan;
}

}  // namespace tandem
