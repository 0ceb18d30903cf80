#include "src/check/adapter_check.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

#include "io/adapter.hpp"
#include "io/model_tensors.hpp"
#include "io/publish.hpp"
#include "src/audit/thresholds.hpp"
#include "src/base/text.hpp"
#include "src/check/temporary_folder.hpp"
#include "src/mirror/config.hpp"
#include "src/mirror/lora.hpp"
#include "src/mirror/spec_text.hpp"
#include "src/mirror/weights.hpp"
#include "src/model/merge.hpp"
#include "src/spec/digests.hpp"
#include "src/train/first_adapter.hpp"
#include "src/train/format_numbers.hpp"
#include "src/train/recorder.hpp"
#include "src/train/scorer.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

// Half the distance of numbers at 1.
double unit_of(const std::string& dtype) {
  return dtype == "BF16" ? 0x1p-8 : dtype == "F16" ? 0x1p-11 : 0x1p-24;
}

class AdapterCheck {
 public:
  AdapterCheck(const CheckSubject& subject, double seconds, const std::optional<HeldOutLosses>& losses,
               CheckReport& report)
      : subject_(subject),
        spec_(subject.config.spec),
        seconds_(seconds),
        losses_(losses),
        report_(report),
        saved_(folder_.path() / "adapter"),
        merged_(folder_.path() / "merged") {}

  CheckLine run() {
    first_values();
    save_and_read();
    line_.summary = cat(counted(subject_.lora.tensors().size(), "tensor"), " saved and read by both");
    if (merge()) {
      compare_merged();
      compare_losses();
    }
    return std::move(line_);
  }

 private:
  // What a run would start from.
  void first_values() {
    std::vector<float> flat(subject_.seeded.size());
    first_adapter(flat, subject_.lora, spec_);
    if (adapter_digest(subject_.lora.views(flat)) !=
        subject_.mirror.adapter_digest(subject_.mirror.initial().adapter))
      line_.fail(Verdict::kExact, "the first adapter has other values than by the mirror");
  }

  void save_and_read() {
    const AdapterConfig config = adapter_config(spec_);
    write_adapter(saved_, config, subject_.lora.views(subject_.seeded));
    std::vector<float> back(subject_.seeded.size());
    subject_.lora.load(back, saved_, config);
    if (adapter_digest(subject_.lora.views(back)) != adapter_digest(subject_.lora.views(subject_.seeded)))
      line_.fail(Verdict::kExact, "the saved adapter reads back with other values");
    const mirror::Config mirror_config = mirror::read_config(fs::path(spec_.model.path) / "config.json");
    const mirror::Weights base(spec_.model.path, mirror_config);
    const mirror::Spec mirror_spec = mirror::read_spec(canonical_text(spec_));
    const mirror::Lora lora(mirror_spec, base);
    // It takes exactly the tensors that the spec names, under PEFT's names.
    if (lora.imported(saved_, mirror_spec) != subject_.seeded_tensors)
      line_.fail(Verdict::kExact, "the mirror reads the saved adapter with other values");
  }

  // False where it does not fit; the line then says so.
  bool merge() {
    std::error_code error;
    std::uintmax_t needed = 0;
    for (const auto& entry : fs::directory_iterator(spec_.model.path, error))
      if (entry.path().extension() == ".safetensors") needed += entry.file_size(error);
    const fs::space_info space = fs::space(folder_.path(), error);
    if (!error && space.available < needed + (needed >> 4)) {
      line_.left_out.push_back(formatted(
          "the merged model: %.1f GB in %s (TMPDIR), %.1f GB are free", static_cast<double>(needed) * 1e-9,
          fs::temp_directory_path().string().c_str(), static_cast<double>(space.available) * 1e-9));
      return false;
    }
    fs::create_directory(merged_);
    const LoadedAdapter adapter = load_adapter(saved_, subject_.inputs.config);
    const MergeReport report = write_merged_model(subject_.ctx, merged_, subject_.inputs.config,
                                                  ModelTensors(spec_.model.path), adapter, std::nullopt);
    fs::copy_file(fs::path(spec_.model.path) / "config.json", merged_ / "config.json");
    line_.summary += cat("; ", counted(report.n_merged, "weight"), " merged");
    return true;
  }

  void compare_merged() {
    const mirror::Config config = mirror::read_config(merged_ / "config.json");
    const mirror::Weights base(spec_.model.path, config), merged(merged_, config);
    const mirror::Lora lora(mirror::read_spec(canonical_text(spec_)), base);
    std::set<std::string> adapted;
    for (const std::string& module : lora.modules()) adapted.insert(module + ".weight");
    std::int64_t differ = 0;
    std::string first;
    for (const std::string& name : base.names()) {
      if (adapted.contains(name) || base.describe(name).digest == merged.describe(name).digest) continue;
      if (differ++ == 0) first = name;
    }
    if (differ > 0)
      line_.fail(Verdict::kExact, cat("merging changed ", first, ", which has no adapter",
                                      differ > 1 ? cat(" (and ", differ - 1, " more tensors)") : ""));
    for (std::size_t l = 0; l < base.layers().size(); ++l)
      for (const std::string& target : spec_.lora_targets)
        compare_weight(projection(base.layers()[l], target), projection(merged.layers()[l], target), merged,
                       lora);
  }

  // Every element is W + s B A, rounded once to the file's dtype.
  void compare_weight(const mirror::Projection& before, const mirror::Projection& after,
                      const mirror::Weights& merged, const mirror::Lora& lora) {
    const std::size_t tensor = *lora.find(before.module);
    const auto matrix = [&](std::size_t i) {
      const mirror::AdapterTensor& shape = lora.tensors()[i];
      mirror::Matrix m(shape.rows, shape.columns);
      std::copy(subject_.seeded_tensors[i].begin(), subject_.seeded_tensors[i].end(), m.data());
      return m;
    };
    const mirror::Matrix a = matrix(tensor), b = matrix(tensor + 1), w = before.weight.widen();
    const mirror::Matrix change = lora.scale() * (b * a), expected = w + change, found = after.weight.widen();
    const double unit = unit_of(merged.describe(before.module + ".weight").dtype);
    unit_ = std::max(unit_, unit);
    // Twice a sum of r + 2 terms in double; below 2^-126 float32 and BF16 have steps of their own.
    const double in_double = 2.0 * static_cast<double>(a.rows() + 4) * 0x1p-53;
    const auto limit = unit * expected.array().abs() +
                       in_double * (w.array().abs() + lora.scale() * (b.cwiseAbs() * a.cwiseAbs()).array()) +
                       (unit == 0x1p-11 ? 0x1p-25 : 0x1p-126);
    if (!((found - expected).array().abs() <= limit).all())
      line_.fail(Verdict::kBound, cat(before.module, ".weight, merged, is not W + s B A rounded once"));
    if ((found.array() == w.array()).all() && !change.isZero(0.0) && unit < 0x1p-9)
      line_.fail(Verdict::kExact, cat(before.module, ".weight, merged, is the base model's"));
  }

  // The samples as tokenised rows: the merged model needs no tokenizer, and only they are read.
  fs::path write_rows() const {
    const fs::path file = folder_.path() / "rows.jsonl";
    std::string text;
    for (std::int64_t i = 0; i < losses_->samples.size(); ++i) {
      text += "{\"ids\": [";
      const auto ids = losses_->samples.ids(i);
      for (std::size_t p = 0; p < ids.size(); ++p) text += cat(p ? ", " : "", ids[p]);
      text += "], \"targets\": [";
      const auto marks = losses_->samples.targets(i);
      for (std::size_t p = 0; p < marks.size(); ++p)
        text += p ? (marks[p] ? ", 1" : ", 0") : (marks[p] ? "1" : "0");
      text += "]}\n";
    }
    publish_file(file, text);
    return file;
  }

  mirror::Evaluation mirror_merged(const fs::path& rows) const {
    RunSpec spec = spec_;
    spec.model = {merged_.string(), ""};
    spec.train = spec.held_out = {rows.string(), ""};
    spec.lora_init = {};
    digest_inputs(spec);
    mirror::Inputs inputs;
    inputs.spec_text = canonical_text(spec);
    inputs.model = merged_;
    inputs.train = rows;
    inputs.held_out = rows;
    inputs.threads = subject_.ctx.threads;
    inputs.probe = 0;
    return mirror::Mirror(inputs).evaluate(nullptr);
  }

  void compare_losses() {
    if (!losses_) {
      line_.left_out.push_back("the merged model's loss: no held-out loss was computed");
      return;
    }
    const mirror::Evaluation own = mirror_merged(write_rows());
    const ModelAndAdapter model = load_model_and_adapter(merged_, {});
    const EvalResult native =
        Scorer(subject_.ctx, model, losses_->samples, subject_.config.execution.batch_micro)
            .score(false)
            .result;
    // A merged weight's rounding is that of a product's result, the same for every token.
    const double merging = loss_limit(subject_, unit_, true, 0.5 * seconds_);
    const double rounding =
        report_.adapted ? report_.adapted->limit / report_.adapted->mirror : merging;  // relative
    compare("the mirror's", own.nll_sum, losses_->mirror_adapted.nll_sum, merging);
    compare("native's", native.nll_sum, losses_->native_adapted, merging + 2.0 * rounding);
    const auto n = static_cast<double>(own.n_tokens);
    report_.merged = CheckedLoss{native.loss(), own.nll_sum / n, (merging + rounding) * own.nll_sum / n};
    line_.summary += formatted(", loss %+.1e nat off", (own.nll_sum - losses_->mirror_adapted.nll_sum) / n);
  }

  void compare(const char* whose, double merged, double beside, double limit) {
    if (std::abs(merged - beside) <= limit * std::abs(beside)) return;
    const auto n = static_cast<double>(losses_->n_tokens);
    line_.fail(Verdict::kCalibrated,
               formatted("%s held-out loss of the merged model is %.6f, of base and adapter %.6f; merging's "
                         "rounding explains %.1e",
                         whose, merged / n, beside / n, limit * beside / n));
  }

  const CheckSubject& subject_;
  const RunSpec& spec_;
  double seconds_;
  const std::optional<HeldOutLosses>& losses_;
  CheckReport& report_;
  TemporaryFolder folder_;
  fs::path saved_, merged_;
  double unit_ = 0.0;  // of the adapted weights' dtypes, the largest
  CheckLine line_{2, "adapter"};
};

}  // namespace

CheckLine check_adapter(const CheckSubject& subject, double seconds,
                        const std::optional<HeldOutLosses>& losses, CheckReport& report) {
  return AdapterCheck(subject, seconds, losses, report).run();
}

}  // namespace tandem
