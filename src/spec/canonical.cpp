// The canonical text (SPEC.md): what two stacks that compute the same thing have in common, byte for byte.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <sstream>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/spec/keys.hpp"
#include "src/spec/run_spec.hpp"

namespace tandem {

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Shortest digits that read back, as d.ddde+XX; Python lays the same digits out in its own way.
  std::array<char, 64> buffer;
  const auto end =
      std::to_chars(buffer.begin(), buffer.end(), std::abs(value), std::chars_format::scientific).ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = text.find('e');
  std::string digits;
  for (const char c : text.substr(0, e))
    if (c != '.') digits += c;
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);

  std::string out = std::signbit(value) ? "-" : "";
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    const std::string size = std::to_string(std::abs(exponent));
    out += cat("e", exponent < 0 ? "-" : "+", size.size() < 2 ? "0" : "", size);
  } else if (exponent < 0) {
    out += cat("0.", std::string(static_cast<std::size_t>(-exponent - 1), '0'), digits);
  } else if (n <= exponent + 1) {
    out += digits + std::string(static_cast<std::size_t>(exponent + 1 - n), '0') + ".0";
  } else {
    out += digits.substr(0, static_cast<std::size_t>(exponent) + 1) + "." +
           digits.substr(static_cast<std::size_t>(exponent) + 1);
  }
  return out;
}

namespace {

std::string joined(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string word_or_none(const std::string& word) { return word.empty() ? "none" : cat('"', word, '"'); }

}  // namespace

std::string canonical_text(const RunSpec& spec) {
  const Config config{.spec = spec, .execution = {}, .run = {}};
  std::vector<std::string> lines;
  for (const Key& key : keys()) {
    if (key.key_class != KeyClass::kSpec || key.only_default) continue;
    std::string value;
    if (const auto* access = std::get_if<RunSpec::Input* (*)(Config&)>(&key.field)) {
      const RunSpec::Input& input = *(*access)(const_cast<Config&>(config));
      if (input.given() && input.digest.empty())
        throw Error(ErrorKind::kInternal,
                    key.name + ": has no digest yet, so the spec has no canonical text");
      value = word_or_none(input.digest);
    } else {
      value = key.get(config);
      if (value.empty())
        throw Error(ErrorKind::kInternal,
                    key.name + ": is not resolved yet, so the spec has no canonical text");
    }
    lines.push_back(key.name + " = " + value);
  }
  return joined(std::move(lines));
}

std::string canonical_text(const Execution& execution) {
  const Config config{.spec = {}, .execution = execution, .run = {}};
  std::vector<std::string> lines;
  for (const Key& key : keys())
    if (key.key_class == KeyClass::kExecution) lines.push_back(key.name + " = " + key.get(config));
  lines.push_back(cat("ranks = ", execution.ranks));
  lines.push_back("device = " + word_or_none(execution.device));
  lines.push_back("build = " + word_or_none(execution.build));
  lines.push_back("instruction_set = " + word_or_none(execution.instruction_set));
  return joined(std::move(lines));
}

CanonicalValues canonical_values(const std::string& text) {
  CanonicalValues values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    std::string value = line.substr(equals + 3);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
      value = value.substr(1, value.size() - 2);
    values[line.substr(0, equals)] = value;
  }
  return values;
}

namespace {

template <class Number>
std::optional<Number> number_of(const CanonicalValues& values, const char* key) {
  const auto found = values.find(key);
  if (found == values.end()) return std::nullopt;
  Number value = 0;
  const char* const end = found->second.data() + found->second.size();
  const auto [last, error] = std::from_chars(found->second.data(), end, value);
  if (error != std::errc() || last != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> integer_of(const CanonicalValues& values, const char* key) {
  return number_of<std::int64_t>(values, key);
}

std::optional<double> real_of(const CanonicalValues& values, const char* key) {
  return number_of<double>(values, key);
}

}  // namespace tandem
