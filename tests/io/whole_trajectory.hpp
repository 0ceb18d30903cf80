// A small trajectory that has every part of the format, valid and consistent in itself.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/samples.hpp"
#include "io/trajectory.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem::support {

// 5 training samples in batches of 2, so that an epoch is 3 updates; 4 updates, evaluated every 3.
inline constexpr std::int64_t kWholeUpdates = 4, kWholeBatch = 2;

inline void write_whole_trajectory(const std::filesystem::path& file) {
  TrajectoryHeader header;
  header.stack = file.stem().string();
  header.spec_text = "batch.global = 2\neval.every = 3\ntrain.updates = 4\n";
  header.execution_text = "observe.every = 2\nprecision = \"f32\"\nsnapshot.every = 3\n";
  header.batch_global = kWholeBatch;
  header.provenance = {{"arithmetic", "native"}, {"orchestration", "tandem"}, {"runtime", "tandem/cpu"}};
  header.records_observed = header.records_norms = header.records_audits = header.records_slow = true;
  TrajectoryWriter writer(file, header, 10.0);

  const LoadRow load[] = {{"w", sha256_hex("w"), {8, 4}, "BF16", 0.25, 0.5},
                          {"x", sha256_hex("x"), {4}, "F32", 1.0, 1.0}};
  writer.set_load(load, "{}");
  SampleSet train, held_out;
  for (std::int32_t i = 0; i < 5; ++i)
    train.add(std::array{i, i + 1, i + 2},
              std::array<std::uint8_t, 3>{1, 0, static_cast<std::uint8_t>(i != 4)}, i + 1);
  held_out.add(std::array{7, 8, 9, 10}, std::array<std::uint8_t, 4>{0, 1, 1, 0}, 1);
  held_out.add(std::array{9, 10}, std::array<std::uint8_t, 2>{0, 1}, 2);
  writer.set_render(train, held_out, sha256_hex("template"), true);
  writer.set_probe({{0, 0, 1}, {1, 2, 1}, {8, 9, 10}}, 2);
  const std::string names[] = {"m.lora_A.weight", "m.lora_B.weight"};
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{2, 3}, {4, 2}};
  writer.set_adapter(names, shapes);

  const auto evaluate = [&](std::int64_t step) {
    const std::array nll = {1.0, 2.0, 3.0};
    const std::array sizes = {1.0, 1.5};
    const std::array change = step > 0 ? std::array{0.1, 0.2} : std::array{0.0, 0.0};
    std::vector<std::int64_t> top(3 * kTopLogits);
    std::vector<double> logit(top.size());
    for (std::size_t i = 0; i < top.size(); ++i) {
      const bool none = i % kTopLogits == kTopLogits - 1;
      top[i] = none ? -1 : static_cast<std::int64_t>(i);
      logit[i] = none ? std::nan("") : 5.0 - static_cast<double>(i % kTopLogits / 2);  // equal ones too
    }
    EvalRow row{step, 7.0, 3, 7.0 / 3.0, 0.1, sha256_hex(cat(step)), 1000 + step, 0, {}, {}};
    row.probe = {nll, nll, top, logit, sizes, sizes};
    row.norms = {std::span(sizes).first(1), change};
    writer.append_eval(row);
  };
  for (std::int64_t i = 0; i < 2; ++i) writer.append_load_memory(0, i, load[i].digest);
  evaluate(0);
  // The second epoch's order is another; update 3 is an epoch's last, short batch, and scores nothing.
  const std::vector<std::int64_t> batches[] = {{2, 0}, {3, 1}, {4}, {1, 4}};
  std::int64_t made = 0;
  for (std::int64_t step = 1; step <= kWholeUpdates; ++step) {
    const auto& ids = batches[step - 1];
    UpdateRow row;
    row.step = step;
    for (const std::int64_t id : ids) row.n_targets += train.n_scored(id);
    const bool scored = row.n_targets > 0;
    row.optimizer_step = made += scored;
    row.loss = scored ? 3.0 : std::nan("");
    row.grad_norm = scored ? 0.5 : 0.0;
    row.lr = 1e-4;
    row.n_samples = static_cast<std::int64_t>(ids.size());
    row.sample_ids = ids;
    writer.append_update(row);
    if (step % 2 == 0) writer.append_observed(step, std::array{0.25, 0.125});
    if (step % 3 == 0) {
      const std::vector<float> a(6, 1.0f), b(8, 2.0f);
      std::vector<SnapshotPart> parts;
      for (const char* part : {"adapter", "m", "v", "gradient"})
        parts.push_back({part, std::vector<std::span<const float>>{a, b}});
      writer.write_snapshot(step, parts);
      evaluate(step);
    }
  }
  AuditRow audit;
  const std::array error = {1e-6, 3e-6}, bound = {1e-5, 1e-5};
  audit.step = 2;
  audit.relative_error = error;
  audit.bound = bound;
  writer.append_audit(audit);
  audit.scope = AuditScope::kMicroBatch;
  audit.micro_batch = 1;
  audit.verdict = Verdict::kBound;
  audit.note = "é";
  writer.append_audit(audit);
  writer.append_load_memory(2, 1, load[1].digest);
  writer.append_slow({2, -1, 2.5, "all-reduce", "a", "load average 3"});
  writer.append_slow({4, 1, 8.0, "gradient", "b", ""});
  evaluate(kWholeUpdates);
  writer.set_loss_adapter_off(7.0 / 3.0);
  writer.finish();
}

}  // namespace tandem::support
