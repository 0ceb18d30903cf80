#include "src/spec/settings.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/spec/keys.hpp"
#include "src/spec/nearest.hpp"

namespace tandem {

namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

namespace fs = std::filesystem;

constexpr std::string_view kBlank = " \t\r";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool starts_comment(std::string_view text, std::size_t i) {
  return text[i] == '#' && (i == 0 || kBlank.find(text[i - 1]) != std::string_view::npos);
}

// The value after `=`: in quotes, or up to a comment. Throws kUsage without place.
std::string read_value(const std::string& key, std::string_view text) {
  text = trimmed(text);
  if (!text.empty() && text.front() == '"') {
    std::size_t end = 1;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size()) throw Error(ErrorKind::kUsage, key + ": the quote is not closed");
    const std::string_view rest = text.substr(end + 1);
    const std::string_view after = trimmed(rest);
    if (!after.empty() && !(after.front() == '#' && rest.front() != '#'))
      throw Error(ErrorKind::kUsage, cat(key, ": `", after, "` after the closing quote"));
    const auto value = nlohmann::json::parse(text.substr(0, end + 1), nullptr, false);
    if (value.is_discarded())
      throw Error(ErrorKind::kUsage,
                  key + ": the quoted value is no JSON string (a backslash is written \\\\)");
    return value.get<std::string>();
  }
  for (std::size_t i = 0; i < text.size(); ++i)
    if (starts_comment(text, i)) text = text.substr(0, i);
  return std::string(trimmed(text));
}

[[noreturn]] void refuse_unknown(const std::string& key) {
  throw Error(ErrorKind::kUsage,
              cat("unknown key `", key, "`, the nearest one is `", nearest(key, key_names()), "`"));
}

// A check of one value; it says nothing yet about how values fit together.
void check_value(const std::string& key, const std::string& value) {
  const Key* known = find_key(key);
  if (!known) refuse_unknown(key);
  if (value.empty()) throw Error(ErrorKind::kUsage, cat(key, ": has no value"));
  Config scratch;
  known->set(scratch, value);
}

std::string resolved_path(const std::string& value, const fs::path& folder) {
  if (value == "none" || folder.empty() || fs::path(value).is_absolute()) return value;
  return (folder / value).lexically_normal().string();
}

void parse_line(Settings& settings, std::string_view line, const std::string& origin,
                const fs::path& folder) {
  line = trimmed(line);
  if (line.empty() || line.front() == '#') return;
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos)
    throw Error(ErrorKind::kUsage, cat("`", line, "`: a line is `key = value`, a comment starts with #"));
  const std::string key(trimmed(line.substr(0, equals)));
  if (key.empty()) throw Error(ErrorKind::kUsage, "no key before the `=`");
  std::string value = read_value(key, line.substr(equals + 1));
  check_value(key, value);
  if (const auto earlier = settings.find(key); earlier != settings.end())
    throw Error(ErrorKind::kUsage, cat(key, ": given twice, first at ", earlier->second.origin));
  if (find_key(key)->is_path) value = resolved_path(value, folder);
  settings[key] = {value, origin};
}

}  // namespace

Settings parse_config(std::string_view text, const std::string& file_name, const fs::path& folder) {
  Settings settings;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string origin = cat(file_name, ":", number);
    try {
      parse_line(settings, text.substr(0, end), origin, folder);
    } catch (const Error& error) {
      throw Error(error.kind(), cat(origin, ": ", error.what()));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return settings;
}

Settings read_config_file(const fs::path& file) {
  std::error_code error;
  std::ifstream in;
  if (!fs::is_directory(file, error)) {
    errno = 0;
    in.open(file, std::ios::binary);
  } else {
    errno = EISDIR;
  }
  if (!in.is_open() || !in)
    throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be opened: ", std::strerror(errno)));
  std::string text(kMaxConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be read"));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxConfigBytes)
    throw Error(ErrorKind::kInput, cat(file.string(), ": is longer than 1 MiB; is it a configuration file?"));
  return parse_config(text, file.string(), file.parent_path());
}

void add_option(Settings& settings, const std::string& key, const std::string& value) {
  check_value(key, value);
  settings[key] = {value, "command line"};
}

Config make_config(const Settings& file, const Settings& options) {
  Settings all = options;
  all.insert(file.begin(), file.end());  // keeps what is there
  Config config;
  const auto apply = [&](const Key& key) {
    if (const auto found = all.find(key.name); found != all.end()) key.set(config, found->second.value);
  };
  apply(*find_key("seed"));
  config.spec.seed_adapter = config.spec.seed_order = config.spec.seed_dropout = config.spec.seed;
  for (const Key& key : keys()) apply(key);

  const RunSpec& spec = config.spec;
  const auto place = [&](const char* key) {
    const auto found = all.find(key);
    return found == all.end() ? cat(key, " (default)") : cat(key, " (", found->second.origin, ")");
  };
  if (spec.optim_lr_min > spec.optim_lr)
    throw Error(ErrorKind::kUsage,
                cat(place("optim.lr_min"), " = ", python_repr(spec.optim_lr_min), ": must not be above ",
                    place("optim.lr"), " = ", python_repr(spec.optim_lr)));
  if (spec.train_updates > 0 && spec.optim_warmup >= spec.train_updates)
    throw Error(ErrorKind::kUsage, cat(place("optim.warmup"), " = ", spec.optim_warmup, ": must be below ",
                                       place("train.updates"), " = ", spec.train_updates));
  const Execution& execution = config.execution;
  if (execution.mirror_mode == "both" && execution.mirror_every == 0)
    throw Error(ErrorKind::kUsage,
                cat(place("mirror.mode"), " = both: give mirror.every, the updates between audits"));
  if (execution.mirror_mode == "free" && execution.mirror_every > 0)
    throw Error(
        ErrorKind::kUsage,
        cat(place("mirror.mode"), " = free: no updates are audited; leave mirror.every at 0, or take both"));
  return config;
}

}  // namespace tandem
