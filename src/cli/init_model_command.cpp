#include "src/cli/init_model_command.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <vector>

#include "io/publish.hpp"
#include "io/safetensors.hpp"
#include "io/text/own_tokenizer.hpp"
#include "io/text/strict_json.hpp"
#include "io/text/tokenizer.hpp"
#include "src/base/error.hpp"
#include "src/base/random.hpp"
#include "src/base/text.hpp"
#include "src/cli/model_shape.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

// As a tokenizer's users find them in a model's folder; only the first must be there.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                           "special_tokens_map.json"};

struct TokenizerFacts {
  std::int64_t size = 0, bos_id = -1, eos_id = -1;
};

// "eos_token": "<|im_end|>" or {"content": "<|im_end|>", ...} -> its id; -1 where there is none.
std::int64_t special_id(const Tokenizer& tokenizer, const nlohmann::json& config, const char* key) {
  if (!config.is_object() || !config.contains(key)) return -1;
  const auto& value = config[key];
  const auto& content = value.is_object() && value.contains("content") ? value["content"] : value;
  if (!content.is_string()) return -1;
  return tokenizer.added_token(content.get<std::string>()).value_or(-1);
}

TokenizerFacts copy_tokenizer(const fs::path& from, const fs::path& to) {
  if (!fs::exists(from / kTokenizerFiles[0]))
    throw Error(ErrorKind::kInput, cat(from.string(), ": holds no tokenizer.json (--tokenizer)"));
  for (const auto* name : kTokenizerFiles) {
    std::error_code error;
    if (!fs::exists(from / name)) continue;
    fs::copy_file(from / name, to / name, error);
    if (error) throw Error(ErrorKind::kInput, cat((to / name).string(), ": copy: ", error.message()));
  }
  const Tokenizer tokenizer = Tokenizer::load(to);
  TokenizerFacts facts{tokenizer.size()};
  if (!fs::exists(to / "tokenizer_config.json")) return facts;
  const auto config = read_strict_json(to / "tokenizer_config.json");
  facts.bos_id = special_id(tokenizer, config, "bos_token");
  facts.eos_id = special_id(tokenizer, config, "eos_token");
  return facts;
}

TokenizerFacts write_tokenizer(const InitModelOptions& options, const fs::path& to) {
  if (!options.tokenizer.empty()) return copy_tokenizer(options.tokenizer, to);
  const OwnTokenizer own = write_byte_level_tokenizer(to);
  return {own.vocab_size, -1, own.eos_id};
}

ModelShape shape_of(const InitModelOptions& options) {
  ModelShape shape = preset_shape(options.preset);
  shape.type = options.type.value_or(shape.type);
  shape.hidden = options.hidden.value_or(shape.hidden);
  shape.layers = options.layers.value_or(shape.layers);
  shape.heads = options.heads.value_or(shape.heads);
  shape.kv_heads = options.kv_heads.value_or(shape.kv_heads);
  shape.head_dim = options.head_dim.value_or(shape.head_dim);
  shape.intermediate = options.intermediate.value_or(shape.intermediate);
  shape.vocab = options.vocab.value_or(shape.vocab);
  shape.tied = options.tied.value_or(shape.tied);
  if (options.dtype == "F32")
    shape.dtype = DType::kF32;
  else if (options.dtype == "BF16")
    shape.dtype = DType::kBF16;
  else if (!options.dtype.empty())
    throw Error(ErrorKind::kUsage, cat("init-model: --dtype ", options.dtype, " is neither F32 nor BF16"));
  if (shape.init_std == 0.0)
    shape.init_std = 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(shape.hidden, 1)));
  return shape;
}

void fit_vocab(ModelShape& shape, std::int64_t tokens) {
  constexpr std::int64_t kRounding = 64;
  if (shape.vocab == 0) shape.vocab = (tokens + kRounding - 1) / kRounding * kRounding;
  if (shape.vocab < tokens)
    throw Error(ErrorKind::kUsage,
                cat("init-model: the tokenizer has ", tokens, " tokens, the model a vocabulary of ",
                    shape.vocab, "; give --vocab ", tokens, " or more"));
}

// Mean 0, variance 1 (less 2^-32), close to normal, within 6: the sum of twelve 16-bit uniforms (Irwin-Hall),
// so that only integers decide and every machine makes the same model.
double draw_near_normal(const RandomStream& stream, std::uint64_t i) {
  constexpr std::uint64_t kDraws = 3;
  std::uint64_t sum = 0;
  for (std::uint64_t k = 0; k < kDraws; ++k) {
    const std::uint64_t bits = stream.draw(kDraws * i + k);
    sum += (bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48);
  }
  constexpr double kMean = 12 * 65535 / 2.0;
  return (static_cast<double>(sum) - kMean) / 65536.0;
}

void write_values(SafetensorsWriter& writer, DType dtype, std::span<const float> values) {
  if (dtype == DType::kF32) return writer.write(values);
  std::vector<std::uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), f32_to_bf16);
  writer.write(std::span<const std::uint16_t>(bits));
}

// Returns the number of parameters. Norm weights are 1.
std::int64_t write_weights(const ModelShape& shape, std::uint64_t seed, const fs::path& file) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements in memory at a time
  const auto specs = tensor_specs(shape);
  SafetensorsWriter writer(file, specs);
  std::vector<float> values;
  std::int64_t total = 0;
  for (const auto& spec : specs) {
    std::int64_t count = 1;
    for (const auto dim : spec.shape) count *= dim;
    const RandomStream stream(seed, "init-model." + spec.name);
    const bool norm = spec.shape.size() == 1;
    for (std::int64_t begin = 0; begin < count; begin += kPiece) {
      values.resize(static_cast<std::size_t>(std::min(kPiece, count - begin)));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = norm
                        ? 1.0f
                        : static_cast<float>(shape.init_std *
                                             draw_near_normal(stream, static_cast<std::uint64_t>(begin) + i));
      write_values(writer, spec.dtype, values);
    }
    total += count;
  }
  writer.publish();
  return total;
}

}  // namespace

int init_model_command(const InitModelOptions& options, std::ostream& out) {
  if (options.out.empty()) throw Error(ErrorKind::kUsage, "init-model: --out DIR is missing");
  const fs::path folder = fs::absolute(options.out).lexically_normal();
  std::error_code error;
  if (fs::exists(folder, error) && !(fs::is_directory(folder, error) && fs::is_empty(folder, error)))
    throw Error(ErrorKind::kInput,
                cat(options.out.string(), ": exists and is not an empty folder; choose another --out"));
  ModelShape shape = shape_of(options);

  fs::create_directories(folder.parent_path(), error);
  if (error)
    throw Error(ErrorKind::kInput, cat(folder.parent_path().string(), ": create: ", error.message()));
  FolderPublisher publisher(folder);
  const TokenizerFacts tokenizer = write_tokenizer(options, publisher.staging());
  fit_vocab(shape, tokenizer.size);
  check_shape(shape);
  publish_file(publisher.staging() / "config.json", config_text(shape, tokenizer.bos_id, tokenizer.eos_id));
  const auto parameters = write_weights(shape, options.seed, publisher.staging() / "model.safetensors");
  publisher.publish();
  out << options.out.string() << ": " << shape.type << ", " << parameters << " parameters in "
      << name_of(shape.dtype) << ", " << counted(shape.layers, "layer") << ", hidden " << shape.hidden
      << ", vocabulary " << shape.vocab << " (" << tokenizer.size << " tokens used), random weights of seed "
      << options.seed << "\n";
  return 0;
}

}  // namespace tandem
