// Reads the fields of one JSON object of a source. A field of the wrong type shows that the file is not what
// it was taken for: kInput with file and line.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem {

class JsonFields {
 public:
  // Throws where `object` is none. All three must outlive this.
  JsonFields(const nlohmann::json& object, const std::string& file, std::int64_t line);

  // The field's value; nullptr where it is absent or null.
  const nlohmann::json* find(const char* key) const;
  // Throws where the field is absent; null is "".
  std::string text(const char* key) const;
  // "" where the field is absent or null.
  std::string text_or_empty(const char* key) const;
  // A list of texts; empty where the field is absent or null.
  std::vector<std::string> texts(const char* key) const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  const nlohmann::json& object_;
  const std::string& file_;
  std::int64_t line_;
};

}  // namespace tandem
