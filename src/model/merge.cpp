#include "src/model/merge.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "io/publish.hpp"
#include "io/safetensors.hpp"
#include "kernels/lora_merge.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"
#include "src/model/weights.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kElements = std::int64_t{1} << 22;  // in memory at a time

// A and B of an adapted weight.
struct Pair {
  ConstMatrix a, b;
};

std::map<std::string, Pair> adapted_weights(const LoadedAdapter& adapter) {
  std::map<std::string, Pair> pairs;
  for (const AdapterTensor& tensor : adapter.tensors()) {
    const std::size_t side = tensor.name.rfind(".lora_");
    Pair& pair = pairs[tensor.name.substr(0, side) + ".weight"];
    (tensor.name[side + 6] == 'A' ? pair.a : pair.b) =
        ConstMatrix(tensor.data.data(), tensor.rows, tensor.cols);
  }
  return pairs;
}

// Values as a file stores them, the bytes going into its digest too.
class TensorWriter {
 public:
  TensorWriter(SafetensorsWriter& file, DType dtype) : file_(file), dtype_(dtype) {}

  void write_bytes(std::span<const std::byte> bytes) {
    digest_.update(bytes);
    file_.write(bytes);
  }
  // Each rounded once; `stored` becomes what a reader will see.
  void write(std::span<const double> values, std::span<double> stored) {
    if (dtype_ == DType::kF32) {
      floats_.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) stored[i] = floats_[i] = static_cast<float>(values[i]);
      return write_bytes(std::as_bytes(std::span<const float>(floats_)));
    }
    bits_.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool bf16 = dtype_ == DType::kBF16;
      bits_[i] = bf16 ? f64_to_bf16(values[i]) : f64_to_f16(values[i]);
      stored[i] = static_cast<double>(bf16 ? bf16_to_f32(bits_[i]) : f16_to_f32(bits_[i]));
    }
    write_bytes(std::as_bytes(std::span<const std::uint16_t>(bits_)));
  }
  std::string digest() { return digest_.hex(); }

 private:
  SafetensorsWriter& file_;
  DType dtype_;
  Sha256 digest_;
  std::vector<float> floats_;
  std::vector<std::uint16_t> bits_;
};

class Merger {
 public:
  Merger(const CpuContext& ctx, const ModelConfig& config, const ModelTensors& model,
         const LoadedAdapter& adapter, std::optional<DType> dtype)
      : ctx_(ctx),
        model_(model),
        scale_(adapter.config.scale()),
        pairs_(adapted_weights(adapter)),
        dtype_(dtype) {
    report_.warnings = Weights::check(config, model);
    for (const auto& [name, pair] : pairs_) {
      const std::int64_t shape[] = {pair.b.rows, pair.a.cols};
      model.require(name, shape);
    }
  }

  void write(const fs::path& folder) {
    std::map<std::string, std::vector<std::string>> names_of;  // by file
    for (const std::string& name : model_.names())
      names_of[model_.file_of(name).filename().string()].push_back(name);
    nlohmann::ordered_json places = nlohmann::ordered_json::object();
    std::int64_t bytes = 0;
    for (const auto& [file, names] : names_of) {
      std::vector<TensorSpec> specs;
      for (const std::string& name : names) {
        const TensorRecord& record = *model_.find(name);
        specs.push_back({name, dtype_of(record), record.shape});
        bytes += record.count() * size_of(specs.back().dtype);
        places[name] = file;
      }
      SafetensorsWriter writer(folder / file, specs);
      for (const TensorSpec& spec : specs) digests_[spec.name] = write_tensor(writer, spec);
      writer.publish();
    }
    if (!names_of.contains("model.safetensors"))
      publish_file(
          folder / "model.safetensors.index.json",
          nlohmann::ordered_json{{"metadata", {{"total_size", bytes}}}, {"weight_map", places}}.dump(2) +
              "\n");
    compare(folder);
  }

  MergeReport report() const { return report_; }

 private:
  DType dtype_of(const TensorRecord& record) const {
    if (!record.dtype)
      throw Error(ErrorKind::kInput,
                  cat(model_.file_of(record.name).string(), ": tensor ", record.name, " has dtype ",
                      record.dtype_name, "; F32, BF16 and F16 can be merged"));
    return dtype_.value_or(*record.dtype);
  }

  // Returns the digest of the bytes written.
  std::string write_tensor(SafetensorsWriter& file, const TensorSpec& spec) {
    const TensorRecord& record = *model_.find(spec.name);
    const auto found = pairs_.find(spec.name);
    TensorWriter out(file, spec.dtype);
    ++report_.n_tensors;
    if (found == pairs_.end() && spec.dtype == *record.dtype) {
      require_finite(model_.file_of(spec.name), record);
      out.write_bytes(record.data);
    } else if (found == pairs_.end()) {
      convert(out, record, spec.dtype);
    } else {
      merge(out, record, found->second, spec.dtype);
      ++report_.n_merged;
    }
    return out.digest();
  }

  // The next elements of a tensor, widened, in values_.
  void widen(const TensorRecord& record, std::int64_t begin, std::int64_t count) {
    base_.resize(static_cast<std::size_t>(count));
    values_.resize(base_.size());
    stored_.resize(base_.size());
    widen_to_f32(record, begin, base_);
    require_finite(model_.file_of(record.name), record, begin, base_);
    std::copy(base_.begin(), base_.end(), values_.begin());
  }

  void convert(TensorWriter& out, const TensorRecord& record, DType dtype) {
    for (std::int64_t begin = 0; begin < record.count(); begin += kElements) {
      widen(record, begin, std::min(kElements, record.count() - begin));
      out.write(values_, stored_);
      if (const auto i = first_overflow())
        throw Error(ErrorKind::kInput,
                    cat(model_.file_of(record.name).string(), ": tensor ", record.name, ": element ",
                        index_text(record.shape, begin + *i), " = ", values_[static_cast<std::size_t>(*i)],
                        " overflows ", name_of(dtype), "; choose --dtype F32"));
    }
  }

  void merge(TensorWriter& out, const TensorRecord& record, const Pair& pair, DType dtype) {
    const std::int64_t cols = pair.a.cols, rows = std::max<std::int64_t>(1, kElements / cols);
    double change = 0.0, lost = 0.0;
    for (std::int64_t begin = 0; begin < pair.b.rows; begin += rows) {
      const std::int64_t end = std::min(pair.b.rows, begin + rows);
      widen(record, begin * cols, (end - begin) * cols);
      delta_.resize(values_.size());
      lora_delta(ctx_, delta_, pair.a, pair.b.row_range(begin, end), scale_);
      for (std::size_t i = 0; i < values_.size(); ++i) values_[i] += delta_[i];
      out.write(values_, stored_);
      if (const auto i = first_overflow()) refuse_sum(record, begin * cols + *i, *i, dtype);
      for (std::size_t i = 0; i < values_.size(); ++i) {
        const double error = std::abs(stored_[i] - values_[i]);
        change += delta_[i] * delta_[i];
        lost += error * error;
        if (error <= report_.relative_error * std::abs(values_[i])) continue;
        report_.relative_error = error / std::abs(values_[i]);
        report_.worst_element =
            record.name + index_text(record.shape, begin * cols + static_cast<std::int64_t>(i));
      }
    }
    const double share = change > 0.0 ? std::sqrt(lost / change) : 0.0;
    if (share <= report_.share_lost) return;
    report_.share_lost = share;
    report_.worst_module = record.name.substr(0, record.name.rfind('.'));
  }

  // Both inputs are finite, so what is not in stored_ has overflowed.
  std::optional<std::int64_t> first_overflow() const {
    const auto bad =
        std::find_if(stored_.begin(), stored_.end(), [](double value) { return !std::isfinite(value); });
    if (bad == stored_.end()) return std::nullopt;
    return bad - stored_.begin();
  }

  [[noreturn]] void refuse_sum(const TensorRecord& record, std::int64_t element, std::int64_t i,
                               DType dtype) const {
    const double sum = values_[static_cast<std::size_t>(i)];
    throw Error(ErrorKind::kInput, cat("merging ", record.name.substr(0, record.name.rfind('.')),
                                       ": the sum W + s B A overflows ", name_of(dtype), " at ",
                                       index_text(record.shape, element), ", where it is ", sum,
                                       std::isfinite(static_cast<float>(sum))
                                           ? "; choose --dtype F32"
                                           : "; this adapter's change is too large for any merged model"));
  }

  void compare(const fs::path& folder) const {
    const ModelTensors stored(folder);
    for (const auto& [name, digest] : digests_) {
      const TensorRecord* record = stored.find(name);
      if (!record || record->shape != model_.find(name)->shape ||
          Sha256().update(record->data).hex() != digest)
        throw Error(ErrorKind::kInput, cat(folder.string(), ": tensor ", name,
                                           " reads back other than it was written; nothing was published"));
    }
  }

  const CpuContext& ctx_;
  const ModelTensors& model_;
  double scale_;
  std::map<std::string, Pair> pairs_;
  std::optional<DType> dtype_;
  MergeReport report_;
  std::map<std::string, std::string> digests_;
  std::vector<float> base_;
  std::vector<double> values_, stored_, delta_;
};

}  // namespace

MergeReport write_merged_model(const CpuContext& ctx, const fs::path& folder, const ModelConfig& config,
                               const ModelTensors& model, const LoadedAdapter& adapter,
                               std::optional<DType> dtype) {
  Merger merger(ctx, config, model, adapter, dtype);
  merger.write(folder);
  return merger.report();
}

}  // namespace tandem
