// Runs a fuzz target over the files of folders: what was found once stays found, without a fuzzer. Usage:
// replay FOLDER ...
#include <filesystem>

#include "tests/fuzz/fuzz.hpp"
#include "tests/support/temp_folder.hpp"

int main(int argc, char** argv) {
  int n_files = 0;
  for (int i = 1; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      const std::string text = tandem::support::read_text(entry.path());
      std::printf("%s\n", entry.path().filename().c_str());
      std::fflush(stdout);  // the file that ends the process is the last one named
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
      ++n_files;
    }
  std::printf("%d inputs\n", n_files);
  return n_files > 0 ? 0 : 1;
}
