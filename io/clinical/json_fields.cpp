#include "io/clinical/json_fields.hpp"

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

using nlohmann::json;

JsonFields::JsonFields(const json& object, const std::string& file, std::int64_t line)
    : object_(object), file_(file), line_(line) {
  if (!object.is_object()) fail(cat("a row is a JSON object, not ", object.type_name()));
}

void JsonFields::fail(const std::string& what) const {
  throw Error(ErrorKind::kInput, cat(file_, " line ", line_, ": ", what));
}

const json* JsonFields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string JsonFields::text(const char* key) const {
  if (!object_.contains(key)) fail(cat("the row has no ", key, "; is this the right source for the file?"));
  return text_or_empty(key);
}

std::string JsonFields::text_or_empty(const char* key) const {
  const json* value = find(key);
  if (!value) return {};
  if (!value->is_string()) fail(cat(key, " is ", value->type_name(), ", not a text"));
  return value->get<std::string>();
}

std::vector<std::string> JsonFields::texts(const char* key) const {
  std::vector<std::string> list;
  const json* value = find(key);
  if (!value) return list;
  if (!value->is_array()) fail(cat(key, " is ", value->type_name(), ", not a list of texts"));
  for (const json& element : *value) {
    if (!element.is_string()) fail(cat(key, "[", list.size(), "] is ", element.type_name(), ", not a text"));
    list.push_back(element.get<std::string>());
  }
  return list;
}

}  // namespace tandem
