// Rules on what a run begins with: its texts, the base weights, the adapter, the samples.
#include <algorithm>
#include <cmath>
#include <set>

#include "io/format/rules.hpp"
#include "io/format/table.hpp"
#include "io/text/utf8.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem::format {

namespace {

constexpr const char* kHex = "64 lower-case hexadecimal characters";
constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // tokens read at a time

bool is_digest(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string quoted(const std::string& text) {
  constexpr std::size_t kShown = 80;
  return cat('"', replace_invalid_utf8(text.substr(0, kShown)), text.size() > kShown ? "..." : "", '"');
}

std::optional<Wrong> wrong_text(bool right, const std::string& text, const char* expected) {
  if (right) return std::nullopt;
  return Wrong{"is " + quoted(text), expected};
}

// One `key = value` a line, sorted, each line ended.
std::string fault_of_canonical(const std::string& text) {
  std::string before;
  std::int64_t row = 0;
  for (std::size_t at = 0; at < text.size(); ++row) {
    const std::size_t end = text.find('\n', at);
    if (end == text.npos) return "its last line does not end";
    const std::string line = text.substr(at, end - at);
    if (line.find(" = ") == line.npos || line.starts_with(" = "))
      return cat("line ", row, " is ", quoted(line));
    if (line <= before) return cat("line ", row, " is ", quoted(line), " after ", quoted(before));
    before = line;
    at = end + 1;
  }
  return text.empty() ? "it is empty" : "";
}

void check_canonical(Columns& columns, const std::string& group) {
  const auto* text = columns.texts(group + "/text");
  const auto* digest = columns.texts(group + "/digest");
  if (!text) return;
  if (const std::string fault = fault_of_canonical(text->front()); !fault.empty())
    columns.findings().add("/" + group + "/text", fault, "sorted lines `key = value`");
  if (!digest) return;
  const std::string expected = sha256_hex(text->front());
  if (digest->front() != expected)
    columns.findings().add("/" + group + "/digest", "is " + quoted(digest->front()),
                           expected + ", that of /" + group + "/text");
}

void check_provenance(Columns& columns) {
  if (!columns.has("update/step")) return;
  const auto provenance = columns.group("provenance");
  for (const char* name : {"arithmetic", "orchestration", "runtime"}) {
    try {
      if (!provenance || !provenance->text(name))
        columns.findings().add("/provenance", cat("has no attribute ", name),
                               "a text (an axis of independence)");
    } catch (const Error& error) {
      columns.findings().add(error, columns.file());
    }
  }
}

void check_adapter(Columns& columns) {
  const auto* names = columns.texts("adapter/names");
  if (!names) return;
  const auto& all = *names;
  columns.findings().each("adapter/names", all.size(), [&](std::size_t i) {
    return wrong_text(i == 0 || all[i - 1] < all[i], all[i], "names in ascending byte order, each once");
  });
  const std::string a = ".lora_A.weight", b = ".lora_B.weight";
  columns.findings().each("adapter/names", all.size(), [&](std::size_t i) {
    const std::string& ending = i % 2 == 0 ? a : b;
    bool right = all[i].size() > ending.size() && all[i].ends_with(ending);
    if (right && i % 2 == 1)
      right =
          all[i].substr(0, all[i].size() - b.size()) == all[i - 1].substr(0, all[i - 1].size() - a.size());
    return wrong_text(right, all[i],
                      i % 2 == 0 ? "<module>.lora_A.weight" : "the same module's .lora_B.weight");
  });
  if (all.size() % 2 == 1)
    columns.findings().add("/adapter/names", cat("has ", all.size(), " names"), "two for each module");
  const auto* shapes = columns.ints("adapter/shapes");
  if (!shapes) return;
  const auto& sizes = *shapes;
  columns.findings().each(
      "adapter/shapes", sizes.size(),
      [&](std::size_t i) { return unless(sizes[i] > 0, sizes[i], "a size above 0"); }, 2);
  columns.findings().each("adapter/shapes", all.size() / 2, [&](std::size_t m) {
    return unless(sizes[4 * m] == sizes[4 * m + 3], sizes[4 * m],
                  cat("the rank of the module's B, ", sizes[4 * m + 3], " (rows 2i and 2i+1 of module i)"));
  });
}

// A sample as the stored ids and marks have it.
struct Sample {
  std::int64_t n_targets = 0, last_target_id = -1;
  std::string digest;
};

Sample sample_of(std::span<const std::int64_t> ids, std::span<const std::int64_t> marks) {
  Sample sample;
  std::vector<std::int32_t> words(ids.begin(), ids.end());
  std::vector<std::uint8_t> bytes(marks.begin(), marks.end());
  for (std::size_t p = 1; p < ids.size(); ++p)
    if (marks[p] != 0) {
      ++sample.n_targets;
      sample.last_target_id = ids[p];
    }
  sample.digest = Sha256()
                      .update(std::span<const std::int32_t>(words))
                      .update(std::span<const std::uint8_t>(bytes))
                      .hex();
  return sample;
}

// /render/{begin, ids, targets} against the columns of /render.
void check_stored_samples(Columns& columns) {
  const auto *begin = columns.ints("render/begin"), *n_ids = columns.ints("render/n_ids"),
             *n_targets = columns.ints("render/n_targets"), *last = columns.ints("render/last_target_id");
  const auto* digest = columns.texts("render/digest");
  if (!begin || !n_ids || !n_targets || !last || !digest || !columns.has("render/ids") ||
      !columns.has("render/targets"))
    return;
  const auto& starts = *begin;
  const std::size_t n = n_ids->size();
  const std::int64_t tokens = columns.size("render/ids");
  if (columns.size("render/targets") != tokens)
    return columns.findings().add("/render/targets", cat("has ", columns.size("render/targets"), " elements"),
                                  cat(tokens, ", as /render/ids has"));
  bool whole = starts.front() == 0 && starts.back() == tokens;
  if (!whole)
    columns.findings().add("/render/begin", cat("goes from ", starts.front(), " to ", starts.back()),
                           cat("from 0 to ", tokens, ", the number of /render/ids"));
  columns.findings().each("render/begin", n, [&](std::size_t i) {
    const bool right = starts[i] >= 0 && starts[i + 1] >= starts[i] && starts[i + 1] <= tokens &&
                       starts[i + 1] - starts[i] == (*n_ids)[i];
    whole = whole && right;
    if (right) return std::optional<Wrong>();
    return std::optional<Wrong>({cat("gives [", starts[i], ", ", starts[i + 1], ")"),
                                 cat((*n_ids)[i], " ids, as /render/n_ids has")});
  });
  if (!whole) return;
  std::vector<std::int64_t> ids, marks;
  std::int64_t first = 0, count = 0;  // what the two hold
  bool readable = true, marks_good = true;
  const auto slice = [&](std::size_t i) {
    if (starts[i + 1] > first + count) {
      first = starts[i];
      count = std::min(std::max(kBlock, starts[i + 1] - first), tokens - first);
      ids = columns.part("render/ids", first, count);
      marks = columns.part("render/targets", first, count);
      readable = readable && static_cast<std::int64_t>(ids.size()) == count &&
                 static_cast<std::int64_t>(marks.size()) == count;
      for (const std::int64_t mark : marks) marks_good = marks_good && (mark == 0 || mark == 1);
    }
    if (!readable) return Sample{};
    const auto at = static_cast<std::size_t>(starts[i] - first), size = static_cast<std::size_t>((*n_ids)[i]);
    return sample_of(std::span(ids).subspan(at, size), std::span(marks).subspan(at, size));
  };
  columns.findings().each("render/ids", n, [&](std::size_t i) -> std::optional<Wrong> {
    const Sample sample = slice(i);
    if (!readable) return std::nullopt;
    if (sample.digest != (*digest)[i])
      return Wrong{cat("sample ", i, " has the digest ", sample.digest),
                   (*digest)[i] + ", as /render/digest has"};
    if (sample.n_targets != (*n_targets)[i] || sample.last_target_id != (*last)[i])
      return Wrong{cat("sample ", i, " has ", sample.n_targets, " targets, the last ", sample.last_target_id),
                   cat((*n_targets)[i], ", the last ", (*last)[i], ", as /render has")};
    return std::nullopt;
  });
  if (!marks_good) columns.findings().add("/render/targets", "holds other marks", "0 and 1");
}

}  // namespace

void check_texts(Columns& columns) {
  for (const Dataset& dataset : datasets()) {
    if (dataset.kind != Kind::kText && dataset.kind != Kind::kDigest) continue;
    const auto* texts = columns.texts(dataset.path());
    if (!texts) continue;
    columns.findings().each(dataset.path(), texts->size(), [&](std::size_t i) {
      const std::string& text = (*texts)[i];
      return dataset.kind == Kind::kDigest ? wrong_text(is_digest(text), text, kHex)
                                           : wrong_text(!first_invalid_utf8(text), text, "UTF-8");
    });
  }
  for (const char* group : {"spec", "execution"}) check_canonical(columns, group);
  check_provenance(columns);
}

void check_load(Columns& columns) {
  check_adapter(columns);
  if (const auto* names = columns.texts("load/name")) {
    std::set<std::string> seen;
    columns.findings().each("load/name", names->size(), [&](std::size_t i) {
      return wrong_text(!(*names)[i].empty() && seen.insert((*names)[i]).second, (*names)[i],
                        "a name of its own for each tensor");
    });
  }
  if (const auto* dtypes = columns.texts("load/dtype"))
    columns.findings().each("load/dtype", dtypes->size(), [&](std::size_t i) {
      return wrong_text(!(*dtypes)[i].empty(), (*dtypes)[i], "the file's name of the type");
    });
  if (const auto* shapes = columns.ints("load/shape"))
    columns.findings().each(
        "load/shape", shapes->size(),
        [&](std::size_t i) {
          const std::int64_t size = (*shapes)[i];
          const bool after_end = i % 4 > 0 && (*shapes)[i - 1] == -1;
          return unless(size == -1 || (size >= 0 && !after_end), size,
                        "sizes, then -1 for each further dimension");
        },
        4);
  if (const auto* rms = columns.doubles("load/rms"))
    columns.findings().each("load/rms", rms->size(), [&](std::size_t i) {
      return unless(not_negative((*rms)[i]), (*rms)[i], kNotNegative);
    });
  if (const auto* mean = columns.doubles("load/mean"))
    columns.findings().each("load/mean", mean->size(), [&](std::size_t i) {
      return unless(std::isfinite((*mean)[i]), (*mean)[i], "a finite number");
    });
  const std::int64_t tensors = columns.has("load/name") ? columns.size("load/name") : -1;
  if (const auto* rows = columns.ints("load/memory/tensor"); rows && tensors >= 0)
    columns.findings().each("load/memory/tensor", rows->size(), [&](std::size_t i) {
      return unless((*rows)[i] >= 0 && (*rows)[i] < tensors, (*rows)[i],
                    cat("a row of /load/name, below ", tensors));
    });
  if (const auto* step = columns.ints("load/memory/step"))
    columns.findings().each("load/memory/step", step->size(), [&](std::size_t i) {
      const std::int64_t least = i > 0 ? (*step)[i - 1] : 0;
      return unless((*step)[i] >= least, (*step)[i], cat("at least ", least, " (steps do not descend)"));
    });
  const auto *error = columns.doubles("ops/error"), *bound = columns.doubles("ops/bound");
  for (const auto& [name, values] : {std::pair("ops/error", error), std::pair("ops/bound", bound)})
    if (values)
      columns.findings().each(name, values->size(), [&, column = values](std::size_t i) {
        return unless((*column)[i] >= 0.0, (*column)[i], "a number of at least 0");
      });
}

std::optional<std::int64_t> n_train(const Columns& columns) {
  if (!columns.has("render/n_ids")) return std::nullopt;
  try {
    const auto count = columns.group("render")->int_attribute("n_train");
    if (!count || *count < 0 || *count > columns.size("render/n_ids")) return std::nullopt;
    return count;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void check_render(Columns& columns) {
  if (!columns.has("render/n_ids")) return;
  const std::int64_t samples = columns.size("render/n_ids");
  if (!n_train(columns))
    columns.findings().add("/render", "has no attribute n_train that fits",
                           cat("an integer from 0 to ", samples));
  if (const auto* digest = columns.texts("render/template_digest"))
    if (!digest->front().empty() && !is_digest(digest->front()))
      columns.findings().add("/render/template_digest", "is " + quoted(digest->front()),
                             cat(kHex, ", or none"));
  const auto *n_ids = columns.ints("render/n_ids"), *n_targets = columns.ints("render/n_targets"),
             *last = columns.ints("render/last_target_id");
  if (n_ids)
    columns.findings().each("render/n_ids", n_ids->size(), [&](std::size_t i) {
      return unless((*n_ids)[i] >= 0, (*n_ids)[i], "a number of at least 0");
    });
  if (n_ids && n_targets)
    columns.findings().each("render/n_targets", n_targets->size(), [&](std::size_t i) {
      const std::int64_t most = std::max<std::int64_t>((*n_ids)[i] - 1, 0);
      return unless((*n_targets)[i] >= 0 && (*n_targets)[i] <= most, (*n_targets)[i],
                    cat("from 0 to ", most, " (token 0 is never scored)"));
    });
  if (n_targets && last)
    columns.findings().each("render/last_target_id", last->size(), [&](std::size_t i) {
      const bool none = (*n_targets)[i] == 0;
      return unless(none ? (*last)[i] == -1 : (*last)[i] >= 0, (*last)[i],
                    none ? "-1, as it has no target" : "a token id");
    });
  check_stored_samples(columns);
}

}  // namespace tandem::format
