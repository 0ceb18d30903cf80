#include "src/cli/spec_command.hpp"

#include <filesystem>
#include <ostream>

#include "src/base/text.hpp"
#include "src/spec/digests.hpp"
#include "src/spec/keys.hpp"
#include "src/train/inputs.hpp"

namespace tandem {

int spec_command(Config config, std::ostream& out) {
  RunSpec& spec = config.spec;
  digest_inputs(spec);
  const bool length_given = spec.train_updates > 0;
  resolve(spec, length_given
                    ? 1
                    : load_dataset(spec.train.path, spec.model.path, render_options(spec)).samples.size());
  out << canonical_text(spec);
  return 0;
}

int show_all_command(const Settings& file, const Settings& options, std::ostream& out) {
  const Config config = make_config(file, options);
  const auto origin = [&](const std::string& name) {
    if (const auto found = options.find(name); found != options.end()) return found->second.origin;
    if (const auto found = file.find(name); found != file.end()) return found->second.origin;
    return std::string("default");
  };
  // What is printed may be kept as a file in any folder.
  const auto value = [&](const Key& key) {
    const std::string path = key.plain(config);
    if (!key.is_path || path == "none") return key.get(config);
    Config absolute = config;
    key.set(absolute, std::filesystem::absolute(path).lexically_normal().string());
    return key.get(absolute);
  };
  KeyClass last{};
  bool first = true;
  for (const Key& key : keys()) {
    if (first || key.key_class != last)
      out << (first ? "" : "\n") << "# class: " << name_of(key.key_class) << "\n";
    first = false;
    last = key.key_class;
    const std::string from = origin(key.name);
    // A seed that follows `seed` is as computed as a warm-up: naming it here would fix it.
    const bool computed = from == "default" && !key.computed_default.empty();
    if (computed)
      out << "# " << key.name << ": " << key.computed_default << "; default; ";
    else
      out << key.name << " = " << value(key) << "  # " << from << "; "
          << (from == "default" ? "" : "default " + key.default_text() + "; ");
    out << (key.unit.empty() ? "" : key.unit + "; ") << key.range_text() << "\n";
  }
  return 0;
}

}  // namespace tandem
