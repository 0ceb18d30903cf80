// Dependencies run one way, and a third-party library stays in the folder that owns it: read from the
// sources, so that a wrong include is named even where it happens to compile.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

namespace tandem {
namespace {

namespace fs = std::filesystem;

using Folders = std::vector<std::string>;

// Which folders a folder may include. Folders that are not here do not exist yet: a new one needs its row.
const std::map<std::string, Folders>& allowed_folders() {
  static const std::map<std::string, Folders> table = {
      {"src/base", {"src/base"}},
      {"src/spec", {"src/base", "src/spec"}},
      {"io", {"src/base", "io"}},
      {"kernels", {"src/base", "kernels"}},
      {"comm", {"src/base", "kernels", "comm"}},
      {"src/model", {"src/base", "kernels", "io", "src/model"}},
      {"src/mirror", {"src/base", "src/mirror"}},
      {"src/audit", {"src/base", "io", "comm", "src/mirror", "src/audit"}},
      {"src/compare", {"src/base", "src/spec", "io", "src/compare"}},
      {"src/train",
       {"src/base", "src/spec", "kernels", "io", "comm", "src/model", "src/mirror", "src/audit",
        "src/train"}},
      {"src/check",
       {"src/base", "src/spec", "kernels", "io", "comm", "src/model", "src/mirror", "src/audit", "src/train",
        "src/check"}},
      {"src/doctor", {"src/base", "io", "comm", "src/doctor"}},
      {"src/cli",
       {"src/base", "src/spec", "kernels", "io", "comm", "src/model", "src/mirror", "src/audit",
        "src/compare", "src/train", "src/check", "src/doctor", "src/cli"}},
      {"tests",
       {"src/base", "src/spec", "kernels", "io", "comm", "src/model", "src/mirror", "src/audit",
        "src/compare", "src/train", "src/check", "src/doctor", "src/cli", "tests"}},
  };
  return table;
}

struct ThirdParty {
  std::string pattern;  // of the header's name
  Folders folders;      // path prefixes that may include it
};

const std::vector<ThirdParty>& third_party() {
  static const std::vector<ThirdParty> table = {
      {"mpi.h", {"comm/", "src/cli/", "tests/"}},
      {"hdf5(_hl)?.h", {"io/", "tests/"}},
      {"H5.*public.h", {"io/"}},
      {"(oneapi/dnnl/|dnnl).*", {"kernels/", "tests/"}},
      {"(cuda|cublas|cu_).*", {"kernels/cuda/", "comm/nccl", "tests/emulation/", "tests/device/"}},
      {"nvtx3/.*", {"kernels/cuda/", "tests/device/"}},
      {"nccl.*", {"comm/nccl", "tests/emulation/"}},
      {"omp.h", {"kernels/", "comm/", "tests/"}},
      {"openssl/.*", {"src/base/"}},
      {"pcre2.*", {"io/"}},
      {"utf8proc.h", {"io/", "src/mirror/", "tests/"}},
      {"boost/program_options.*", {"src/cli/"}},
      {"boost/math/.*", {"src/compare/"}},
      {"boost/context/.*", {"tests/emulation/"}},
      {"Eigen/.*", {"src/mirror/", "tests/"}},
      {"gtest/.*", {"tests/"}},
      {"gmock/.*", {"tests/"}},
      {"benchmark/.*", {"tests/"}},
  };
  return table;
}

std::string folder_of(const std::string& path) {
  std::string best;
  for (const auto& [folder, unused] : allowed_folders())
    if (path.starts_with(folder + "/") && folder.size() > best.size()) best = folder;
  return best;
}

// What is wrong with `#include` of `target` in `file`, both relative to the root.
std::optional<std::string> violation(const std::string& file, const std::string& target, bool quoted) {
  const std::string from = folder_of(file);
  if (from.empty()) return file + ": its folder is not in the table of dependencies";
  for (const ThirdParty& library : third_party()) {
    if (!std::regex_match(target, std::regex(library.pattern))) continue;
    const bool good = std::any_of(library.folders.begin(), library.folders.end(),
                                  [&](const std::string& prefix) { return file.starts_with(prefix); });
    if (!good) return file + ": includes " + target + ", which belongs to other folders";
  }
  if (!quoted || target == "git_revision.hpp") return std::nullopt;
  const std::string to = folder_of(target);
  if (to.empty()) return file + ": includes \"" + target + "\": give the path from the project's root";
  // A table of published data, which is no code that two stacks could share a fault of.
  if (from == "src/mirror" && target == "io/text/nfc_unknown.hpp") return std::nullopt;
  const Folders& allowed = allowed_folders().at(from);
  if (std::find(allowed.begin(), allowed.end(), to) == allowed.end())
    return file + ": includes " + target + ", but " + from + " must not depend on " + to;
  return std::nullopt;
}

bool is_source(const fs::path& path) {
  const std::string extension = path.extension();
  return extension == ".hpp" || extension == ".cpp" || extension == ".cu" || extension == ".cuh" ||
         extension == ".h" || extension == ".c";
}

std::vector<std::string> files_under(const std::vector<std::string>& folders) {
  const fs::path root = TANDEM_SOURCE_DIR;
  std::vector<std::string> files;
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file()) files.push_back(entry.path().lexically_relative(root).string());
  }
  return files;
}

std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream in(fs::path(TANDEM_SOURCE_DIR) / file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Includes, RunOneWay) {
  const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"].*)");
  int n_includes = 0;
  for (const std::string& file : files_under({"src", "kernels", "comm", "io", "tests"})) {
    if (!is_source(file)) continue;
    for (const std::string& line : lines_of(file)) {
      std::smatch match;
      if (!std::regex_match(line, match, include)) continue;
      ++n_includes;
      const auto wrong = violation(file, match[2], match[1] == "\"");
      EXPECT_FALSE(wrong) << *wrong;
    }
  }
  EXPECT_GT(n_includes, 100) << "the sources were not found";
}

TEST(Includes, WrongOnesAreFound) {
  EXPECT_FALSE(violation("src/train/loop.cpp", "comm/communicator.hpp", true));
  EXPECT_FALSE(violation("comm/mpi_communicator.hpp", "mpi.h", false));
  EXPECT_TRUE(violation("src/base/error.hpp", "io/samples.hpp", true));
  EXPECT_TRUE(violation("io/dataset.cpp", "src/spec/run_spec.hpp", true));
  EXPECT_TRUE(violation("kernels/cpu/product.cpp", "comm/communicator.hpp", true));
  EXPECT_TRUE(violation("src/train/loop.cpp", "src/cli/options.hpp", true));
  EXPECT_TRUE(violation("src/cli/main.cpp", "tests/support/data.hpp", true));
  EXPECT_TRUE(violation("src/mirror/rows.cpp", "io/text/row.hpp", true));
  EXPECT_TRUE(violation("src/mirror/model.cpp", "src/model/config.hpp", true));
  EXPECT_TRUE(violation("src/train/loop.cpp", "mpi.h", false));
  EXPECT_TRUE(violation("src/cli/main.cpp", "hdf5.h", false));
  EXPECT_TRUE(violation("src/model/transformer.cpp", "oneapi/dnnl/dnnl.hpp", false));
  EXPECT_TRUE(violation("kernels/cpu/product.cpp", "cuda_runtime.h", false));
  EXPECT_TRUE(violation("src/spec/settings.cpp", "settings.hpp", true));
  EXPECT_TRUE(violation("src/novelty/new.cpp", "vector", false));
}

// A path of one person's machine in the sources works on no other.
TEST(Sources, NameNoMachine) {
  const std::regex machine_path(R"((^|[^A-Za-z0-9_.}])/(home|root|work|Users|mnt)/[A-Za-z0-9])");
  EXPECT_TRUE(std::regex_search(std::string("cd /ho") + "me/someone", machine_path));
  EXPECT_FALSE(std::regex_search(std::string("build/work/x"), machine_path));
  std::vector<std::string> files =
      files_under({"src", "kernels", "comm", "io", "tests", "cmake", "launch", "configs", ".ci"});
  for (const auto& entry : fs::directory_iterator(TANDEM_SOURCE_DIR))
    if (entry.is_regular_file() && entry.path().filename() != ".git")
      files.push_back(entry.path().filename().string());
  for (const std::string& file : files) {
    int number = 0;
    for (const std::string& line : lines_of(file)) {
      ++number;
      EXPECT_FALSE(std::regex_search(line, machine_path)) << file << ":" << number << ": " << line;
    }
  }
}

TEST(Sources, HeadersAreGuardedAndKeepTheNamespaceClean) {
  for (const std::string& file : files_under({"src", "kernels", "comm", "io", "tests"})) {
    if (!file.ends_with(".hpp")) continue;
    const auto lines = lines_of(file);
    EXPECT_NE(std::find(lines.begin(), lines.end(), "#pragma once"), lines.end()) << file;
    for (const std::string& line : lines) EXPECT_EQ(line.find("using namespace"), std::string::npos) << file;
  }
}

}  // namespace
}  // namespace tandem
