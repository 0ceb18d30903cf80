// A safetensors file: the input as it is, and as a header whose length is right, its last byte saying how
// many data follow (a fuzzer would rarely hit both).
#include <cstring>
#include <vector>

#include "io/safetensors.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace tandem {
namespace {

void read(const void* bytes, std::size_t size) {
  static fuzz::MemoryFile memory;
  memory.set(bytes, size);
  fuzz::may_refuse([&] {
    const SafetensorsFile file(memory.path());
    std::size_t sum = 0;
    for (const TensorRecord& tensor : file.tensors()) {
      fuzz::require(tensor.count() >= 0, "a negative count");
      sum += tensor.data.size();
      if (!tensor.dtype) continue;
      fuzz::require(tensor.data.size() == static_cast<std::size_t>(tensor.count()) *
                                              static_cast<std::size_t>(size_of(*tensor.dtype)),
                    "data that do not fit the shape");
      std::vector<float> values(static_cast<std::size_t>(tensor.count()));
      widen_to_f32(tensor, values);
      fuzz::require(file.find(tensor.name) == &tensor, "a tensor that is not found by its name");
    }
    fuzz::require(sum < size, "more data than the file has");
  });
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tandem::read(data, size);
  if (size == 0) return 0;
  const std::uint64_t length = size - 1;
  std::vector<std::uint8_t> file(sizeof length + size - 1 + data[size - 1], 0x3f);
  std::memcpy(file.data(), &length, sizeof length);
  std::memcpy(file.data() + sizeof length, data, size - 1);
  tandem::read(file.data(), file.size());
  return 0;
}
