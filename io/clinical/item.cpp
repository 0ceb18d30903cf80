#include "io/clinical/item.hpp"

#include <array>

namespace tandem {

namespace {
constexpr std::array<SourceKind, 3> kKinds = {SourceKind::kMedmcqa, SourceKind::kMedqa,
                                              SourceKind::kPubmedqa};
}

const char* name_of(SourceKind kind) {
  switch (kind) {
    case SourceKind::kMedmcqa:
      return "medmcqa";
    case SourceKind::kMedqa:
      return "medqa";
    case SourceKind::kPubmedqa:
      break;
  }
  return "pubmedqa";
}

std::optional<SourceKind> source_kind(const std::string& name) {
  for (const SourceKind kind : kKinds)
    if (name == name_of(kind)) return kind;
  return std::nullopt;
}

const char* name_of(Reason reason) {
  constexpr std::array<const char*, kReasons> kNames = {"no question",
                                                        "no answer given",
                                                        "fewer than two options",
                                                        "an option is empty",
                                                        "answer and answer_idx disagree",
                                                        "no abstract",
                                                        "no explanation"};
  return kNames[static_cast<std::size_t>(reason)];
}

}  // namespace tandem
