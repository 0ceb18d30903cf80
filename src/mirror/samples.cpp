#include "src/mirror/samples.hpp"

#include <fstream>
#include <stdexcept>

#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/mirror/chat_template.hpp"
#include "src/mirror/rows.hpp"
#include "src/mirror/tokenizer.hpp"

namespace tandem::mirror {

struct Renderer::Text {
  std::optional<std::string> own;
  ChatTemplate which;
  Tokenizer tokenizer;
};

Renderer::Renderer(const Spec& spec, std::filesystem::path model, std::int64_t vocab_size)
    : spec_(spec), model_(std::move(model)), vocab_size_(vocab_size) {}
Renderer::~Renderer() = default;

const Renderer::Text& Renderer::text() {
  if (text_) return *text_;
  auto own = own_template(model_);
  const ChatTemplate which = choose_template(spec_.data_template, own, model_);
  text_ = std::make_unique<Text>(Text{std::move(own), which, Tokenizer(model_ / "tokenizer.json")});
  for (const std::string& token : control_tokens(which))
    if (!text_->tokenizer.is_added(token))
      throw Error(ErrorKind::kInput, cat((model_ / "tokenizer.json").string(), ": ", token,
                                         " is no added token, but the template needs it"));
  return *text_;
}

std::string Renderer::template_digest() const { return text_ && text_->own ? sha256_hex(*text_->own) : ""; }

Sample Renderer::sample(std::string_view line) {
  auto row = read_row(line);
  if (const auto* tokenised = std::get_if<TokenisedRow>(&row))
    return {tokenised->ids, tokenised->targets, 0, {}};
  const auto parts = render(text().which, std::get<std::vector<Turn>>(row), spec_.data_targets == "last");
  if (const auto control = text().tokenizer.added_in_row(parts)) {
    if (spec_.data_special_in_text == "refuse")
      throw std::invalid_argument(cat("the text holds the control token ", *control));
    ++n_with_control_;
  }
  Encoded encoded = text().tokenizer.encode(parts, spec_.data_special_in_text == "plain");
  return {std::move(encoded.ids), std::move(encoded.targets), 0, {}};
}

std::vector<Sample> Renderer::read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(ErrorKind::kInput, cat(file.string(), ": cannot be read"));
  std::vector<Sample> samples;
  n_with_control_ = first_with_control_ = 0;
  std::int64_t number = 0, n_cut = 0, n_dropped = 0;
  const auto most = static_cast<std::size_t>(spec_.data_max_tokens);
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      Sample s = sample(line);
      if (n_with_control_ == 1 && first_with_control_ == 0) first_with_control_ = number;
      for (const std::int32_t id : s.ids)
        if (id < 0 || id >= vocab_size_)
          throw std::invalid_argument(cat("the id ", id, " is beyond the model's ", vocab_size_));
      s.line = number;
      if (s.ids.size() > most) {
        ++(spec_.data_truncate == "drop" ? n_dropped : n_cut);
        if (spec_.data_truncate == "drop") continue;
        s.ids.resize(most);
        s.targets.resize(most);
      }
      for (std::size_t p = 1; p < s.ids.size(); ++p)
        if (s.targets[p]) s.scored.push_back(static_cast<std::int64_t>(p));
      samples.push_back(std::move(s));
    } catch (const std::invalid_argument& error) {
      throw Error(ErrorKind::kInput, cat(file.string(), " line ", number, ": ", error.what()));
    }
  }
  if (n_with_control_)
    warnings_.push_back(cat(file.string(), ": ", n_with_control_,
                            " rows hold control tokens in their text, first in line ", first_with_control_));
  if (n_cut) warnings_.push_back(cat(file.string(), ": ", n_cut, " samples are cut to data.max_tokens"));
  if (n_dropped) warnings_.push_back(cat(file.string(), ": ", n_dropped, " samples are longer and left out"));
  return samples;
}

RenderedSample describe(const Sample& sample) {
  const std::string digest = Sha256()
                                 .update(std::span<const std::int32_t>(sample.ids))
                                 .update(std::span<const std::uint8_t>(sample.targets))
                                 .hex();
  const std::int64_t last =
      sample.scored.empty() ? -1 : sample.ids[static_cast<std::size_t>(sample.scored.back())];
  return {digest, static_cast<std::int64_t>(sample.ids.size()),
          static_cast<std::int64_t>(sample.scored.size()), last, sample.line};
}

}  // namespace tandem::mirror
