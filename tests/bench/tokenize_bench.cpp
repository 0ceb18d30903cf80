// How fast text becomes token ids on one thread. Usage: bench_tokenize MODEL_DIR FILE [repeats]
// FILE holds one JSON string a line, as `tandem tokenize` reads them. Prints UTF-8 megabytes a second, the
// median.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "io/text/strict_json.hpp"
#include "io/text/tokenizer.hpp"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: bench_tokenize MODEL_DIR FILE [repeats]\n");
    return 2;
  }
  const tandem::Tokenizer tokenizer = tandem::Tokenizer::load(argv[1]);
  tandem::Encoder encoder(tokenizer);
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  std::ifstream in(argv[2]);
  for (std::string line; std::getline(in, line);) {
    texts.push_back(tandem::parse_strict_json(line, argv[2]).get<std::string>());
    bytes += texts.back().size();
  }
  std::vector<double> seconds(argc > 3 ? static_cast<std::size_t>(std::atoi(argv[3])) : 5);
  std::size_t tokens = 0;
  for (double& one : seconds) {
    const auto start = std::chrono::steady_clock::now();
    tokens = 0;
    for (const std::string& text : texts) tokens += encoder.encode(text).ids.size();
    one = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                   seconds.end());
  std::printf("%zu texts, %.1f MB, %zu tokens, %.2f MB/s\n", texts.size(), static_cast<double>(bytes) / 1e6,
              tokens, static_cast<double>(bytes) / 1e6 / seconds[seconds.size() / 2]);
  return 0;
}
