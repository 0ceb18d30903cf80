#include <set>
#include <utility>

#include "kernels/cuda_context.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/train/cuda/cuda_engine.hpp"
#include "src/train/gpu_build.hpp"

namespace tandem {

namespace {

class CudaBuild final : public GpuBuild {
 public:
  GpuSystem& system() override { return *system_; }

  GpuEngine engine(const EngineParts& parts, const GpuPlan& plan) override {
    std::unique_ptr<CudaContext> ctx = agree(parts.comm, [&] {
      return std::make_unique<CudaContext>(
          *plan.device, parts.execution.precision == "tf32" ? ProductMode::kTf32 : ProductMode::kF32);
    });
    std::unique_ptr<DeviceReduction> reduction = parts.comm.size() == 1 ? no_reduction()
                                                 : plan.through_host ? host_staged_reduction(parts.comm, *ctx)
                                                                     : nccl_reduction(parts.comm, *ctx);
    if (parts.comm.size() > 1) connect(parts, *ctx, *reduction);
    return agree(parts.comm, [&] {
      const std::uint64_t free = system_->free_bytes(*plan.device) / static_cast<std::uint64_t>(plan.sharers);
      if (parts.execution.precision == "bf16")
        return made<Bf16>(parts, std::move(ctx), std::move(reduction), free);
      return made<float>(parts, std::move(ctx), std::move(reduction), free);
    });
  }

 private:
  // NCCL connects the ranks at the first sum of a size, takes memory for it, and may wait for all of them to
  // call it. In an update a rank that fails would not come, and the memory would be planned for other things.
  static void connect(const EngineParts& parts, const CudaContext& ctx, DeviceReduction& reduction) {
    std::set<std::int64_t> sizes = {1};
    for (std::int64_t l = 0; l < parts.config.n_layers; ++l) {
      const auto [begin, end] = parts.lora.layer_range(l);
      if (end > begin) sizes.insert(end - begin);
    }
    DeviceArena memory;
    agree(parts.comm, [&] {
      memory =
          DeviceArena(ctx, static_cast<std::size_t>(*sizes.rbegin()) * sizeof(std::int64_t), "a first sum");
      zero_bytes(ctx, memory.block().data(), memory.bytes());
    });
    for (const std::int64_t size : sizes) {
      reduction.start(
          ctx, {reinterpret_cast<std::int64_t*>(memory.block().data()), static_cast<std::size_t>(size)});
      reduction.finish(ctx, "before the first update");
    }
    ctx.synchronize();  // before the memory is freed
  }

  template <class Real>
  static GpuEngine made(const EngineParts& parts, std::unique_ptr<CudaContext> ctx,
                        std::unique_ptr<DeviceReduction> reduction, std::uint64_t free) {
    auto engine = std::make_unique<CudaEngine<Real>>(parts, std::move(ctx), std::move(reduction), free);
    std::vector<std::string> lines = engine->lines();
    return {std::move(engine), std::move(lines)};
  }

  std::unique_ptr<GpuSystem> system_ = cuda_system();
};

}  // namespace

std::unique_ptr<GpuBuild> cuda_build() { return std::make_unique<CudaBuild>(); }

}  // namespace tandem
