#include "src/cli/render_command.hpp"

#include <nlohmann/json.hpp>
#include <ostream>

#include "src/base/error.hpp"

namespace tandem {

int render_command(const std::filesystem::path& model_dir, const std::filesystem::path& file,
                   const RenderOptions& options, std::ostream& out, std::ostream& warnings) {
  const DatasetReport report = for_each_row(file, model_dir, options, [&](RenderedRow&& row) {
    SampleSet one;
    one.add(row.ids, row.targets, row.line);
    nlohmann::ordered_json object;
    object["line"] = row.line;
    object["text"] = row.text ? nlohmann::ordered_json(*row.text) : nlohmann::ordered_json();
    object["ids"] = row.ids;
    object["targets"] = row.targets;
    object["digest"] = one.digest(0);
    out << object.dump() << '\n';
  });
  if (const std::string note = report.form_note(); !note.empty()) warnings << "note: " << note << '\n';
  for (const std::string& warning : report.warnings()) warnings << "warning: " << warning << '\n';
  out.flush();
  if (!out) throw Error(ErrorKind::kInput, "standard output cannot be written to its end");
  return 0;
}

}  // namespace tandem
