#include "src/cli/tokenize_command.hpp"

#include <cstdint>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "io/text/strict_json.hpp"
#include "io/text/tokenizer.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

int tokenize_command(const std::filesystem::path& model_dir, std::istream& in, std::ostream& out) {
  const Tokenizer tokenizer = Tokenizer::load(model_dir);
  Encoder encoder(tokenizer);
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const nlohmann::json text = parse_strict_json(line, "standard input", number);
    if (!text.is_string())
      throw Error(ErrorKind::kInput,
                  cat("standard input line ", number, ": ", text.type_name(), ", not a JSON string"));
    // A line at once, so that a program at the other end of a pipe can answer it.
    out << nlohmann::json(encoder.encode(text.get_ref<const std::string&>()).ids).dump() << std::endl;
  }
  out.flush();
  if (!out) throw Error(ErrorKind::kInput, "standard output cannot be written to its end");
  return 0;
}

}  // namespace tandem
