#include "io/format/columns.hpp"

#include <algorithm>
#include <type_traits>

#include "io/format/table.hpp"

namespace tandem::format {

namespace {

// "load/memory/step" to "load/memory" and "step".
std::pair<std::string, std::string> split(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

std::optional<hdf5::Node> Columns::group(const std::string& path) const {
  const std::size_t slash = path.find('/');
  const std::string first = path.substr(0, slash);
  if (!root_.holds_group(first)) return std::nullopt;
  auto outer = root_.group(first);
  if (slash == path.npos) return outer;
  const std::string second = path.substr(slash + 1);
  return outer->holds_group(second) ? outer->group(second) : std::nullopt;
}

std::size_t Columns::width(const std::string& path) const {
  const auto& dims = good_.at(path);
  std::int64_t product = 1;
  for (std::size_t d = 1; d < dims.size(); ++d) product *= dims[d];
  return static_cast<std::size_t>(product);
}

template <class T>
const std::vector<T>* Columns::values(const std::string& path) {
  if (!has(path)) return nullptr;
  if (const auto found = values_.find(path); found != values_.end())
    return &std::get<std::vector<T>>(found->second);
  const auto [group_path, name] = split(path);
  try {
    const auto node = group(group_path);
    std::vector<std::int64_t> dims;
    std::vector<T> read;
    if constexpr (std::is_same_v<T, double>)
      read = node->doubles(name, dims);
    else if constexpr (std::is_same_v<T, std::int64_t>)
      read = node->ints(name, dims);
    else
      read = node->texts(name, dims);
    return &std::get<std::vector<T>>(values_.emplace(path, std::move(read)).first->second);
  } catch (const Error& error) {
    findings_.add(error, file_);
    good_.erase(path);
    return nullptr;
  }
}

template const std::vector<std::int64_t>* Columns::values(const std::string&);
template const std::vector<double>* Columns::values(const std::string&);
template const std::vector<std::string>* Columns::values(const std::string&);

std::vector<std::int64_t> Columns::part(const std::string& path, std::int64_t first, std::int64_t count) {
  if (!has(path)) return {};
  const auto [group_path, name] = split(path);
  try {
    return group(group_path)->ints_at(name, first, count);
  } catch (const Error& error) {
    findings_.add(error, file_);
    good_.erase(path);
    return {};
  }
}

void Columns::read_the_rest() {
  constexpr std::int64_t kBlock = std::int64_t{1} << 20;
  for (const Dataset& dataset : datasets()) {
    const std::string path = dataset.path();
    if (!has(path) || values_.contains(path)) continue;
    const bool text = dataset.kind == Kind::kText || dataset.kind == Kind::kDigest;
    if (text) {
      texts(path);
    } else if (dataset.kind == Kind::kFloat64) {
      doubles(path);
    } else if (dataset.extents.size() == 1) {
      for (std::int64_t first = 0; has(path) && first < size(path); first += kBlock)
        part(path, first, std::min(kBlock, size(path) - first));
    } else {
      ints(path);
    }
    forget(path);
  }
}

}  // namespace tandem::format
