// A tokenizer.json; one that is accepted encodes texts of all kinds.
#include <algorithm>
#include <array>

#include "io/text/tokenizer.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;  // NOLINT: the entry point has C linkage
  using namespace std::string_view_literals;
  constexpr std::array kTexts = {""sv,
                                 "a"sv,
                                 "Hello, world 12 's\n\n  x"sv,
                                 "e\u0301\u0316 \u00A0\u3000\u1100\u1161\u11A8 \u1DF6\u0301"sv,
                                 "<|im_start|>user\nq<|im_end|>\n"sv,
                                 "\0\x01\x7F"sv,
                                 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"sv};
  fuzz::may_refuse([&] {
    const Tokenizer tokenizer =
        Tokenizer::parse({reinterpret_cast<const char*>(data), size}, "tokenizer.json");
    Encoder encoder(tokenizer);
    for (const std::string_view text : kTexts)
      fuzz::may_refuse([&] {
        const Encoding encoding = encoder.encode(text);
        fuzz::require(encoding.ids.size() == encoding.first_byte.size(), "ids without offsets");
        fuzz::require(std::is_sorted(encoding.first_byte.begin(), encoding.first_byte.end()),
                      "offsets out of order");
        for (const std::int32_t id : encoding.ids)
          fuzz::require(id >= 0 && id < tokenizer.size() && !tokenizer.bytes(id).empty(),
                        "an id that stands for nothing");
      });
  });
  return 0;
}
