#include "tests/world/hdf5_differences.hpp"

#include <hdf5.h>

#include <map>
#include <stdexcept>

#include "src/base/text.hpp"

namespace tandem::world_test {
namespace {

// Closes an HDF5 identifier of any kind; refuses a failed one.
class Id {
 public:
  Id(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
    if (id < 0) throw std::runtime_error("HDF5: " + what);
  }
  ~Id() { close_(id_); }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// What a dataset or attribute holds, as comparable bytes: type, shape, and the values as they are stored.
template <class Read>
std::string contents(hid_t type, hid_t space, Read&& read) {
  const auto n = static_cast<std::size_t>(H5Sget_simple_extent_npoints(space));
  const std::size_t size = H5Tget_size(type);
  std::vector<hsize_t> shape(static_cast<std::size_t>(std::max(0, H5Sget_simple_extent_ndims(space))));
  if (!shape.empty()) H5Sget_simple_extent_dims(space, shape.data(), nullptr);
  std::string text = cat("class ", H5Tget_class(type), " size ", size, " shape");
  for (const hsize_t extent : shape) text += cat(' ', extent);
  text += ':';
  std::string values(n * size, '\0');
  if (n > 0 && read(values.data()) < 0) throw std::runtime_error("HDF5: cannot read values");
  if (H5Tis_variable_str(type) > 0) {
    for (std::size_t i = 0; i < n; ++i) {
      char* string = nullptr;
      std::copy_n(values.data() + i * size, size, reinterpret_cast<char*>(&string));
      text += string ? cat(string, '\0') : std::string("none");
    }
    if (n > 0) H5Dvlen_reclaim(type, space, H5P_DEFAULT, values.data());
  } else {
    text += values;
  }
  return text;
}

std::string dataset_contents(hid_t file, const std::string& path) {
  const Id dataset(H5Dopen(file, path.c_str(), H5P_DEFAULT), H5Dclose, path);
  const Id type(H5Dget_type(dataset), H5Tclose, path);
  const Id space(H5Dget_space(dataset), H5Sclose, path);
  return contents(type, space, [&](void* values) {
    return H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  });
}

struct Everything {
  std::map<std::string, std::string> datasets, attributes;
  std::string object;  // whose attributes are being read
};

herr_t take_attribute(hid_t location, const char* name, const H5A_info_t*, void* data) {
  auto& all = *static_cast<Everything*>(data);
  const std::string path = cat(all.object, '@', name);
  const Id attribute(H5Aopen(location, name, H5P_DEFAULT), H5Aclose, path);
  const Id type(H5Aget_type(attribute), H5Tclose, path);
  const Id space(H5Aget_space(attribute), H5Sclose, path);
  // References to dimension labels and the like name places in the file.
  const H5T_class_t type_class = H5Tget_class(type);
  if (type_class == H5T_REFERENCE || type_class == H5T_VLEN || type_class == H5T_COMPOUND) return 0;
  all.attributes[path] =
      contents(type, space, [&](void* values) { return H5Aread(attribute, type, values); });
  return 0;
}

herr_t take_object(hid_t file, const char* name, const H5O_info_t* info, void* data) {
  auto& all = *static_cast<Everything*>(data);
  all.object = name == std::string(".") ? "/" : cat('/', name);
  if (info->type == H5O_TYPE_DATASET) all.datasets[all.object] = dataset_contents(file, all.object);
  const Id object(H5Oopen(file, name, H5P_DEFAULT), H5Oclose, all.object);
  return H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, take_attribute, data);
}

Everything read_all(const std::filesystem::path& path) {
  const Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, path.string());
  Everything all;
  if (H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, take_object, &all) < 0) {
    throw std::runtime_error("HDF5: cannot visit " + path.string());
  }
  return all;
}

std::vector<std::string> compare(const std::map<std::string, std::string>& a,
                                 const std::map<std::string, std::string>& b,
                                 const std::function<bool(const std::string&)>& ignored,
                                 FileComparison& result) {
  std::vector<std::string> both;
  for (const auto& [path, value] : a) {
    if (ignored(path)) continue;
    const auto other = b.find(path);
    if (other == b.end()) {
      result.differences.push_back(path + " is in the first file only");
    } else {
      both.push_back(path);
      if (other->second != value) result.differences.push_back(path + " differs");
    }
  }
  for (const auto& [path, value] : b) {
    if (!ignored(path) && !a.contains(path))
      result.differences.push_back(path + " is in the second file only");
  }
  return both;
}

}  // namespace

FileComparison compare_hdf5(const std::filesystem::path& a, const std::filesystem::path& b,
                            const std::function<bool(const std::string& path)>& ignored) {
  const Everything first = read_all(a), second = read_all(b);
  FileComparison result;
  result.compared = compare(first.datasets, second.datasets, ignored, result);
  compare(first.attributes, second.attributes, ignored, result);
  return result;
}

}  // namespace tandem::world_test
