#include "io/choices.hpp"

#include <algorithm>
#include <utility>

#include "io/text/line_reader.hpp"
#include "io/text/row.hpp"
#include "io/text/strict_json.hpp"
#include "io/text/text_tools.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {

namespace {

using nlohmann::json;

constexpr std::size_t kBlockBytes = 4 << 20;

struct ChoiceRow {
  std::vector<Message> prompt;
  std::vector<std::string> choices;
  std::int64_t answer = 0;
};

class ChoiceReader {
 public:
  ChoiceReader(std::string file, TextTools tools, const RenderOptions& options)
      : file_(std::move(file)), tools_(std::move(tools)), options_(options), encoder_(tools_.tokenizer) {}

  void add(const Line& line, ChoiceSet& set) {
    const ChoiceRow row = read(line);
    SampleSet options;
    for (std::size_t i = 0; i < row.choices.size(); ++i) add_option(line, row, i, options);
    refuse_equal(line, options);
    for (std::int64_t i = 0; i < options.size(); ++i)
      if (options.length(i) > options_.max_tokens) {
        ++set.too_long;
        return;
      }
    set.questions.push_back({line.number, set.samples.size(), options.size(), row.answer});
    for (std::int64_t i = 0; i < options.size(); ++i)
      set.samples.add(options.ids(i), options.targets(i), line.number);
  }

 private:
  [[noreturn]] void fail(const Line& line, const std::string& what) const {
    throw Error(ErrorKind::kInput, cat(file_, " line ", line.number, ": ", what));
  }

  ChoiceRow read(const Line& line) const {
    const json object = parse_strict_json(line.text, file_, line.number);
    if (!object.is_object()) fail(line, cat("a row is a JSON object, not ", object.type_name()));
    ChoiceRow row;
    if (object.contains("question")) {
      if (!object["question"].is_string())
        fail(line, cat("question is ", object["question"].type_name(), ", not a text"));
      row.prompt = {{"user", object["question"].get<std::string>(), {}}};
    } else {
      Row prompt = parse_prompt(line.text, file_, line.number);
      if (prompt.tokenised()) fail(line, "a question with choices is a text, not ids");
      row.prompt = std::move(prompt.messages);
    }
    const json choices = object.value("choices", json());
    if (!choices.is_array() || choices.size() < 2) fail(line, "choices is no list of two or more texts");
    for (const json& choice : choices) {
      if (!choice.is_string() || choice == "")
        fail(line, cat("choices[", row.choices.size(), "] is no text, or empty"));
      row.choices.push_back(choice.get<std::string>());
    }
    const json answer = object.value("answer", json());
    if (!answer.is_number_unsigned() || answer.get<std::uint64_t>() >= choices.size())
      fail(line, cat("answer = ", answer.dump(), " is no integer from 0 to ", choices.size() - 1));
    row.answer = answer.get<std::int64_t>();
    return row;
  }

  // The model cannot prefer one of two options that are the same tokens to it.
  void refuse_equal(const Line& line, const SampleSet& options) const {
    for (std::int64_t i = 1; i < options.size(); ++i)
      for (std::int64_t k = 0; k < i; ++k)
        if (std::equal(options.ids(i).begin(), options.ids(i).end(), options.ids(k).begin(),
                       options.ids(k).end()))
          fail(line, cat("choices[", k, "] and choices[", i, "] are the same text; leave the row out"));
  }

  void add_option(const Line& line, const ChoiceRow& row, std::size_t i, SampleSet& samples) {
    std::vector<Message> messages = row.prompt;
    messages.push_back({"assistant", row.choices[i], {}});
    PromptOptions prompt;
    prompt.last_only = true;
    try {
      Rendered rendered = tools_.chat_template.render(messages, prompt);
      const auto special = first_added(tools_.tokenizer, rendered.text, rendered.own);
      if (!special.empty() && options_.special_in_text == "refuse")
        throw Error(ErrorKind::kInput,
                    cat("the text holds the control token ", special, " (data.special_in_text = refuse)"));
      const Encoding encoding = encoder_.encode(rendered.text, options_.special_in_text == "plain"
                                                                   ? std::span<const Span>(rendered.own)
                                                                   : std::span<const Span>());
      // Without the end of the turn: what is compared is the options' texts.
      for (Span& span : rendered.targets) span.end -= kEndOfTurn.size();
      samples.add(encoding.ids, marks_of(encoding.first_byte, rendered.targets), line.number);
    } catch (const Error& error) {
      fail(line, error.what());
    }
    const std::int64_t last = samples.size() - 1;
    if (samples.n_scored(last) == 0) fail(line, cat("choices[", i, "] has no token"));
    for (const std::int32_t id : samples.ids(last))
      if (options_.vocab_size > 0 && id >= options_.vocab_size)
        fail(line,
             cat("token id ", id, ", but the model's vocabulary has ", options_.vocab_size, " entries"));
  }

  std::string file_;
  TextTools tools_;
  const RenderOptions& options_;
  Encoder encoder_;
};

}  // namespace

ChoiceSet load_choices(const std::filesystem::path& file, const std::filesystem::path& model_dir,
                       const RenderOptions& options) {
  LineReader lines(file);
  ChoiceReader reader(file.string(), read_text_tools(model_dir, options.chat_template), options);
  ChoiceSet set;
  for (auto block = lines.next_block(kBlockBytes); !block.empty(); block = lines.next_block(kBlockBytes))
    for (const Line& line : block) reader.add(line, set);
  if (set.questions.empty())
    throw Error(ErrorKind::kInput, cat(file.string(), ": no question left (", set.too_long,
                                       " longer than data.max_tokens = ", options.max_tokens, ")"));
  return set;
}

}  // namespace tandem
