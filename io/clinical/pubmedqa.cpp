#include "io/clinical/item_reader.hpp"
#include "io/clinical/json_fields.hpp"
#include "io/clinical/json_members.hpp"

namespace tandem {
namespace {

class PubmedqaReader : public ItemReader {
 public:
  explicit PubmedqaReader(const std::filesystem::path& file) : members_(file) {}

  std::optional<ClinicalItem> next() override {
    auto member = members_.next();
    if (!member) return std::nullopt;
    const JsonFields fields(member->value, members_.name(), member->line);
    ClinicalItem item;
    item.line = member->line;
    item.id = std::move(member->key);
    item.question = fields.text("QUESTION");
    item.explanation = fields.text_or_empty("LONG_ANSWER");
    item.answer_text = fields.text_or_empty("final_decision");
    auto labels = fields.texts("LABELS");
    auto parts = fields.texts("CONTEXTS");
    if (!labels.empty() && labels.size() != parts.size()) fields.fail("LABELS and CONTEXTS differ in length");
    for (std::size_t i = 0; i < parts.size(); ++i)
      item.context.push_back({labels.empty() ? std::string() : std::move(labels[i]), std::move(parts[i])});
    return item;
  }

 private:
  JsonMembers members_;
};

}  // namespace

std::unique_ptr<ItemReader> read_pubmedqa(const std::filesystem::path& file) {
  return std::make_unique<PubmedqaReader>(file);
}

}  // namespace tandem
