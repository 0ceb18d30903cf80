#include "src/train/inputs.hpp"

#include "src/base/error.hpp"
#include "src/base/progress.hpp"
#include "src/base/text.hpp"

namespace tandem {

RenderOptions render_options(const RunSpec& spec) {
  RenderOptions options;
  options.chat_template = spec.data_template;
  options.max_tokens = spec.data_max_tokens;
  options.truncate = spec.data_truncate;
  options.targets = spec.data_targets;
  options.special_in_text = spec.data_special_in_text;
  return options;
}

namespace {

std::int64_t n_scored(const SampleSet& samples) {
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < samples.size(); ++i) n += samples.n_scored(i);
  return n;
}

Dataset load(const RunSpec::Input& data, const std::string& model_dir, const RenderOptions& options,
             const InputAids& aids) {
  LoadAids load_aids{
      .cache = aids.cache, .write_cache = aids.write_cache, .data_digest = data.digest, .progress = {}};
  if (aids.told)
    load_aids.progress = [&, bar = ProgressBar("tokenising " + data.path)](double share) {
      aids.told(bar.line(share));
    };
  return load_dataset(data.path, model_dir, options, load_aids);
}

}  // namespace

RunInputs load_inputs(const RunSpec& spec, const InputAids& aids) {
  RunInputs inputs;
  inputs.config = read_model_config(spec.model.path);
  if (spec.data_max_tokens > inputs.config.max_positions)
    throw Error(ErrorKind::kUsage,
                cat("data.max_tokens = ", spec.data_max_tokens, ": the model takes at most ",
                    inputs.config.max_positions, " (max_position_embeddings)"));
  RenderOptions options = render_options(spec);
  options.vocab_size = inputs.config.vocab_size;
  options.threads = aids.threads;
  inputs.train = load(spec.train, spec.model.path, options, aids);
  if (n_scored(inputs.train.samples) == 0)
    throw Error(
        ErrorKind::kInput,
        cat(spec.train.path,
            ": no sample has a token to learn: nothing is marked as a target, assistant turns are empty, or "
            "data.max_tokens = ",
            spec.data_max_tokens, " cut them away"));
  if (spec.held_out.given()) {
    inputs.held_out = load(spec.held_out, spec.model.path, options, aids);
    if (n_scored(inputs.held_out.samples) == 0)
      throw Error(ErrorKind::kInput, cat(spec.held_out.path, ": no held-out sample has a token to score"));
  }
  return inputs;
}

}  // namespace tandem
