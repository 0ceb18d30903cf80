#include "src/audit/mirror_state.hpp"

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

using nlohmann::json;  // CBOR keeps every bit of a double

template <class T>
json packed(const std::vector<T>& values) {
  std::vector<std::uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return json::binary(std::move(bytes));
}

template <class T>
void unpack(const json& content, std::vector<T>& values) {
  const auto& bytes = content.get_binary();
  values.resize(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
}

json packed(const mirror::Tensors& tensors) {
  json all = json::array();
  for (const auto& tensor : tensors) all.push_back(packed(tensor));
  return all;
}

void unpack(const json& content, mirror::Tensors& tensors) {
  tensors.resize(content.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) unpack(content[i], tensors[i]);
}

json packed(const BaseWeights& weights) {
  json tensors = json::array();
  for (const BaseTensorInMemory& tensor : weights.tensors)
    tensors.push_back({tensor.row, tensor.name, tensor.digest});
  return {{"step", weights.step}, {"recorded", weights.recorded}, {"tensors", std::move(tensors)}};
}

BaseWeights weights_of(const json& content) {
  BaseWeights weights{content.at("step"), {}, content.at("recorded")};
  for (const json& tensor : content.at("tensors"))
    weights.tensors.push_back({tensor[0], tensor[1], tensor[2]});
  return weights;
}

json packed(const UpdateJob& job) {
  json all = {{"step", job.step},
              {"steps_before", job.steps_before},
              {"sample_ids", job.sample_ids},
              {"sample_digests", job.sample_digests},
              {"n_targets", job.n_targets},
              {"loss", job.loss},
              {"norm", job.norm},
              {"clip", job.clip},
              {"lr", job.lr},
              {"adapter", packed(job.adapter)},
              {"m", packed(job.m)},
              {"v", packed(job.v)},
              {"gradient", packed(job.gradient)},
              {"adapter_after", packed(job.adapter_after)},
              {"m_after", packed(job.m_after)},
              {"v_after", packed(job.v_after)},
              {"scope", static_cast<int>(job.scope)},
              {"micro_batch", job.micro_batch},
              {"micro_begin", job.micro_begin},
              {"micro_end", job.micro_end},
              {"micro_nll", job.micro_nll},
              {"micro_gradient", packed(job.micro_gradient)},
              {"state_kept", job.state_kept},
              {"config", job.config}};
  if (job.base_tensor)
    all["base_tensor"] = {job.base_tensor->row, job.base_tensor->name, job.base_tensor->digest};
  return all;
}

std::shared_ptr<const UpdateJob> job_of(const json& all) {
  auto job = std::make_shared<UpdateJob>();
  job->step = all.at("step");
  job->steps_before = all.at("steps_before");
  job->sample_ids = all.at("sample_ids").get<std::vector<std::int64_t>>();
  job->sample_digests = all.at("sample_digests").get<std::vector<std::string>>();
  job->n_targets = all.at("n_targets");
  job->loss = all.at("loss");
  job->norm = all.at("norm");
  job->clip = all.at("clip");
  job->lr = all.at("lr");
  unpack(all.at("adapter"), job->adapter);
  unpack(all.at("m"), job->m);
  unpack(all.at("v"), job->v);
  unpack(all.at("gradient"), job->gradient);
  unpack(all.at("adapter_after"), job->adapter_after);
  unpack(all.at("m_after"), job->m_after);
  unpack(all.at("v_after"), job->v_after);
  job->scope = static_cast<AuditScope>(all.at("scope").get<int>());
  job->micro_batch = all.at("micro_batch");
  job->micro_begin = all.at("micro_begin");
  job->micro_end = all.at("micro_end");
  job->micro_nll = all.at("micro_nll");
  unpack(all.at("micro_gradient"), job->micro_gradient);
  job->state_kept = all.at("state_kept");
  job->config = all.at("config");
  if (all.contains("base_tensor")) {
    const json& tensor = all.at("base_tensor");
    job->base_tensor = BaseTensorInMemory{tensor[0], tensor[1], tensor[2]};
  }
  return job;
}

json packed(const Thresholds& thresholds) {
  return {{"relative_error", packed(thresholds.relative_error)},
          {"term_error", packed(thresholds.term_error)},
          {"bias", packed(thresholds.bias)},
          {"loss", thresholds.loss},
          {"from_file", thresholds.from_file}};
}

Thresholds thresholds_of(const json& all) {
  Thresholds thresholds;
  unpack(all.at("relative_error"), thresholds.relative_error);
  unpack(all.at("term_error"), thresholds.term_error);
  unpack(all.at("bias"), thresholds.bias);
  thresholds.loss = all.at("loss");
  thresholds.from_file = all.at("from_file");
  return thresholds;
}

json packed(const FreeRun::State& free) {
  return {{"adapter", packed(free.adapter.adapter)},
          {"m", packed(free.adapter.m)},
          {"v", packed(free.adapter.v)},
          {"steps", free.adapter.steps},
          {"next", free.next},
          {"off_at_start", free.off_at_start},
          {"ended", free.ended}};
}

std::shared_ptr<const FreeRun::State> free_run_of(const json& all) {
  auto free = std::make_shared<FreeRun::State>();
  unpack(all.at("adapter"), free->adapter.adapter);
  unpack(all.at("m"), free->adapter.m);
  unpack(all.at("v"), free->adapter.v);
  free->adapter.steps = all.at("steps");
  free->next = all.at("next");
  free->off_at_start = all.at("off_at_start");
  free->ended = all.at("ended");
  return free;
}

}  // namespace

std::vector<std::uint8_t> mirror_state_bytes(const MirrorState& state) {
  json all = {{"missed", std::vector<bool>(state.missed.begin(), state.missed.end())},
              {"snapshots_left", state.snapshots_left},
              {"audits", state.audits},
              {"skipped", state.skipped},
              {"measured_again", state.measured_again},
              {"most_waiting", state.most_waiting},
              {"audit_seconds", state.audit_seconds},
              {"jobs", json::array()},
              {"weights", json::array()}};
  if (state.thresholds) all["thresholds"] = packed(*state.thresholds);
  for (const auto& waiting : state.jobs)
    all["jobs"].push_back({{"job", packed(*waiting.job)}, {"skipped_after", waiting.skipped_after}});
  for (const BaseWeights& weights : state.weights) all["weights"].push_back(packed(weights));
  if (state.free_run) all["free_run"] = packed(*state.free_run);
  return json::to_cbor(all);
}

MirrorState parse_mirror_state(std::span<const std::uint8_t> bytes) {
  try {
    const json all = json::from_cbor(bytes);
    MirrorState state;
    for (const bool missed : all.at("missed").get<std::vector<bool>>()) state.missed.push_back(missed);
    state.snapshots_left = all.at("snapshots_left");
    state.audits = all.at("audits");
    state.skipped = all.at("skipped");
    state.measured_again = all.at("measured_again");
    state.most_waiting = all.at("most_waiting");
    state.audit_seconds = all.at("audit_seconds");
    if (all.contains("thresholds")) state.thresholds = thresholds_of(all.at("thresholds"));
    for (const json& waiting : all.at("jobs"))
      state.jobs.push_back({job_of(waiting.at("job")), waiting.at("skipped_after")});
    for (const json& weights : all.at("weights")) state.weights.push_back(weights_of(weights));
    if (all.contains("free_run")) state.free_run = free_run_of(all.at("free_run"));
    return state;
  } catch (const json::exception& error) {
    throw Error(ErrorKind::kInput, cat("the mirror's state in a checkpoint is damaged: ", error.what()));
  }
}

}  // namespace tandem
