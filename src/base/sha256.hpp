// SHA-256 as lower-case hexadecimal text (FIPS 180-4, by OpenSSL's libcrypto).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  Sha256& update(const void* data, std::size_t bytes);
  Sha256& update(std::string_view text) { return update(text.data(), text.size()); }
  template <class T>
  Sha256& update(std::span<const T> values) {
    return update(values.data(), values.size_bytes());
  }
  std::string hex();  // ends the computation

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view bytes);
// Throws kInput naming the file if it cannot be read.
std::string sha256_file(const std::filesystem::path& file);

}  // namespace tandem
