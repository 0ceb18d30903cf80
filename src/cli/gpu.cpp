#include "src/cli/gpu.hpp"

namespace tandem {

namespace {

MakeGpuBuild* make_build = nullptr;

}  // namespace

void set_gpu_build(MakeGpuBuild* make) { make_build = make; }

GpuBuild* gpu_build() {
  static const std::unique_ptr<GpuBuild> build = make_build ? make_build() : nullptr;
  return build.get();
}

}  // namespace tandem
