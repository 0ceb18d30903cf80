#include "src/cli/generate_command.hpp"

#include <algorithm>
#include <istream>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "io/text/row.hpp"
#include "io/text/text_tools.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"
#include "src/cli/process_setup.hpp"
#include "src/model/decoder.hpp"
#include "src/model/model_and_adapter.hpp"

namespace tandem {

namespace {

struct Answer {
  std::vector<std::int32_t> prompt, ids;
  bool ended = false;  // by a stop token, which is not part of the answer
};

class Generator {
 public:
  explicit Generator(const GenerateOptions& options)
      : options_(options),
        ctx_(one_process_context(options.threads)),
        model_(load_model_and_adapter(options.model, options.adapter)) {}

  const ModelAndAdapter& model() const { return model_; }

  Answer answer(const Row& row, const std::string& where) {
    Answer answer;
    answer.prompt = row.tokenised() ? row.ids : encode(row, where);
    check(answer.prompt, where);
    const std::int64_t most = std::min(options_.max_tokens, n_positions() - length_of(answer.prompt));
    Decoder& decoder = decoder_for(length_of(answer.prompt) + most);
    std::int32_t next = greedy_token(decoder.prefill(answer.prompt));
    while (!(answer.ended = is_stop(next))) {
      answer.ids.push_back(next);
      if (length_of(answer.ids) == most) break;
      next = greedy_token(decoder.step(next));
    }
    return answer;
  }

  std::string text(const Answer& answer) { return tools().tokenizer.decode(answer.ids); }

 private:
  static std::int64_t length_of(const std::vector<std::int32_t>& ids) {
    return static_cast<std::int64_t>(ids.size());
  }
  std::int64_t n_positions() const { return model_.model.config.max_positions; }

  const TextTools& tools() {
    if (!tools_) {
      tools_ = std::make_unique<TextTools>(read_text_tools(options_.model, options_.chat_template));
      encoder_ = std::make_unique<Encoder>(tools_->tokenizer);
      stops_ = stop_tokens(options_.model, *tools_);
    }
    return *tools_;
  }

  bool is_stop(std::int32_t id) {
    tools();
    return std::find(stops_.begin(), stops_.end(), id) != stops_.end();
  }

  std::vector<std::int32_t> encode(const Row& row, const std::string& where) {
    std::vector<Message> messages;
    if (options_.system && row.messages.front().role != "system")
      messages.push_back({"system", *options_.system, {}});
    messages.insert(messages.end(), row.messages.begin(), row.messages.end());
    PromptOptions prompt;
    prompt.add_generation_prompt = true;
    prompt.enable_thinking = options_.thinking;
    const TextTools& known = tools();
    try {
      return encoder_->encode(known.chat_template.render(messages, prompt).text).ids;
    } catch (const Error& error) {
      throw Error(error.kind(), cat(where, ": ", error.what()));
    }
  }

  void check(const std::vector<std::int32_t>& prompt, const std::string& where) const {
    for (const std::int32_t id : prompt)
      if (id >= model_.model.config.vocab_size)
        throw Error(ErrorKind::kInput, cat(where, ": token id ", id, ", but the model's vocabulary has ",
                                           model_.model.config.vocab_size, " entries"));
    if (length_of(prompt) >= n_positions())
      throw Error(ErrorKind::kInput,
                  cat(where, ": the prompt has ", prompt.size(), " tokens, the model takes ", n_positions(),
                      " with its answer (max_position_embeddings)"));
  }

  // Grows by doubling, so that rows of rising length do not each get a new one.
  Decoder& decoder_for(std::int64_t tokens) {
    if (!decoder_ || decoder_->capacity() < tokens) {
      const std::int64_t doubled = decoder_ ? std::min(n_positions(), 2 * decoder_->capacity()) : 0;
      decoder_.reset();
      decoder_ = std::make_unique<Decoder>(ctx_, model_.model.config, model_.model.weights, model_.layout(),
                                           model_.values(), std::max(tokens, doubled));
    }
    return *decoder_;
  }

  const GenerateOptions& options_;
  CpuContext ctx_;
  ModelAndAdapter model_;
  std::unique_ptr<TextTools> tools_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<std::int32_t> stops_;
  std::unique_ptr<Decoder> decoder_;
};

void print(Generator& generator, const Answer& answer, std::int64_t line, bool json, std::ostream& out) {
  if (!json) {
    out << generator.text(answer) << std::endl;
    return;
  }
  nlohmann::ordered_json object;
  object["line"] = line;
  object["text"] = generator.text(answer);
  object["stopped"] = answer.ended ? "end" : "length";
  object["ids"] = answer.ids;
  object["prompt_ids"] = answer.prompt;
  out << object.dump() << std::endl;
}

}  // namespace

int generate_command(const GenerateOptions& options, std::istream& in, std::ostream& out, std::ostream& log) {
  if (options.max_tokens < 1)
    throw Error(ErrorKind::kUsage,
                cat("generate: --max-tokens ", options.max_tokens, ": must be at least 1"));
  Generator generator(options);
  generator.model().report(log);
  if (options.prompt) {
    Row row;
    row.messages = {{"user", *options.prompt, {}}};
    print(generator, generator.answer(row, "the prompt"), 1, options.json, out);
    return 0;
  }
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Row row = parse_prompt(line, "standard input", number);
    print(generator, generator.answer(row, cat("standard input line ", number)), number, options.json, out);
  }
  return 0;
}

}  // namespace tandem
