#include "src/mirror/json_file.hpp"

#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <vector>

#include "src/base/error.hpp"

namespace tandem::mirror {

nlohmann::json parse_json(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  using Event = nlohmann::json::parse_event_t;
  const auto watch = [&](int, Event event, nlohmann::json& parsed) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw std::invalid_argument("the key " + parsed.dump() + " is there twice");
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(error.what());
  }
}

std::string read_text_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.good() && !in.eof()) throw Error(ErrorKind::kInput, cat(path.string(), ": cannot be read"));
  return text;
}

nlohmann::json read_json_file(const std::filesystem::path& path) {
  try {
    return parse_json(read_text_file(path));
  } catch (const std::invalid_argument& error) {
    throw Error(ErrorKind::kInput, cat(path.string(), ": ", error.what()));
  }
}

}  // namespace tandem::mirror
