// What kernels may be written with: what the emulation runs as nvcc does, and what keeps the bit contract.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The code alone: comments and literals blanked, lines kept.
std::string code_of(const std::string& text) {
  std::string code;
  enum { kCode, kLine, kBlock, kString } state = kCode;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (state == kCode && c == '/' && next == '/') state = kLine;
    if (state == kCode && c == '/' && next == '*') state = kBlock;
    if (state == kCode &&
        (c == '"' || (c == '\'' && !(i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])))))) {
      state = kString;
      quote = c;
      code += c;
      continue;
    }
    if (c == '\n') {
      if (state == kLine) state = kCode;
      code += c;
      continue;
    }
    if (state == kString && c == '\\') {
      ++i;
      continue;
    }
    if (state == kString && c == quote)
      state = kCode, code += c;
    else if (state == kBlock && c == '*' && next == '/')
      state = kCode, ++i;
    else if (state == kCode)
      code += c;
  }
  return code;
}

struct Rule {
  std::regex pattern;
  std::string why;
  std::vector<std::string> except;  // files that are there for it
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = {
      {std::regex("<<<"), "kernels are started by launch() alone", {}},
      {std::regex(R"(\bcudaLaunch\w*)"),
       "kernels are started by launch() alone",
       {"launch.hpp", "emulated.hpp", "context.cu"}},
      {std::regex(R"(\b__(shared|constant|managed|device|global|host|grid_constant)__\b)"),
       "variables and functions of a device are named by port.hpp's macros; shared memory is block_shared()",
       {"port.hpp"}},
      {std::regex(R"(\b__[a-z]\w*)"),
       "intrinsics stand in port.hpp and ptx.hpp, each with its twin",
       {"port.hpp", "ptx.hpp", "emulated.hpp"}},
      {std::regex(R"(\b(threadIdx|blockIdx|blockDim|gridDim|warpSize)\b)"),
       "port.hpp says where a thread is",
       {"port.hpp", "context.cu"}},
      {std::regex(R"(\basm\b)"), "machine instructions stand in ptx.hpp, each with its twin", {"ptx.hpp"}},
      {std::regex(R"(\bcooperative_groups\b|\bcg::)"), "the emulation has no cooperative groups", {}},
      {std::regex(R"(\batomic[A-Z]\w*|\batomic_(?!add\b|min\b)\w+|\bred_\w+)"),
       "atomics are port.hpp's, on integers: a float's sum depends on the order",
       {"port.hpp"}},
      {std::regex(R"(\b(tex[123]D\w*|texture|surf[123]D\w*|cudaTextureObject_t|cudaSurfaceObject_t)\b)"),
       "the emulation has no textures",
       {}},
      {std::regex(R"(#\s*include\s*<(cuda|cublas|nv|cub|thrust|cooperative)[^>]*>)"),
       "device code includes port.hpp, ptx.hpp and launch.hpp",
       {"port.hpp", "launch.hpp", "check.hpp", "emulated.hpp", "context_members.hpp", "context.cu",
        "product.cu"}},
      {std::regex(R"(#\s*if(n?def)?\b.*(__CUDA|TANDEM_EMULATED))"),
       "the emulation runs the code that a device runs",
       {"port.hpp", "ptx.hpp", "launch.hpp"}},
      {std::regex(R"(\bcudaDeviceSynchronize\b|\bcudaMemcpy\(|\bcudaMemset\()"),
       "the whole device is never waited for",
       {}},
  };
  return table;
}

std::vector<std::string> broken_rules(const std::string& file, const std::string& text) {
  std::vector<std::string> broken;
  std::istringstream code(code_of(text));
  int number = 0;
  for (std::string line; std::getline(code, line);) {
    ++number;
    for (const Rule& rule : rules()) {
      bool excepted = false;
      for (const std::string& name : rule.except) excepted = excepted || file.ends_with("/" + name);
      if (!excepted && std::regex_search(line, rule.pattern))
        broken.push_back(file + ":" + std::to_string(number) + ": " + rule.why + ": " + line);
    }
  }
  return broken;
}

TEST(DeviceCode, IsWrittenWithWhatTheEmulationRuns) {
  int n_files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TANDEM_SOURCE_DIR) / "kernels/cuda")) {
    const std::string file = "kernels/cuda/" + entry.path().filename().string();
    if (!file.ends_with(".cu") && !file.ends_with(".hpp")) continue;
    ++n_files;
    std::ifstream in(entry.path());
    std::ostringstream text;
    text << in.rdbuf();
    for (const std::string& broken : broken_rules(file, text.str())) ADD_FAILURE() << broken;
  }
  EXPECT_GT(n_files, 5) << "the sources were not found";
}

TEST(DeviceCode, WhatItMustNotBeWrittenWithIsFound) {
  for (const char* line :
       {"kernel<<<1, 32>>>(y);", "__shared__ float s[32];", "__constant__ int n;", "__global__ void f() {}",
        "y = __expf(x);", "__syncthreads();", "int i = threadIdx.x;", "asm volatile(\"nop;\");",
        "namespace cg = cooperative_groups;", "atomicAdd(y, 1.0f);", "atomic_exchange(y, 1);",
        "#include <cuda_fp16.h>", "#include <cub/cub.cuh>", "cudaLaunchKernelExC(&c, k, p);",
        "float v = tex1Dfetch<float>(t, i);", "#ifdef TANDEM_EMULATED", "cudaDeviceSynchronize();"})
    EXPECT_FALSE(broken_rules("kernels/cuda/some.cu", line).empty()) << line;
  for (const char* line :
       {"// kernel<<<1, 32>>>(y)", "/* __shared__ */ int i;", "const char* s = \"__shared__\";",
        "atomic_add(total, 1ull);", "atomic_min(least, 3ll);", "#include <cstdint>",
        "constexpr int k = 1'000; // __ldg"})
    EXPECT_TRUE(broken_rules("kernels/cuda/some.cu", line).empty()) << line;
  EXPECT_TRUE(broken_rules("kernels/cuda/ptx.hpp", "asm volatile(\"nop;\");").empty());
}

}  // namespace
}  // namespace tandem
