// The mirror is worth something as long as it shares nothing that could be wrong in both stacks.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace tandem::mirror {
namespace {

bool allowed(const std::string& header) {
  static const std::vector<std::string> shared = {"src/base/error.hpp", "src/base/text.hpp",
                                                  "src/base/sha256.hpp",
                                                  "io/text/nfc_unknown.hpp"};  // the last: a table, as data
  static const std::vector<std::string> libraries = {
      "nlohmann/json.hpp", "nlohmann/json_fwd.hpp", "utf8proc.h", "fcntl.h", "sys/mman.h", "sys/stat.h",
      "unistd.h"};
  const auto in = [&](const std::vector<std::string>& list) {
    return std::find(list.begin(), list.end(), header) != list.end();
  };
  const bool standard = header.find_first_of("/.") == std::string::npos;
  return standard || in(shared) || in(libraries) || header.starts_with("src/mirror/") ||
         header.starts_with("Eigen/");
}

TEST(MirrorIncludes, AreItsOwnFilesAndTheListedLibrariesOnly) {
  const std::regex include(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"].*)");
  int n_includes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(TANDEM_SOURCE_DIR "/src/mirror")) {
    if (file.path().extension() != ".hpp" && file.path().extension() != ".cpp") continue;
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);) {
      std::smatch match;
      if (!std::regex_match(line, match, include)) continue;
      ++n_includes;
      EXPECT_TRUE(allowed(match[1])) << file.path().filename() << " includes " << match[1];
    }
  }
  EXPECT_GT(n_includes, 10) << "the sources were not found";
}

TEST(MirrorIncludes, OfNativeCodeAreFound) {
  EXPECT_FALSE(allowed("src/base/random.hpp"));
  EXPECT_FALSE(allowed("src/base/matrix.hpp"));
  EXPECT_FALSE(allowed("src/model/config.hpp"));
  EXPECT_FALSE(allowed("io/text/nfc.hpp"));
  EXPECT_FALSE(allowed("pcre2.h"));
  EXPECT_FALSE(allowed("omp.h"));
}

}  // namespace
}  // namespace tandem::mirror
