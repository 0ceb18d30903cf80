// Registers, spills and static shared memory of each kernel, as ptxas tells them at the build, against
// tests/cuda/limits.txt: a change that costs a kernel its occupancy is seen where it is made.
#include <cxxabi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "src/base/text.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;

struct Use {
  int registers = 0, spill_bytes = 0, stack_bytes = 0, shared_bytes = 0;
};
using Uses = std::map<std::pair<std::string, std::string>, Use>;  // by kernel and device

void drop_all(std::string& text, const std::string& part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part))
    text.erase(at, part.size());
}

// "rope_kernel<float>" of the mangled "void tandem::(anonymous namespace)::rope_kernel<float>(float*, ...)".
std::string kernel_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? demangled.get() : mangled;
  for (const char* part : {"(anonymous namespace)::", "tandem::cuda::", "tandem::"}) drop_all(name, part);
  // The parameters: the last parenthesis at depth 0, < and > counted too.
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0) {
      name.erase(i);
      break;
    }
  }
  if (name.starts_with("void ")) name.erase(0, 5);
  drop_all(name, "(int)");
  drop_all(name, "(bool)");
  return name;
}

int number(const std::smatch& match, std::size_t group) { return std::atoi(match[group].str().c_str()); }

void read_report(std::istream& in, Uses& uses) {
  const std::regex entry(R"(Compiling entry function '(\w+)' for '(\w+)')");
  const std::regex spills(R"((\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads)");
  const std::regex used(R"(Used (\d+) registers)"), shared(R"((\d+) bytes smem)");
  Use* use = nullptr;
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_search(line, match, entry)) use = &uses[{kernel_name(match[1]), match[2]}];
    if (!use) continue;
    if (std::regex_search(line, match, spills)) {
      use->stack_bytes = number(match, 1);
      use->spill_bytes = number(match, 2) + number(match, 3);
    }
    if (std::regex_search(line, match, used)) use->registers = number(match, 1);
    if (std::regex_search(line, match, shared)) use->shared_bytes = number(match, 1);
  }
}

Uses all_uses() {
  Uses uses;
  for (const auto& file : fs::recursive_directory_iterator(TANDEM_PTXAS_REPORTS))
    if (file.path().extension() == ".ptxas" && fs::exists(fs::path(file.path()).replace_extension())) {
      std::ifstream in(file.path());
      read_report(in, uses);
    }
  return uses;
}

// A line: kernel | registers | spill bytes | why there are spills. # begins a comment.
std::map<std::string, Use> read_limits(std::istream& in) {
  std::map<std::string, Use> limits;
  const std::regex row(R"(\s*(\S.*?)\s*\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*(.*?)\s*)");
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::smatch match;
    if (!std::regex_match(line, match, row)) {
      ADD_FAILURE() << "limits.txt: no row: " << line;
      continue;
    }
    Use limit;
    limit.registers = number(match, 2);
    limit.spill_bytes = number(match, 3);
    EXPECT_TRUE(limit.spill_bytes == 0 || match[4].length() > 0) << match[1] << ": say why it spills";
    EXPECT_TRUE(limits.emplace(match[1], limit).second) << match[1] << " twice";
  }
  return limits;
}

// What breaks the limits, a line each.
std::vector<std::string> broken(const Uses& uses, const std::map<std::string, Use>& limits) {
  std::vector<std::string> lines;
  std::set<std::string> seen;
  for (const auto& [of, use] : uses) {
    const auto& [kernel, device] = of;
    auto limit = limits.find(kernel);
    if (limit == limits.end()) limit = limits.find(kernel.substr(0, kernel.find('<')));
    if (limit != limits.end()) seen.insert(limit->first);
    if (limit == limits.end()) {
      lines.push_back(cat(kernel, " is not in limits.txt (", use.registers, " registers on ", device, ")"));
      continue;
    }
    if (use.registers > limit->second.registers)
      lines.push_back(
          cat(kernel, " on ", device, ": ", use.registers, " registers, limit ", limit->second.registers));
    if (use.spill_bytes > limit->second.spill_bytes)
      lines.push_back(cat(kernel, " on ", device, ": ", use.spill_bytes, " bytes spilled, limit ",
                          limit->second.spill_bytes));
    if (use.stack_bytes > 0 && limit->second.spill_bytes == 0)
      lines.push_back(cat(kernel, " on ", device, ": ", use.stack_bytes,
                          " bytes of stack: an array whose index is not known at the build lies in memory"));
    if (use.shared_bytes > 0)
      lines.push_back(cat(kernel, " on ", device, ": ", use.shared_bytes, " bytes of static shared memory"));
  }
  for (const auto& [kernel, limit] : limits)
    if (!seen.contains(kernel)) lines.push_back(cat(kernel, " is in limits.txt, and no kernel"));
  return lines;
}

TEST(KernelLimits, RegistersAndSpillsOfEveryKernelStayUnderThem) {
  const Uses uses = all_uses();
  ASSERT_FALSE(uses.empty()) << "no reports of ptxas beside the objects in " << TANDEM_PTXAS_REPORTS;
  std::set<std::string> devices;
  std::cout << "kernel | device | registers | stack | spills | static shared memory\n";
  for (const auto& [of, use] : uses) {
    devices.insert(of.second);
    std::cout << of.first << " | " << of.second << " | " << use.registers << " | " << use.stack_bytes << " | "
              << use.spill_bytes << " | " << use.shared_bytes << "\n";
  }
  EXPECT_TRUE(devices.contains("sm_80"));
  EXPECT_TRUE(devices.contains("sm_90"));
  std::ifstream in(std::string(TANDEM_SOURCE_DIR) + "/tests/cuda/limits.txt");
  for (const std::string& line : broken(uses, read_limits(in))) ADD_FAILURE() << line;
}

// A block of 1,024 threads has 64 registers each: a kernel that takes more says how many threads it is for.
TEST(KernelLimits, AKernelThatCannotRunWithAnyNumberOfThreadsSaysWithHowMany) {
  std::string sources;
  for (const auto& file : fs::directory_iterator(std::string(TANDEM_SOURCE_DIR) + "/kernels/cuda")) {
    if (file.path().extension() != ".cu") continue;
    std::ifstream in(file.path());
    sources.append(std::istreambuf_iterator<char>(in), {});
  }
  int n_large = 0;
  for (const auto& [of, use] : all_uses()) {
    if (use.registers <= 64) continue;
    ++n_large;
    std::string name = of.first.substr(0, of.first.find('<'));
    name.erase(0, name.rfind(':') + 1);
    EXPECT_TRUE(
        std::regex_search(sources, std::regex(R"(TANDEM_KERNEL_BOUNDS\([^()]*\)\s+)" + name + R"(\()")))
        << of.first << ": " << use.registers << " registers on " << of.second
        << ", and no TANDEM_KERNEL_BOUNDS";
  }
  EXPECT_GT(n_large, 0);
}

TEST(KernelLimits, WhatIsAboveThemOrNotInThemIsFound) {
  std::istringstream report(
      "ptxas info    : Compiling entry function '_ZN6tandem12_GLOBAL__N_13addEPf' for 'sm_80'\n"
      "ptxas info    : Function properties for _ZN6tandem12_GLOBAL__N_13addEPf\n"
      "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 64 bytes smem, 360 bytes cmem[0]\n");
  Uses uses;
  read_report(report, uses);
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_EQ(uses.begin()->first.first, "add");
  const auto lines = [&](const std::string& limits) {
    std::istringstream in(limits);
    return broken(uses, read_limits(in));
  };
  using Lines = std::vector<std::string>;
  const Lines shared = {"add on sm_80: 64 bytes of static shared memory"};
  EXPECT_EQ(lines("# comment\nadd | 40 | 16 | eight rows at a time\n"), shared);
  EXPECT_EQ(lines("add | 39 | 16 | why\n").at(0), "add on sm_80: 40 registers, limit 39");
  EXPECT_EQ(lines("add | 40 | 15 | why\n").at(0), "add on sm_80: 16 bytes spilled, limit 15");
  EXPECT_EQ(lines("add | 40 | 0 |\n").at(1).substr(0, 31), "add on sm_80: 8 bytes of stack:");
  uses[{"add<3>", "sm_80"}] = {41, 16, 8, 0};
  EXPECT_EQ(lines("add | 40 | 16 | why\n").back(), "add<3> on sm_80: 41 registers, limit 40");
  EXPECT_EQ(lines("add | 40 | 16 | why\nadd<3> | 41 | 16 | why\n"), shared);
  EXPECT_EQ(lines("").at(0), "add is not in limits.txt (40 registers on sm_80)");
  EXPECT_EQ(lines("add | 40 | 16 | why\nsub | 1 | 0 |\n").back(), "sub is in limits.txt, and no kernel");
}

}  // namespace
}  // namespace tandem
