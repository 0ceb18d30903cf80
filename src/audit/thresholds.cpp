#include "src/audit/thresholds.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "io/publish.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/tensor_difference.hpp"
#include "src/base/text.hpp"
#include "src/mirror/random.hpp"

namespace tandem {

namespace {

using nlohmann::json;

constexpr int kVersion = 6;
constexpr std::uint64_t kSeed = 0x7461'6e64'656d'0001;

// Of the first update's samples, the one of median length among those with something to score.
std::int64_t sample_of(const mirror::Mirror& mirror) {
  std::vector<std::pair<std::int64_t, std::int64_t>> lengths;
  for (std::int64_t t = 1; lengths.empty() && t <= mirror.updates(); ++t)
    for (const std::int64_t id : mirror.batch(t)) {
      const auto& sample = mirror.training_samples()[static_cast<std::size_t>(id)];
      if (sample.n_targets > 0) lengths.emplace_back(sample.n_ids, id);
    }
  if (lengths.empty())
    throw Error(ErrorKind::kInput, "the mirror finds nothing to score in the training data");
  std::sort(lengths.begin(), lengths.end());
  return lengths[lengths.size() / 2].second;
}

// A as it is drawn, B uniform in +-1e-3, as after a few updates.
mirror::Tensors small_adapter(const mirror::Mirror& mirror) {
  constexpr double kSize = 1e-3;
  mirror::Tensors adapter = mirror.initial().adapter;
  for (std::size_t p = 0; p < adapter.size(); ++p) {
    const std::string& name = mirror.adapter_tensors()[p].name;
    if (!name.ends_with(".lora_B.weight")) continue;
    for (std::size_t i = 0; i < adapter[p].size(); ++i)
      adapter[p][i] = kSize * (2 * mirror::unit(mirror::draw(kSeed, "calibration." + name, i)) - 1);
  }
  return adapter;
}

// Six standard deviations of s; a tensor's own is known from kDraws numbers only, so it is taken to be no
// less than that of all tensors of its kind (A or B) together.
std::vector<double> six_sigma(const std::vector<mirror::AdapterTensor>& tensors,
                              const std::vector<double>& squares) {
  double sum[2] = {0.0, 0.0}, count[2] = {0.0, 0.0};
  const auto kind = [&](std::size_t p) { return tensors[p].name.ends_with(".lora_B.weight") ? 1 : 0; };
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    sum[kind(p)] += squares[p];
    count[kind(p)] += 1.0;
  }
  std::vector<double> bias;
  for (std::size_t p = 0; p < tensors.size(); ++p)
    bias.push_back(6 * std::sqrt(std::max(squares[p], sum[kind(p)] / count[kind(p)])));
  return bias;
}

// What the thresholds follow from.
std::string key_of(const mirror::Mirror& mirror, const std::string& precision, std::int64_t sample) {
  std::ostringstream key;
  key << "thresholds " << kVersion << "\nprecision " << precision << "\nsample "
      << mirror.training_samples()[static_cast<std::size_t>(sample)].digest << "\nmodel "
      << mirror.model_digest() << "\n";
  for (const auto& tensor : mirror.adapter_tensors())
    key << tensor.name << " " << tensor.rows << " " << tensor.columns << "\n";
  return key.str();
}

std::optional<Thresholds> read_file(const std::filesystem::path& file, const std::string& key,
                                    std::size_t n) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return std::nullopt;
  const json stored = json::parse(stream, nullptr, false);
  try {
    if (stored.at("key") != key) return std::nullopt;
    Thresholds read{stored.at("relative_error"), stored.at("term_error"), stored.at("bias"),
                    stored.at("loss"), true};
    if (read.relative_error.size() != n || read.term_error.size() != n || read.bias.size() != n)
      return std::nullopt;
    // A value that would pass or fail everything was not measured.
    const auto sound = [](double x) { return x >= 0.0 && x < 1.0; };
    for (const auto* values : {&read.relative_error, &read.term_error, &read.bias})
      if (!std::all_of(values->begin(), values->end(), sound)) return std::nullopt;
    if (!sound(read.loss)) return std::nullopt;
    return read;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

double unit_roundoff(const std::string& precision) {
  if (precision == "f32") return 0x1p-24;
  if (precision == "tf32") return 0x1p-10;  // tensor cores may drop the bits that do not fit
  if (precision == "bf16") return 0x1p-8;
  throw Error(ErrorKind::kInternal, cat("the mirror has no unit roundoff for precision ", precision));
}

void Thresholds::raise_to(const Thresholds& other) {
  const auto raise = [](std::vector<double>& mine, const std::vector<double>& theirs) {
    for (std::size_t p = 0; p < mine.size(); ++p) mine[p] = std::max(mine[p], theirs[p]);
  };
  raise(relative_error, other.relative_error);
  raise(term_error, other.term_error);
  raise(bias, other.bias);
  loss = std::max(loss, other.loss);
}

Thresholds measure_thresholds(const mirror::Mirror& mirror, const std::string& precision,
                              const mirror::Tensors& adapter, std::span<const std::int64_t> sample_ids,
                              std::int64_t t) {
  const std::size_t n = mirror.adapter_tensors().size();
  const mirror::BatchGradient exact = mirror.gradient(adapter, sample_ids, t);
  Thresholds found{std::vector<double>(n), std::vector<double>(n), std::vector<double>(n), 0.0, false};
  const TensorFloors floors(mirror.adapter_tensors(), exact.gradient);
  std::vector<double> bias_squares(n);
  for (int draw = 0; draw < Thresholds::kDraws; ++draw) {
    const mirror::BatchGradient rounded =
        mirror.gradient(adapter, sample_ids, t,
                        mirror::Rounding{unit_roundoff(precision), kSeed + static_cast<std::uint64_t>(draw)});
    for (std::size_t p = 0; p < n; ++p) {
      const TensorDifference difference =
          tensor_difference(rounded.gradient[p], exact.gradient[p], floors.of(p));
      found.relative_error[p] =
          std::max(found.relative_error[p], Thresholds::kMargin * difference.relative_error);
      if (exact.term_squares[p] > 0.0)
        found.term_error[p] = std::max(found.term_error[p], Thresholds::kMargin * difference.relative_error *
                                                                (difference.norm + floors.of(p)) /
                                                                std::sqrt(exact.term_squares[p]));
      bias_squares[p] += std::pow(difference.bias(floors.of(p)), 2) / Thresholds::kDraws;
    }
    found.loss =
        std::max(found.loss, Thresholds::kMargin * std::abs(rounded.nll_sum - exact.nll_sum) / exact.nll_sum);
  }
  found.bias = six_sigma(mirror.adapter_tensors(), bias_squares);
  return found;
}

Thresholds calibrate(const mirror::Mirror& mirror, const std::string& precision,
                     const std::filesystem::path& folder) {
  const std::int64_t sample = sample_of(mirror);
  const std::string key = key_of(mirror, precision, sample);
  const std::filesystem::path file =
      folder.empty() ? folder : folder / (sha256_hex(key).substr(0, 32) + ".json");
  const std::size_t n = mirror.adapter_tensors().size();
  if (!folder.empty())
    if (auto stored = read_file(file, key, n)) return *stored;

  const std::int64_t ids[] = {sample};
  Thresholds found = measure_thresholds(mirror, precision, small_adapter(mirror), ids, 1);
  if (folder.empty()) return found;
  try {
    std::filesystem::create_directories(folder);
    publish_file(file, json{{"key", key},
                            {"relative_error", found.relative_error},
                            {"term_error", found.term_error},
                            {"bias", found.bias},
                            {"loss", found.loss}}
                               .dump(1, ' ', false, json::error_handler_t::replace) +
                           "\n");
  } catch (const std::exception& error) {
    found.not_kept = error.what();
  }
  return found;
}

}  // namespace tandem
