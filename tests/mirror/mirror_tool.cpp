// The mirror by command line, for the scripts that compare it with other stacks. Each command writes to
// stdout.
//
//   mirror_tool tokenize MODEL < TEXTS      one JSON string a line -> one JSON array of ids a line
//   mirror_tool render SPEC MODEL FILE      rows -> `tandem render`'s line, ids, targets and digest
//   mirror_tool run SPEC MODEL TRAIN HELD_OUT|none LORA_INIT|none [THREADS]
//       the whole run, as JSON: evaluations, updates, gradient of the first update, the adapters' digests
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "src/base/error.hpp"
#include "src/mirror/config.hpp"
#include "src/mirror/json_file.hpp"
#include "src/mirror/mirror.hpp"
#include "src/mirror/samples.hpp"
#include "src/mirror/tokenizer.hpp"

namespace tandem::mirror {
namespace {

using nlohmann::json;

int tokenize(const std::string& model) {
  const Tokenizer tokenizer(std::filesystem::path(model) / "tokenizer.json");
  for (std::string line; std::getline(std::cin, line);)
    std::cout << json(tokenizer.encode(parse_json(line).get<std::string>())).dump() << "\n";
  return 0;
}

int render_rows(const std::string& spec_file, const std::string& model, const std::string& file) {
  const Spec spec = read_spec(read_text_file(spec_file));
  const Config config = read_config(std::filesystem::path(model) / "config.json");
  Renderer renderer(spec, model, config.vocab_size);
  for (const Sample& sample : renderer.read(file)) {
    const json row = {{"line", sample.line},
                      {"ids", sample.ids},
                      {"targets", sample.targets},
                      {"digest", describe(sample).digest}};
    std::cout << row.dump() << "\n";
  }
  for (const std::string& warning : renderer.warnings()) std::cerr << "warning: " << warning << "\n";
  return 0;
}

json evaluation(const Mirror& mirror, std::int64_t step, const Tensors* adapter) {
  const Evaluation result = mirror.evaluate(adapter);
  json out = {{"step", step}, {"nll_sum", result.nll_sum}, {"n_tokens", result.n_tokens}};
  if (adapter) out["adapter_digest"] = mirror.adapter_digest(*adapter);
  return out;
}

json by_name(const Mirror& mirror, const Tensors& tensors) {
  json out;
  for (std::size_t i = 0; i < tensors.size(); ++i) out[mirror.adapter_tensors()[i].name] = tensors[i];
  return out;
}

json probe_of(const Mirror& mirror, const Tensors& adapter) {
  const Probe probe = mirror.probe(adapter);
  return {{"nll", probe.nll},
          {"target_logit", probe.target_logit},
          {"topk_id", probe.top_id},
          {"topk_logit", probe.top_logit},
          {"rms", probe.activation_rms},
          {"absmax", probe.activation_absmax},
          {"ba_norm", probe.ba_norm}};
}

int run(const std::vector<std::string>& args) {
  const auto optional = [](const std::string& path) {
    return path == "none" ? std::nullopt : std::optional<std::filesystem::path>(path);
  };
  const Mirror mirror({read_text_file(args[0]), args[1], args[2], optional(args[3]), optional(args[4]),
                       args.size() > 5 ? std::stoi(args[5]) : 1});
  for (const std::string& warning : mirror.warnings()) std::cerr << "warning: " << warning << "\n";
  json out = {{"config", parse_json(mirror.config_echo())},
              {"template_digest", mirror.template_digest()},
              {"updates", json::array()},
              {"evaluations", json::array()}};
  for (const LoadedTensor& tensor : mirror.load())
    out["load"].push_back({tensor.name, tensor.digest, tensor.dtype, tensor.shape, tensor.mean, tensor.rms});
  const bool evaluates = !mirror.held_out_samples().empty();
  AdapterState state = mirror.initial();
  if (evaluates) {
    out["adapter_off"] = evaluation(mirror, 0, nullptr);
    out["evaluations"].push_back(evaluation(mirror, 0, &state.adapter));
  }
  for (std::int64_t t = 1; t <= mirror.updates(); ++t) {
    const auto ids = mirror.batch(t);
    const BatchGradient batch = mirror.gradient(state.adapter, ids, t);
    if (t == mirror.updates()) {
      out["last_adapter"] = by_name(mirror, state.adapter);
      out["last_gradient"] = by_name(mirror, batch.gradient);
      out["last_nll_sum"] = batch.nll_sum;
      out["last_probe"] = probe_of(mirror, state.adapter);
    }
    const UpdateResult result = mirror.step(state, batch, t);
    out["updates"].push_back({{"step", t},
                              {"optimizer_step", state.steps},
                              {"sample_ids", ids},
                              {"loss", result.loss},
                              {"n_targets", result.n_scored},
                              {"grad_norm", result.norm},
                              {"clip", result.clip},
                              {"lr", result.lr},
                              {"adapter_checksum", mirror.adapter_checksum(state.adapter)}});
    if (evaluates && (t % mirror.eval_every() == 0 || t == mirror.updates()))
      out["evaluations"].push_back(evaluation(mirror, t, &state.adapter));
  }
  std::cout << out.dump() << "\n";
  return 0;
}

int main_of(const std::vector<std::string>& args) {
  if (args.size() == 2 && args[0] == "tokenize") return tokenize(args[1]);
  if (args.size() == 4 && args[0] == "render") return render_rows(args[1], args[2], args[3]);
  if ((args.size() == 6 || args.size() == 7) && args[0] == "run") return run({args.begin() + 1, args.end()});
  std::cerr << "usage: see the head of mirror_tool.cpp\n";
  return 2;
}

}  // namespace
}  // namespace tandem::mirror

int main(int argc, char** argv) {
  try {
    return tandem::mirror::main_of({argv + 1, argv + argc});
  } catch (const tandem::Error& error) {
    std::cerr << "mirror_tool: " << error.what() << "\n";
    return error.exit_code();
  }
}
