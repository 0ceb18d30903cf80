// A tokenizer_config.json: the chat template in it, and which one is chosen.
#include <filesystem>

#include "io/text/chat_template.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/support/temp_folder.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;  // NOLINT: the entry point has C linkage
  static fuzz::MemoryFile file;
  static const support::TempFolder folder;
  static const bool linked = [] {
    std::filesystem::create_symlink(file.path(), folder / "tokenizer_config.json");
    return true;
  }();
  fuzz::require(linked, "no model folder");
  file.set(data, size);
  fuzz::may_refuse([&] { read_chat_template(folder.path()); });
  for (const char* name : {"auto", "chatml"})
    fuzz::may_refuse([&] { ChatTemplate::choose(folder.path(), name); });
  return 0;
}
