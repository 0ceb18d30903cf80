#include "src/cli/export_command.hpp"

#include <nlohmann/json.hpp>
#include <ostream>
#include <system_error>

#include "io/publish.hpp"
#include "io/text/strict_json.hpp"
#include "io/text/utf8.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/cli/model_card.hpp"
#include "src/cli/process_setup.hpp"
#include "src/model/adapter_folder.hpp"
#include "src/model/merge.hpp"
#include "src/spec/digests.hpp"
#include "src/train/format_numbers.hpp"
#include "src/train/run_folder.hpp"
#include "src/train/run_log.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(ErrorKind kind, const std::string& what) { throw Error(kind, what); }

// What a model's folder holds beside its weights and config.json, and what a merged one needs too.
constexpr const char* kCompanions[] = {"generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "chat_template.jinja",
                                       "vocab.json",
                                       "merges.txt",
                                       "tokenizer.model"};

// Of a module's change: an adapter that is a tenth off is another adapter.
constexpr double kMuchLost = 0.1;

void check_out(const fs::path& out) {
  std::error_code error;
  if (fs::exists(out, error) && !(fs::is_directory(out, error) && fs::is_empty(out, error)))
    fail(ErrorKind::kInput, cat(out.string(), ": exists and is not an empty folder; choose another --out"));
}

fs::path adapter_folder(const ExportOptions& options) {
  if (options.run.empty() == options.adapter.empty())
    fail(ErrorKind::kUsage, "export: give either --run RUN_FOLDER or --adapter DIR");
  if (options.run.empty()) return options.adapter;
  const RunFolder run{options.run};
  if (!fs::is_directory(options.run))
    fail(ErrorKind::kInput, cat(options.run.string(), ": is no run's folder"));
  if (!fs::exists(run.adapter()))
    fail(ErrorKind::kInput,
         cat(options.run.string(),
             ": holds no adapter yet; a run saves it at its first evaluation after update 0, or at its end"));
  return run.adapter();
}

fs::path model_folder(const ExportOptions& options, const std::string& named) {
  if (!options.model.empty()) return options.model;
  if (!named.empty() && fs::is_directory(named)) return named;
  fail(ErrorKind::kUsage,
       cat("export: the adapter names its base model ", named.empty() ? "not at all" : "\"" + named + "\"",
           ", which is no folder here: give --model DIR"));
}

void copy_companions(const fs::path& from, const fs::path& to) {
  for (const char* name : kCompanions) {
    std::error_code error;
    if (!fs::exists(from / name, error)) continue;
    fs::copy_file(from / name, to / name, error);
    if (error) fail(ErrorKind::kInput, cat((to / name).string(), ": copy: ", error.message()));
  }
}

// config.json as it is, or with the dtype that the weights now have: loaders widen or round by it.
void write_config(const fs::path& from, const fs::path& to, std::optional<DType> dtype) {
  const std::string text = read_text_file(from / "config.json");
  if (!dtype) return publish_file(to / "config.json", text);
  auto config = nlohmann::ordered_json::parse(text);
  const char* name = *dtype == DType::kF32 ? "float32" : *dtype == DType::kBF16 ? "bfloat16" : "float16";
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  publish_file(to / "config.json", config.dump(2) + "\n");
}

std::string merge_line(const MergeReport& report) {
  return cat(report.n_merged, " of ", report.n_tensors, " tensors merged",
             formatted("; largest relative rounding error of an element %.3g", report.relative_error),
             report.worst_element.empty() ? "" : " (" + report.worst_element + ")",
             formatted("; largest share of a module's change lost to rounding %.3g", report.share_lost),
             report.worst_module.empty() ? "" : " (" + report.worst_module + ")");
}

}  // namespace

int export_command(const ExportOptions& options, std::ostream& out) {
  if (options.dtype && !options.merge)
    fail(ErrorKind::kUsage, "export: --dtype belongs to --merge: an adapter keeps its float32 values");
  if (const auto bad = first_invalid_utf8(options.name))
    fail(ErrorKind::kUsage, cat("export: --name is not valid UTF-8, seen at byte ", *bad));
  const fs::path folder = adapter_folder(options);
  check_out(options.out);
  const fs::path model_dir = model_folder(options, read_adapter_config(folder).base_model);
  const ModelConfig model_config = read_model_config(model_dir);
  LoadedAdapter adapter = load_adapter(folder, model_config);
  adapter.config.base_model = options.name.empty() ? replace_invalid_utf8(model_dir.string()) : options.name;

  ModelCard card{adapter.config.base_model,
                 adapter.config,
                 adapter.n_modules(),
                 0,
                 adapter_digest(adapter.tensors()),
                 {},
                 {},
                 ""};
  for (const AdapterTensor& tensor : adapter.tensors()) card.n_parameters += tensor.rows * tensor.cols;
  if (!options.run.empty()) {
    card.run = read_run_facts(options.run, adapter);
    if (model_digest(model_dir) != card.run->model_digest)
      fail(ErrorKind::kInput, cat(model_dir.string(), ": is not the model of the run ", options.run.string(),
                                  " (its files' digest differs from model.path in spec.txt)"));
  }

  const fs::path target = fs::absolute(options.out).lexically_normal();
  std::error_code error;
  fs::create_directories((target.has_filename() ? target : target.parent_path()).parent_path(), error);
  if (error) fail(ErrorKind::kInput, cat(options.out.string(), ": create: ", error.message()));
  FolderPublisher publisher(target);
  if (options.merge) {
    const CpuContext ctx = one_process_context(options.threads);
    card.merged = write_merged_model(ctx, publisher.staging(), model_config, ModelTensors(model_dir), adapter,
                                     options.dtype);
    card.merged_dtype = options.dtype ? name_of(*options.dtype) : "";
    write_config(model_dir, publisher.staging(), options.dtype);
    copy_companions(model_dir, publisher.staging());
  } else {
    write_adapter_files(publisher.staging(), adapter.config, adapter.tensors());
  }
  publish_file(publisher.staging() / "README.md", model_card_text(card));
  publisher.publish();
  RunLog log(true);
  if (!adapter.config.warning.empty()) log.warning(adapter.config.warning);
  if (card.merged)
    for (const std::string& warning : card.merged->warnings) log.warning(warning);
  out << options.out.string() << ": " << (options.merge ? "model with merged adapter" : "PEFT adapter")
      << ", " << adapter.text() << ", " << card.n_parameters << " parameters; read back and compared\n";
  if (card.merged) out << merge_line(*card.merged) << "\n";
  if (card.merged && card.merged->share_lost > kMuchLost)
    out << "rounding has taken much of the adapter's change: --dtype F32 keeps it, or use the adapter beside "
           "its base model\n";
  if (adapter.n_active() == 0) out << "every B is zero: it computes what the base model computes\n";
  return 0;
}

}  // namespace tandem
