// A file of rows: lines, JSON, each form of a row; then text and ids of what was accepted.
#include <algorithm>
#include <array>

#include "io/text/chat_template.hpp"
#include "io/text/line_reader.hpp"
#include "io/text/own_tokenizer.hpp"
#include "io/text/row.hpp"
#include "io/text/tokenizer.hpp"
#include "io/text/utf8.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer one = [] {
    const support::TempFolder folder;
    write_byte_level_tokenizer(folder.path());
    return Tokenizer::load(folder.path());
  }();
  return one;
}

void render(const Row& row) {
  static Encoder encoder(tokenizer());
  for (const auto kind : {TemplateKind::kQwen3, TemplateKind::kSmolLm2, TemplateKind::kChatMl})
    fuzz::may_refuse([&] {
      const Rendered rendered = ChatTemplate::of_kind(kind).render(row.messages);
      fuzz::require(!first_invalid_utf8(rendered.text), "a template made invalid UTF-8");
      for (const auto* spans : {&rendered.targets, &rendered.own})
        for (std::size_t i = 0; i < spans->size(); ++i) {
          const Span span = (*spans)[i];
          fuzz::require(span.begin < span.end && span.end <= rendered.text.size(), "a span outside the text");
          fuzz::require(i == 0 || (*spans)[i - 1].end <= span.begin, "spans that overlap");
        }
      for (const bool plain : {false, true}) {
        const Encoding encoding = encoder.encode(
            rendered.text, plain ? std::span<const Span>(rendered.own) : std::span<const Span>());
        fuzz::require(encoding.ids.size() == encoding.first_byte.size(), "ids without offsets");
        fuzz::require(std::is_sorted(encoding.first_byte.begin(), encoding.first_byte.end()),
                      "offsets out of order");
        fuzz::require(encoding.first_byte.empty() || encoding.first_byte.back() < rendered.text.size(),
                      "an offset outside");
      }
    });
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem;  // NOLINT: the entry point has C linkage
  static fuzz::MemoryFile file;
  file.set(data, size);
  fuzz::may_refuse([&] {
    LineReader reader(file.path());
    std::int64_t last = 0;
    for (auto lines = reader.next_block(1 << 12); !lines.empty(); lines = reader.next_block(1 << 12))
      for (const Line& line : lines) {
        fuzz::require(line.number > last && line.offset >= 0 && line.offset < static_cast<std::int64_t>(size),
                      "a line's place");
        last = line.number;
        fuzz::may_refuse([&] {
          const Row row = parse_row(line.text, "rows.jsonl", line.number);
          fuzz::require(row.ids.size() == row.targets.size(), "ids without marks");
          if (!row.tokenised()) render(row);
        });
      }
  });
  return 0;
}
