#include "io/dataset.hpp"
#include "src/base/text.hpp"

namespace tandem {

std::vector<std::string> DatasetReport::warnings() const {
  std::vector<std::string> lines;
  const auto say = [&](std::int64_t count, const auto&... parts) {
    if (count > 0) lines.push_back(cat(count, parts...));
  };
  if (template_overrides_model)
    lines.push_back(cat("data.template = ", template_name, " is not the model's own chat template (sha256 ",
                        template_digest, ")"));
  say(cut, " samples are longer than data.max_tokens and are cut");
  say(dropped, " samples are longer than data.max_tokens and are left out");
  say(without_targets, " samples have nothing to score; they keep their place and add 0");
  say(reasoning_dropped, " think parts of earlier turns are left out, as the template does");
  say(text_dropped, " messages lose other text that the template leaves out");
  say(special_in_text, " rows hold control tokens in their text, first in line ", first_special_line,
      " (data.special_in_text)");
  say(lost_bytes, " bytes have no token in this tokenizer and are lost, first in line ", first_lost_line);
  if (!cache_trouble.empty()) lines.push_back(cat("token cache: ", cache_trouble));
  return lines;
}

std::string DatasetReport::form_note() const {
  std::string text;
  const auto say = [&](std::int64_t count, const char* form) {
    if (count > 0) text += cat(text.empty() ? "" : ", ", count, " of ", rows, " rows are read as ", form);
  };
  say(alpaca, "Alpaca's (instruction, input, output)");
  say(sharegpt, "ShareGPT's (conversations)");
  return text;
}

}  // namespace tandem
