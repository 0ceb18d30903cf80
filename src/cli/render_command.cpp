#include "src/cli/render_command.hpp"

#include <nlohmann/json.hpp>
#include <ostream>

#include "src/base/error.hpp"
#include "src/cli/rendered_text.hpp"

namespace tandem {

namespace {

std::string with_newline(std::string text) { return text.ends_with('\n') ? text : text + '\n'; }

// Hands each row to `show` until it says false.
template <class Show>
int each_row(const RenderJob& job, std::ostream& out, std::ostream& warnings, Show show) {
  std::int64_t index = 0;
  const DatasetReport report = for_each_row(job.file, job.model_dir, job.options, [&](RenderedRow&& row) {
    SampleSet one;
    one.add(row.ids, row.targets, row.line);
    return show(index++, row, one);
  });
  if (const std::string note = report.form_note(); !note.empty()) warnings << "note: " << note << '\n';
  for (const std::string& warning : report.warnings()) warnings << "warning: " << warning << '\n';
  out.flush();
  if (!out) throw Error(ErrorKind::kInput, "standard output cannot be written to its end");
  return 0;
}

}  // namespace

int render_rows(const RenderJob& job, std::ostream& out, std::ostream& warnings) {
  return each_row(job, out, warnings, [&](std::int64_t, const RenderedRow& row, const SampleSet& one) {
    nlohmann::ordered_json object;
    object["line"] = row.line;
    object["text"] = row.text ? nlohmann::ordered_json(*row.text) : nlohmann::ordered_json();
    object["ids"] = row.ids;
    object["targets"] = row.targets;
    object["digest"] = one.digest(0);
    out << object.dump() << '\n';
    return true;
  });
}

int render_show(const RenderJob& job, std::int64_t count, bool colour, std::ostream& out,
                std::ostream& warnings) {
  const std::optional<Tokenizer> tokenizer = tokenizer_of(job.model_dir);
  return each_row(job, out, warnings, [&](std::int64_t index, const RenderedRow&, const SampleSet& one) {
    out << (index > 0 ? "\n" : "") << sample_heading(index, one, 0) << '\n'
        << with_newline(sample_text(one, 0, tokenizer ? &*tokenizer : nullptr, colour));
    return index + 1 < count;
  });
}

}  // namespace tandem
