#include "src/audit/messages.hpp"

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

// CBOR keeps every bit of a double, NaN included.
using nlohmann::json;

MirrorMessage packed(const char* kind, json content) {
  content["kind"] = kind;
  return json::to_cbor(content);
}

template <class T>
json bytes_of(std::span<const T> values) {
  std::vector<std::uint8_t> bytes(values.size_bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return json::binary(std::move(bytes));
}

template <class T>
std::vector<T> values_of(const json& content) {
  const auto& bytes = content.get_binary();
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

json bytes_of(const mirror::Tensors& tensors) {
  json all = json::array();
  for (const auto& tensor : tensors) all.push_back(bytes_of(std::span<const double>(tensor)));
  return all;
}

json rendered(const std::vector<mirror::RenderedSample>& samples) {
  json rows = json::array();
  for (const auto& s : samples) rows.push_back({s.digest, s.n_ids, s.n_targets, s.last_target_id});
  return rows;
}

std::vector<RenderRow> render_rows(const json& content) {
  std::vector<RenderRow> rows;
  for (const json& s : content) rows.push_back({s[0], s[1], s[2], s[3]});
  return rows;
}

}  // namespace

MirrorMessage start_message(const mirror::Mirror& mirror) {
  json content;
  content["load"] = json::array();
  for (const auto& t : mirror.load())
    content["load"].push_back({t.name, t.digest, t.shape, t.dtype, t.mean, t.rms});
  content["config"] = mirror.config_echo();
  content["train"] = rendered(mirror.training_samples());
  content["held_out"] = rendered(mirror.held_out_samples());
  content["template"] = mirror.template_digest();
  content["adapter"] = json::array();
  for (const auto& t : mirror.adapter_tensors()) content["adapter"].push_back({t.name, t.rows, t.columns});
  content["layers"] = mirror.layers();
  content["probe"] = json::array();
  for (const auto& token : mirror.probe_tokens())
    content["probe"].push_back({token.sample, token.position, token.target});
  return packed("start", std::move(content));
}

MirrorMessage update_message(const mirror::Mirror& mirror, std::int64_t t, const mirror::AdapterState& state,
                             const mirror::BatchGradient& batch, const mirror::UpdateResult& result,
                             bool observed, double seconds) {
  json content = {{"step", t},
                  {"optimizer_step", state.steps},
                  {"loss", result.loss},
                  {"n_targets", result.n_scored},
                  {"norm", result.norm},
                  {"clip", result.clip},
                  {"lr", result.lr},
                  {"seconds", seconds},
                  {"ids", mirror.batch(t)},
                  {"adapter_checksum", mirror.adapter_checksum(state.adapter)}};
  if (observed) {
    const double count = std::max(1.0, static_cast<double>(batch.n_scored));
    content["tensor_norms"] = mirror.tensor_norms(batch.gradient);
    for (json& norm : content["tensor_norms"]) norm = norm.get<double>() / count;
  }
  return packed("update", std::move(content));
}

MirrorMessage evaluation_message(const mirror::Mirror& mirror, std::int64_t t, const mirror::Tensors& adapter,
                                 const mirror::Evaluation& evaluation, const mirror::Probe& probe,
                                 std::span<const double> update_norm, double seconds) {
  json content = {{"step", t},
                  {"nll_sum", evaluation.nll_sum},
                  {"n_tokens", evaluation.n_tokens},
                  {"seconds", seconds},
                  {"digest", mirror.adapter_digest(adapter)},
                  {"update_norm", std::vector<double>(update_norm.begin(), update_norm.end())},
                  {"ba_norm", probe.ba_norm}};
  if (!probe.nll.empty())
    content["probe"] = {{"nll", probe.nll},
                        {"target_logit", probe.target_logit},
                        {"top_id", probe.top_id},
                        {"top_logit", probe.top_logit},
                        {"rms", probe.activation_rms},
                        {"absmax", probe.activation_absmax}};
  return packed("evaluation", std::move(content));
}

MirrorMessage adapter_off_message(double start, double end) {
  return packed("adapter_off", {{"start", start}, {"end", end}});
}

MirrorMessage snapshot_message(std::int64_t t, const mirror::AdapterState& before,
                               const mirror::BatchGradient& batch, const std::vector<std::string>& what) {
  json content = {{"step", t}, {"parts", json::array()}};
  for (const std::string& part : what) {
    if (part == "gradient") {
      mirror::Tensors mean = batch.gradient;
      for (auto& tensor : mean)
        for (double& g : tensor) g = batch.n_scored > 0 ? g / static_cast<double>(batch.n_scored) : 0.0;
      content["parts"].push_back({part, bytes_of(mean)});
    } else {
      content["parts"].push_back({part, bytes_of(part == "adapter" ? before.adapter
                                                 : part == "m"     ? before.m
                                                                   : before.v)});
    }
  }
  return packed("snapshot", std::move(content));
}

MirrorMessage free_run_ended_message() { return packed("free_run_ended", json::object()); }

MirrorMessage audit_message(const AuditOutcome& outcome, const UpdateJob* job) {
  json content = {{"step", outcome.step},
                  {"scope", static_cast<int>(outcome.scope)},
                  {"micro_batch", outcome.micro_batch},
                  {"loss_error", outcome.loss_error},
                  {"norm_error", outcome.norm_error},
                  {"relative_error", outcome.relative_error},
                  {"projection", outcome.projection},
                  {"bound", outcome.bound},
                  {"optimizer_error", outcome.optimizer_error},
                  {"verdict", static_cast<int>(outcome.verdict)},
                  {"note", outcome.note}};
  if (job)
    content["snapshot"] = {{"adapter", bytes_of(std::span(std::as_const(job->adapter)))},
                           {"m", bytes_of(std::span(std::as_const(job->m)))},
                           {"v", bytes_of(std::span(std::as_const(job->v)))},
                           {"gradient", bytes_of(std::span(std::as_const(job->gradient)))}};
  return packed("audit", std::move(content));
}

MirrorMessage base_weights_message(std::int64_t step, std::span<const BaseTensorInMemory> tensors) {
  json rows = json::array();
  for (const BaseTensorInMemory& tensor : tensors) rows.push_back({tensor.row, tensor.digest});
  return packed("base_weights", {{"step", step}, {"tensors", std::move(rows)}});
}

MirrorMessage line_message(const std::string& text, bool warning) {
  return packed("line", {{"text", text}, {"warning", warning}});
}

MirrorMessage fact_message(const std::string& name, double value) {
  return packed("fact", {{"name", name}, {"value", value}});
}

// One function a kind of message.
struct MirrorRecorder::Handlers {
  MirrorRecorder& self;

  TrajectoryWriter& free() const {
    if (!self.writer_) throw Error(ErrorKind::kInternal, "the mirror's run has rows before its beginning");
    return *self.writer_;
  }

  void start(const json& m) const {
    TrajectoryHeader header = self.free_->header;
    header.records_eval = !m.at("held_out").empty();
    header.records_norms = header.records_eval;
    const MirrorRecorder::Free& f = *self.free_;
    self.writer_ = std::make_unique<TrajectoryWriter>(f.file, header, f.flush_s, f.begin);
    std::vector<LoadRow> load;
    for (const json& t : m.at("load")) load.push_back({t[0], t[1], t[2], t[3], t[4], t[5]});
    free().set_load(load, m.at("config").get<std::string>());
    free().set_render(render_rows(m.at("train")), render_rows(m.at("held_out")),
                      m.at("template").get<std::string>());
    std::vector<std::string> names;
    std::vector<std::pair<std::int64_t, std::int64_t>> shapes;
    for (const json& t : m.at("adapter")) {
      names.push_back(t[0]);
      shapes.emplace_back(t[1], t[2]);
    }
    free().set_adapter(names, shapes);
    ProbeTokens probe;
    for (const json& token : m.at("probe")) {
      probe.sample.push_back(token[0]);
      probe.position.push_back(token[1]);
      probe.target.push_back(token[2]);
    }
    if (probe.size() > 0) free().set_probe(probe, m.at("layers"));
    if (!f.begin.empty()) {
      free().add_provenance("resumed", f.resumed);
      free().remove_other_snapshots();
    }
    free().publish();
  }

  void update(const json& m) const {
    const auto ids = m.at("ids").get<std::vector<std::int64_t>>();
    UpdateRow row;
    row.step = m.at("step");
    row.optimizer_step = m.at("optimizer_step");
    row.loss = m.at("loss");
    row.n_targets = m.at("n_targets");
    row.grad_norm = m.at("norm");
    row.clip = m.at("clip");
    row.lr = m.at("lr");
    row.n_samples = static_cast<std::int64_t>(ids.size());
    row.seconds = m.at("seconds");
    row.adapter_checksum = m.at("adapter_checksum");
    row.sample_ids = ids;
    free().append_update(row);
    if (m.contains("tensor_norms"))
      free().append_observed(row.step, m.at("tensor_norms").get<std::vector<double>>());
    free().maybe_publish();
  }

  void evaluation(const json& m) const {
    const auto doubles = [](const json& values) { return values.get<std::vector<double>>(); };
    EvalRow row;
    row.step = m.at("step");
    row.nll_sum = m.at("nll_sum");
    row.n_tokens = m.at("n_tokens");
    row.loss = row.nll_sum / static_cast<double>(row.n_tokens);
    row.seconds = m.at("seconds");
    row.adapter_digest = m.at("digest");
    const auto ba = doubles(m.at("ba_norm")), change = doubles(m.at("update_norm"));
    row.norms = {ba, change};
    std::vector<double> nll, target, top, rms, absmax;
    std::vector<std::int64_t> ids;
    if (m.contains("probe")) {
      const json& probe = m.at("probe");
      nll = doubles(probe.at("nll"));
      target = doubles(probe.at("target_logit"));
      ids = probe.at("top_id").get<std::vector<std::int64_t>>();
      top = doubles(probe.at("top_logit"));
      rms = doubles(probe.at("rms"));
      absmax = doubles(probe.at("absmax"));
      row.probe = {nll, target, ids, top, rms, absmax};
    }
    free().append_eval(row);
    free().publish();
    self.say_(cat("mirror: evaluation after update ", row.step, ": held-out loss ", row.loss), false);
  }

  void adapter_off(const json& m) const { free().set_loss_adapter_off(m.at("start"), m.at("end")); }

  void snapshot(const json& m) const {
    std::map<std::string, std::vector<std::vector<double>>> values;
    std::vector<SnapshotPart> parts;
    for (const json& part : m.at("parts")) {
      auto& tensors = values[part[0]];
      for (const json& tensor : part[1]) tensors.push_back(values_of<double>(tensor));
      parts.push_back({part[0], std::vector<std::span<const double>>(tensors.begin(), tensors.end())});
    }
    free().write_snapshot(m.at("step"), parts);
  }

  void free_run_ended(const json&) const {
    free().finish();
    self.writer_.reset();
  }

  void audit(const json& m) const {
    AuditOutcome outcome{m.at("step"),
                         static_cast<AuditScope>(m.at("scope").get<int>()),
                         m.at("micro_batch"),
                         m.at("loss_error"),
                         m.at("norm_error"),
                         m.at("relative_error"),
                         m.at("projection"),
                         m.at("bound"),
                         m.at("optimizer_error"),
                         static_cast<Verdict>(m.at("verdict").get<int>()),
                         m.at("note")};
    self.native_.append_audit(outcome.row());
    if (m.contains("snapshot") && !self.native_.has_snapshot(outcome.step))
      state_of_update(outcome.step, m.at("snapshot"));
    if (outcome.verdict != Verdict::kPass && outcome.verdict != Verdict::kSkipped)
      self.say_(cat("audit of update ", outcome.step, ": ", outcome.note), true);
    self.native_.maybe_publish();
  }

  void state_of_update(std::int64_t step, const json& flats) const {
    std::map<std::string, FlatTensors> values;
    std::vector<SnapshotPart> parts;
    for (const char* name : {"adapter", "m", "v", "gradient"}) {
      const FlatTensors& flat = values[name] = values_of<float>(flats.at(name));
      parts.push_back({name, cut(flat, self.sizes_)});
    }
    self.native_.write_snapshot(step, parts);
  }

  void base_weights(const json& m) const {
    for (const json& tensor : m.at("tensors"))
      self.native_.append_load_memory(m.at("step"), tensor[0], tensor[1].get<std::string>());
  }

  void line(const json& m) const { self.say_(m.at("text"), m.at("warning")); }
  void fact(const json& m) const {
    self.native_.set_provenance(m.at("name").get<std::string>(), m.at("value").get<double>());
  }
};

MirrorRecorder::MirrorRecorder(TrajectoryWriter& native, std::vector<std::size_t> sizes,
                               std::optional<Free> free, std::function<void(const std::string&, bool)> say)
    : native_(native), sizes_(std::move(sizes)), free_(std::move(free)), say_(std::move(say)) {}

void MirrorRecorder::apply(const MirrorMessage& message) {
  using Handler = void (Handlers::*)(const json&) const;
  static const std::map<std::string, Handler> handlers = {{"start", &Handlers::start},
                                                          {"update", &Handlers::update},
                                                          {"evaluation", &Handlers::evaluation},
                                                          {"adapter_off", &Handlers::adapter_off},
                                                          {"snapshot", &Handlers::snapshot},
                                                          {"free_run_ended", &Handlers::free_run_ended},
                                                          {"audit", &Handlers::audit},
                                                          {"base_weights", &Handlers::base_weights},
                                                          {"line", &Handlers::line},
                                                          {"fact", &Handlers::fact}};
  const json content = json::from_cbor(message);
  (Handlers{*this}.*handlers.at(content.at("kind").get<std::string>()))(content);
}

void MirrorRecorder::publish() {
  if (writer_) writer_->publish();
}

}  // namespace tandem
