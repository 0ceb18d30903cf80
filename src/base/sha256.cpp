#include "src/base/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (!state_->context || EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1)
    throw Error(ErrorKind::kInternal, "libcrypto: SHA-256 is not available");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

Sha256& Sha256::update(const void* data, std::size_t bytes) {
  if (EVP_DigestUpdate(state_->context, data, bytes) != 1)
    throw Error(ErrorKind::kInternal, "libcrypto: SHA-256 update failed");
  return *this;
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest;
  if (EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) != 1)
    throw Error(ErrorKind::kInternal, "libcrypto: SHA-256 final failed");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string sha256_hex(std::string_view bytes) { return Sha256().update(bytes).hex(); }

std::string sha256_file(const std::filesystem::path& file) {
  // A pipe would be waited for, a device may never end, and both are gone after one reading.
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw Error(ErrorKind::kInput,
                cat(file.string(), std::filesystem::is_directory(status) ? ": is a folder, not a file"
                                                                         : ": is no regular file"));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rb"), &std::fclose);
  if (!in) throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be opened: ", std::strerror(errno)));
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), in.get()))
    hash.update(buffer.data(), n);
  if (std::ferror(in.get()))
    throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be read: ", std::strerror(errno)));
  return hash.hex();
}

}  // namespace tandem
