// Rendered data sets kept on disk under the digest of all that they follow from, so that the next run with
// the same inputs need not render them again. io/FORMAT.md, "The token cache".
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "io/dataset.hpp"

namespace tandem {

// Part of every cache key: to be raised whenever the same inputs may become other ids, marks or counts (the
// templates, the tokenizer, the rows read, the report). tests/io/sample_cache_test.cpp notices.
inline constexpr int kRenderVersion = 2;

// What a data set follows from, one `key value` a line. Throws kInput where a file cannot be read.
std::string cache_key(const std::string& data_digest, const std::filesystem::path& model_dir,
                      const RenderOptions& options);

// FOLDER/<SHA-256 of the key>.samples
std::filesystem::path cache_file(const std::filesystem::path& folder, const std::string& key);

// nullopt where there is no such file. Throws kInput, one line, where the file is damaged or of another key.
std::optional<Dataset> read_cached(const std::filesystem::path& file, const std::string& key);

// Publishes the file whole, the folder is made where it is missing; any number of processes may do so at
// once. Throws kInput where it cannot be written.
void write_cached(const std::filesystem::path& file, const std::string& key, const Dataset& dataset);

}  // namespace tandem
