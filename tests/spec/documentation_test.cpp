// configs/README.md and the shipped configurations, against the table of keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "src/spec/keys.hpp"
#include "src/spec/settings.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

std::string row_of(const Key& key) {
  return "| `" + key.name + "` | " + key.help + " | " + key.unit + (key.unit.empty() ? "| " : " | ") +
         key.default_text() + " | " + key.range_text() + " |";
}

TEST(Documentation, HasEveryKeyWithUnitDefaultAndRange) {
  const std::string text = support::read_text(TANDEM_SOURCE_DIR "/configs/README.md");
  for (const Key& key : keys())
    EXPECT_NE(text.find("\n" + row_of(key) + "\n"), std::string::npos) << "configs/README.md lacks\n"
                                                                       << row_of(key);
  const auto n_rows = [](const std::string& table) {
    std::size_t n = 0;
    for (std::size_t at = table.find("\n| `"); at != std::string::npos; at = table.find("\n| `", at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(n_rows(text), keys().size()) << "configs/README.md has a row of a key that is none";
}

TEST(Documentation, SpecificationHasTheKeysAndTheirDefaults) {
  const std::string text = support::read_text(TANDEM_SOURCE_DIR "/SPEC.md");
  for (const Key& key : keys()) {
    const bool has_default =
        key.computed_default.empty() && key.default_text() != "none" && key.name != "precision";
    const std::string wanted = "`" + key.name + (has_default ? " = " + key.default_text() + "`" : "");
    EXPECT_NE(text.find(wanted), std::string::npos) << "SPEC.md lacks " << wanted;
  }
}

TEST(Documentation, ShippedConfigurationsAreRead) {
  int n_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".cfg") continue;
    const Config config = make_config(read_config_file(entry.path()), {});
    // Inputs are shipped, or made first: then they lie under runs/.
    for (const std::string& path : {config.spec.train.path, config.spec.held_out.path})
      EXPECT_TRUE(std::filesystem::exists(path) || path.starts_with(TANDEM_SOURCE_DIR "/runs/"))
          << entry.path() << ": " << path;
    ++n_files;
  }
  EXPECT_GE(n_files, 3);
}

}  // namespace
}  // namespace tandem
