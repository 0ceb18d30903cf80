#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/train/gpu_build.hpp"

namespace tandem {

GpuPlan choose_device(Communicator& comm, const std::string& host, const Execution& execution,
                      GpuBuild* build) {
  const std::string& asked = execution.gpu;
  const bool must = asked == "on" || asked == "shared";
  GpuPlan plan;
  if (asked == "off") {
    plan.why_none = "gpu = off";
  } else if (!build) {
    plan.why_none = "this program was built without CUDA (cmake --preset cuda)";
  } else {
    plan = plan_gpus(comm, host, build->system(), asked == "shared");
  }
  if (plan.device) return plan;
  if (must)
    throw AgreedError(build ? ErrorKind::kDevice : ErrorKind::kUsage,
                      cat("gpu = ", asked, ": ", plan.why_none), 0);
  if (execution.precision != "f32")
    throw AgreedError(ErrorKind::kUsage,
                      cat("precision = ", execution.precision,
                          ": is computed on GPUs only, the CPU has f32: ", plan.why_none),
                      0);
  return plan;
}

}  // namespace tandem
