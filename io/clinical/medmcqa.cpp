#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "io/clinical/answer_letter.hpp"
#include "io/clinical/clean_text.hpp"
#include "io/clinical/item_reader.hpp"
#include "io/clinical/json_fields.hpp"
#include "io/clinical/json_lines.hpp"
#include "src/base/error.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

constexpr std::array<const char*, 4> kOptionKeys = {"opa", "opb", "opc", "opd"};
constexpr std::int64_t kLast = kOptionKeys.size();

// What the letters must show where no cop is 0 or 4: this many, and this share of them for one base.
constexpr std::int64_t kEnoughLetters = 5;
constexpr double kAgreeingShare = 0.9;

// None where no answer is given: absent, null or, in some copies of the test set, -1.
std::optional<std::int64_t> read_cop(const JsonFields& fields) {
  const nlohmann::json* value = fields.find("cop");
  if (!value) return std::nullopt;
  if (!value->is_number_integer()) fields.fail(cat("cop = ", value->dump(), " is no integer"));
  const auto cop = value->get<std::int64_t>();
  if (cop == -1) return std::nullopt;
  if (cop < 0 || cop > kLast) fields.fail(cat("cop = ", cop, " is no option's number"));
  return cop;
}

struct CopBase {
  std::int64_t base = 1;
  std::string why;
};

std::string from(std::int64_t base) { return cat("cop counts from ", base, ": "); }

CopBase find_cop_base(const std::filesystem::path& file) {
  JsonLines lines(file);
  bool any = false;
  std::array<std::int64_t, 2> votes{};
  std::int64_t letters = 0;
  while (const auto value = lines.next()) {
    const JsonFields fields(value->json, lines.name(), value->line);
    const auto cop = read_cop(fields);
    if (!cop) continue;
    if (*cop == 0) return {0, cat(from(0), "line ", value->line, " has 0")};
    if (*cop == kLast) return {1, cat(from(1), "line ", value->line, " has ", kLast)};
    any = true;
    if (const auto announced = announced_option(clean_text(fields.text_or_empty("exp")))) {
      ++letters;
      for (std::size_t base = 0; base < votes.size(); ++base)
        votes[base] += static_cast<std::int64_t>(announced->option + base) == *cop;
    }
  }
  if (!any) return {};
  const std::int64_t base = votes[1] > votes[0];
  const std::int64_t agree = votes[static_cast<std::size_t>(base)];
  if (agree >= kEnoughLetters && static_cast<double>(agree) >= kAgreeingShare * static_cast<double>(letters))
    return {base, cat(from(base), agree, " of ", letters, " letters announced in exp say so")};
  throw Error(ErrorKind::kUsage, cat(lines.name(),
                                     ": every cop is 1, 2 or 3, and the explanations do not show whether "
                                     "it counts from 0 or from 1; say which with --cop-base"));
}

class MedmcqaReader : public ItemReader {
 public:
  MedmcqaReader(const std::filesystem::path& file, std::optional<int> cop_base)
      : base_(cop_base ? CopBase{*cop_base, cat(from(*cop_base), "--cop-base says so")}
                       : find_cop_base(file)),
        lines_(file) {}

  std::optional<ClinicalItem> next() override {
    const auto value = lines_.next();
    if (!value) return std::nullopt;
    const JsonFields fields(value->json, lines_.name(), value->line);
    ClinicalItem item;
    item.line = value->line;
    item.id = fields.text_or_empty("id");
    item.question = fields.text("question");
    item.explanation = fields.text_or_empty("exp");
    for (const char* key : kOptionKeys) item.options.push_back(fields.text(key));
    const auto cop = read_cop(fields);
    if (!cop) {
      item.reason = Reason::kNoAnswer;
      return item;
    }
    if (*cop < base_.base || *cop >= base_.base + kLast)
      fields.fail(cat("cop = ", *cop, ", but ", base_.why));
    item.right_option = static_cast<std::size_t>(*cop - base_.base);
    return item;
  }

  std::string evidence() const override { return base_.why; }

 private:
  CopBase base_;
  JsonLines lines_;
};

}  // namespace

std::unique_ptr<ItemReader> read_medmcqa(const std::filesystem::path& file, std::optional<int> cop_base) {
  return std::make_unique<MedmcqaReader>(file, cop_base);
}

}  // namespace tandem
