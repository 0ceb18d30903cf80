#include "io/text/chat_template.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "io/text/own_template.hpp"
#include "io/text/own_tokenizer.hpp"
#include "io/text/tokenizer.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "tests/support/data.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

using nlohmann::json;

const ChatTemplate kQwen3 = ChatTemplate::of_kind(TemplateKind::kQwen3);

std::vector<Message> messages_of(const json& list) {
  std::vector<Message> messages;
  for (const json& one : list) {
    Message message{one["role"], one["content"], {}};
    if (one.contains("reasoning_content"))
      message.reasoning_content = one["reasoning_content"].get<std::string>();
    messages.push_back(message);
  }
  return messages;
}

std::string text_of(const ChatTemplate& chat, const std::vector<Message>& messages,
                    const PromptOptions& options = {}) {
  return chat.render(messages, options).text;
}

// What is trained on, its parts joined by "|".
std::string targets_of(const ChatTemplate& chat, const std::vector<Message>& messages,
                       const PromptOptions& options = {}) {
  const Rendered rendered = chat.render(messages, options);
  std::string all;
  for (const Span span : rendered.targets)
    all += (all.empty() ? "" : "|") + rendered.text.substr(span.begin, span.end - span.begin);
  return all;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ChatTemplate, RendersThePublishedTemplatesStrings) {
  const auto file = support::data_path("vectors/chat_template_rendered_jinja2.json");
  if (!file) GTEST_SKIP() << support::kNoData;
  const auto cases = support::read_json(*file);
  ASSERT_EQ(cases.size(), 14u);
  const auto smollm2 = ChatTemplate::of_kind(TemplateKind::kSmolLm2);
  for (const auto& one : cases) {
    PromptOptions options;
    options.add_generation_prompt = one["kwargs"].value("add_generation_prompt", false);
    if (one["kwargs"].contains("enable_thinking"))
      options.enable_thinking = one["kwargs"]["enable_thinking"].get<bool>();
    const auto messages = messages_of(one["messages"]);
    EXPECT_EQ(text_of(kQwen3, messages, options), one["qwen3_old"]) << one["name"];
    EXPECT_EQ(text_of(kQwen3, messages, options), one["qwen3_new"]) << one["name"];
    EXPECT_EQ(text_of(smollm2, messages, options), one["smollm2"]) << one["name"];
  }
}

// Known fault R8.
TEST(ChatTemplate, DropsAndCountsTheReasoningOfEarlierTurns) {
  const std::vector<Message> messages = {{"user", "q1", {}},
                                         {"assistant", "<think>\nA\n</think>\n\nr1", {}},
                                         {"user", "q2", {}},
                                         {"assistant", "<think>\nB\n</think>\n\nr2", {}}};
  const Rendered rendered = kQwen3.render(messages);
  EXPECT_EQ(rendered.text,
            "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\nr1<|im_end|>\n"
            "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n<think>\nB\n</think>\n\nr2<|im_end|>\n");
  EXPECT_EQ(rendered.reasoning_dropped, 1);
  EXPECT_EQ(rendered.text_dropped, 0);
  EXPECT_EQ(targets_of(kQwen3, messages), "r1<|im_end|>|<think>\nB\n</think>\n\nr2<|im_end|>");
}

// Known fault R9: the generation prompt supplies an empty block, so it is no target.
TEST(ChatTemplate, DoesNotTrainOnAnEmptyThinkBlock) {
  const std::vector<Message> messages = {{"user", "q", {}}, {"assistant", "r", {}}};
  EXPECT_EQ(text_of(kQwen3, messages),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nr<|im_end|>\n");
  EXPECT_EQ(targets_of(kQwen3, messages), "r<|im_end|>");
  EXPECT_EQ(targets_of(kQwen3, {{"user", "q", {}}, {"assistant", "r", "\n\n"}}), "r<|im_end|>");
  EXPECT_EQ(targets_of(kQwen3, {{"user", "q", {}}, {"assistant", "r", "x"}}),
            "<think>\nx\n</think>\n\nr<|im_end|>");
  EXPECT_EQ(targets_of(kQwen3, {{"user", "q", {}}, {"assistant", "", {}}}), "<|im_end|>");
}

// Known fault R10.
TEST(ChatTemplate, KeepsAnEmptySystemTurnAndMakesUpNone) {
  EXPECT_EQ(text_of(kQwen3, {{"system", "", {}}, {"user", "q", {}}}),
            "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nq<|im_end|>\n");
  EXPECT_EQ(text_of(kQwen3, {{"user", "q", {}}}), "<|im_start|>user\nq<|im_end|>\n");
}

// Known fault R11.
TEST(ChatTemplate, NeverTrainsOnUserSystemOrHeaders) {
  EXPECT_EQ(
      targets_of(kQwen3,
                 {{"assistant", "first", {}}, {"user", "q", {}}, {"assistant", "r", {}}, {"user", "on", {}}}),
      "first<|im_end|>|r<|im_end|>");
  EXPECT_EQ(targets_of(kQwen3, {{"system", "s", {}}, {"user", "q", {}}}), "");
}

TEST(ChatTemplate, TrainsOnTheLastAnswerAloneWhereAsked) {
  PromptOptions last;
  last.last_only = true;
  const std::vector<Message> messages = {{"user", "a", {}},
                                         {"assistant", "b", {}},
                                         {"user", "c", {}},
                                         {"assistant", "d", {}},
                                         {"user", "e", {}}};
  EXPECT_EQ(targets_of(kQwen3, messages, last), "d<|im_end|>");
}

TEST(ChatTemplate, CountsTextThatQwen3sTemplateLeavesOut) {
  EXPECT_EQ(kQwen3.render(std::vector<Message>{{"user", "q", {}}, {"assistant", "lost<think>x</think>r", {}}})
                .text_dropped,
            1);
  EXPECT_EQ(
      kQwen3
          .render(std::vector<Message>{{"user", "q", {}}, {"assistant", "<think>x</think>lost</think>r", {}}})
          .text_dropped,
      1);
  EXPECT_EQ(
      kQwen3
          .render(std::vector<Message>{{"user", "q", {}}, {"assistant", "\n<think>x</think>\n</think>r", {}}})
          .text_dropped,
      0);
}

TEST(ChatTemplate, MarksWhatCameFromTheConversation) {
  const Rendered rendered =
      kQwen3.render(std::vector<Message>{{"user", "qq", {}}, {"assistant", "r", "why"}});
  std::string own;
  for (const Span span : rendered.own) own += rendered.text.substr(span.begin, span.end - span.begin) + "|";
  EXPECT_EQ(own, "qq|why|r|");
}

TEST(ChatTemplate, RefusesWhatItDoesNotRender) {
  EXPECT_EQ(error_of([] { kQwen3.render(std::vector<Message>{}); }), "the conversation has no messages");
  EXPECT_EQ(error_of([] {
              kQwen3.render(std::vector<Message>{{"user", "q", {}}, {"tool", "x", {}}});
            }),
            "message 2: role \"tool\" is not supported (system, user, assistant are)");
  EXPECT_EQ(error_of([] {
              kQwen3.render(std::vector<Message>{{"user", "q", "r"}});
            }),
            "message 1: reasoning_content in a user message; only an assistant's can have it");
}

TEST(ChatTemplate, IsChosenByTheHashOfTheModelsOwn) {
  if (!support::data_path("qwen3")) GTEST_SKIP() << support::kNoData;
  support::TempFolder folder;
  std::filesystem::copy_file(*support::data_path("qwen3/tokenizer_config.later.json"),
                             folder.path() / "tokenizer_config.json");
  for (const auto& dir : {*support::data_path("qwen3"), folder.path()}) {
    const auto chosen = ChatTemplate::choose(dir, "auto");
    EXPECT_EQ(chosen.name(), "qwen3");
    EXPECT_FALSE(chosen.overrides_model());
    EXPECT_EQ(chosen.digest(), sha256_hex(*read_chat_template(dir)));
  }
  EXPECT_EQ(ChatTemplate::choose(*support::data_path("smollm2"), "auto").name(), "smollm2");
  EXPECT_TRUE(ChatTemplate::choose(*support::data_path("smollm2"), "qwen3").overrides_model());
}

TEST(ChatTemplate, RefusesAnUnknownOneWithItsHashAndTheKnownOnes) {
  support::TempFolder folder;
  std::ofstream(folder.path() / "chat_template.jinja") << "{{ messages }}";
  const std::string error = error_of([&] { ChatTemplate::choose(folder.path(), "auto"); });
  EXPECT_NE(error.find(sha256_hex("{{ messages }}")), std::string::npos) << error;
  EXPECT_NE(error.find("87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5"), std::string::npos)
      << error;
  EXPECT_EQ(ChatTemplate::choose(folder.path(), "chatml").name(), "chatml");
  EXPECT_TRUE(ChatTemplate::choose(folder.path(), "chatml").overrides_model());
  EXPECT_NE(
      error_of([&] { ChatTemplate::choose(folder.path(), "vicuna"); }).find("auto, qwen3, smollm2, chatml"),
      std::string::npos);
}

TEST(ChatTemplate, SaysWhereAModelHasNone) {
  support::TempFolder folder;
  EXPECT_NE(error_of([&] { ChatTemplate::choose(folder.path(), "auto"); }).find("no chat_template"),
            std::string::npos);
  std::ofstream(folder.path() / "tokenizer_config.json")
      << R"({"chat_template": [{"name": "rag", "template": "x"}]})";
  EXPECT_NE(error_of([&] { ChatTemplate::choose(folder.path(), "auto"); }).find("neither a text"),
            std::string::npos);
  EXPECT_FALSE(
      ChatTemplate::choose(std::filesystem::temp_directory_path() / "none", "chatml").overrides_model());
}

TEST(OwnTokenizer, IsReadBackWithItsTemplateKnown) {
  support::TempFolder folder;
  const OwnTokenizer own = write_byte_level_tokenizer(folder.path());
  EXPECT_EQ(own.vocab_size, 282);
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.size(), own.vocab_size);
  EXPECT_EQ(tokenizer.added_token("<|im_end|>"), own.eos_id);
  EXPECT_EQ(tokenizer.added_token("<|endoftext|>"), own.pad_id);
  EXPECT_EQ(Encoder(tokenizer).encode("a\u00E9<|im_end|>").ids,
            (std::vector<std::int32_t>{97, 0xC3, 0xA9, own.eos_id}));
  const auto chosen = ChatTemplate::choose(folder.path(), "auto");
  EXPECT_EQ(chosen.name(), "qwen3");
  EXPECT_EQ(chosen.digest(), sha256_hex(kOwnTemplate));
  for (const auto token : chosen.control_tokens()) EXPECT_TRUE(tokenizer.added_token(token)) << token;
}

}  // namespace
}  // namespace tandem
