#include "src/cli/model_card.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "io/text/strict_json.hpp"
#include "io/trajectory_reader.hpp"
#include "kernels/checksum.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/format_numbers.hpp"
#include "src/train/run_folder.hpp"

namespace tandem {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw Error(ErrorKind::kInput, cat(file.string(), ": ", what,
                                     "; --adapter instead of --run exports it without the run's facts"));
}

// The run's settings are part of what its adapter computes.
void check_settings(const RunFolder& folder, const std::map<std::string, std::string>& spec,
                    const AdapterConfig& adapter) {
  const std::pair<const char*, std::string> settings[] = {
      {"lora.rank", cat(adapter.rank)},
      {"lora.alpha", python_repr(adapter.alpha)},
      {"lora.rslora", adapter.rslora ? "true" : "false"},
  };
  for (const auto& [key, value] : settings)
    if (const auto found = spec.find(key); found == spec.end() || found->second != value)
      refuse(folder.adapter(), cat("is not the run's adapter: ", key, " = ", value, " here, ",
                                   found == spec.end() ? "not given" : found->second, " in spec.txt"));
}

Trajectory read_run(const fs::path& file) {
  try {
    return read_untrusted_trajectory(file);
  } catch (const Error& error) {
    throw Error(error.kind(),
                cat(error.what(), "; --adapter instead of --run exports without the run's facts"));
  }
}

// The evaluations that the card tells of, one of which must have recorded this adapter.
void read_evaluations(RunFacts& facts, const RunFolder& folder, const LoadedAdapter& adapter) {
  const Trajectory run = read_run(folder.trajectory());
  const auto differs = [&](const std::string& here, const std::string& last) {
    refuse(folder.adapter(), cat("is not the run's adapter: its digest is ", here, ", ",
                                 folder.trajectory().string(), " recorded ", last, " at last"));
  };
  if (run.evals && !run.evals->adapter_digest.empty()) {
    const Trajectory::Evals& evals = *run.evals;
    const std::string digest = adapter_digest(adapter.tensors());
    for (std::size_t i = 0; i < static_cast<std::size_t>(evals.rows); ++i) {
      const RunFacts::Evaluation evaluation{evals.step[i], evals.n_tokens[i], evals.loss[i]};
      if (evaluation.step == 0) facts.first = evaluation;
      if (evals.adapter_digest[i] == digest) facts.exported = evaluation;
    }
    if (!facts.exported) differs(digest, evals.adapter_digest.back());
  } else if (run.updates && !run.updates->adapter_checksum.empty()) {
    const std::uint64_t checksum = adapter_checksum(adapter.layout.spans(adapter.values), 1);
    const std::uint64_t last = run.updates->adapter_checksum.back();
    if (checksum != last) differs(cat("(checksum) ", checksum), cat(last));
  } else {
    refuse(folder.trajectory(), "recorded no digest of an adapter");
  }
}

// A name in one line of Markdown.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == '|' || c == '`'; }, ' ');
  return text;
}

std::string row(const std::string& name, const std::string& value) {
  return cat("| ", name, " | ", value, " |\n");
}

std::string digest_or_none(const std::string& digest) {
  return digest.empty() || digest == "none" ? "none" : cat("SHA-256 `", digest, "`");
}

std::string front_matter(const ModelCard& card) {
  return cat("---\nbase_model: ",
             nlohmann::json(card.base_model).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
             "\nlibrary_name: ", card.merged ? "transformers" : "peft",
             "\npipeline_tag: text-generation\ntags:\n- lora\n- tandem\n---\n\n");
}

std::string facts_table(const ModelCard& card) {
  const AdapterConfig& adapter = card.adapter;
  std::string modules;
  for (const std::string& target : adapter.target_modules) modules += (modules.empty() ? "" : ", ") + target;
  std::string text = "| | |\n|---|---|\n";
  text += row("base model", one_line(card.base_model));
  if (card.run) text += row("base model's digest", digest_or_none(card.run->model_digest));
  text += row("adapter",
              cat("LoRA, rank ", adapter.rank, ", alpha ", adapter.alpha, adapter.rslora ? " (rsLoRA)" : "",
                  ", dropout ", adapter.dropout, ", ", card.n_parameters, " parameters"));
  text += row("adapted modules", cat(card.n_modules, ": ", modules, " of every layer"));
  text += row("adapter's digest", digest_or_none(card.adapter_digest));
  if (!card.run) return text + row("training data", "not known: exported without its run");
  text += row("training data", digest_or_none(card.run->train_digest));
  text += row("held-out data", digest_or_none(card.run->held_out_digest));
  text += row("spec's digest", digest_or_none(card.run->spec_digest));
  if (card.run->first && card.run->exported)
    text += row("held-out loss",
                formatted("%.6f untrained, %.6f after update %lld (%lld tokens)", card.run->first->loss,
                          card.run->exported->loss, static_cast<long long>(card.run->exported->step),
                          static_cast<long long>(card.run->exported->n_tokens)));
  return text;
}

std::string merge_text(const ModelCard& card) {
  const MergeReport& report = *card.merged;
  return cat("The adapter is merged into ", report.n_merged, " of ", report.n_tensors,
             " tensors, formed in double precision and rounded once to ",
             card.merged_dtype.empty() ? "the base model's number format" : card.merged_dtype,
             formatted(". Rounding changed an element by at most %.3g of itself, and a module's change by at "
                       "most %.3g of it.",
                       report.relative_error, report.share_lost),
             "\n\n");
}

constexpr const char* kUse = R"(## Intended use

Research on fine-tuning and on whether its computation can be reproduced. **It is a research artefact, not a medical device.**
It has not been evaluated for clinical safety or benefit. A language model states falsehoods as fluently as facts: nothing
that this one says is medical advice, and it must not take part in the diagnosis or treatment of a patient.

)";

}  // namespace

RunFacts read_run_facts(const fs::path& run, const LoadedAdapter& adapter) {
  const RunFolder folder{run};
  RunFacts facts;
  facts.spec_text = read_text_file(folder.spec());
  facts.spec_digest = sha256_hex(facts.spec_text);
  const auto spec = canonical_values(facts.spec_text);
  const auto digest = [&](const char* key) {
    const auto found = spec.find(key);
    return found == spec.end() || found->second == "none" ? std::string() : found->second;
  };
  facts.model_digest = digest("model.path");
  facts.train_digest = digest("data.train");
  facts.held_out_digest = digest("data.held_out");
  if (facts.model_digest.empty() || facts.train_digest.empty())
    throw Error(ErrorKind::kInput,
                cat(folder.spec().string(), ": is no run's canonical text (model.path, data.train)"));
  check_settings(folder, spec, adapter.config);
  read_evaluations(facts, folder, adapter);
  return facts;
}

std::string model_card_text(const ModelCard& card) {
  std::string text = front_matter(card);
  text +=
      cat("# ", one_line(card.base_model), card.merged ? ", fine-tuned with LoRA" : ": LoRA adapter", "\n\n",
          "Made with Tandem, a trainer whose training computation can be checked against other "
          "implementations.\n\n");
  text += facts_table(card) + "\n";
  if (card.merged) text += merge_text(card);
  text += kUse;
  if (!card.merged)
    text +=
        cat("## How to use\n\n```python\nfrom peft import PeftModel\nfrom transformers import "
            "AutoModelForCausalLM\n\n"
            "base = AutoModelForCausalLM.from_pretrained(",
            nlohmann::json(card.base_model).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
            ")\nmodel = PeftModel.from_pretrained(base, \"FOLDER_OF_THIS_FILE\")\n```\n");
  if (card.run) text += cat("\n## What was computed\n\n```\n", card.run->spec_text, "```\n");
  return text;
}

}  // namespace tandem
