#include "io/dataset.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "io/sample_cache.hpp"
#include "io/text/line_reader.hpp"
#include "io/text/row.hpp"
#include "io/text/text_tools.hpp"
#include "io/text/utf8.hpp"
#include "src/base/error.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"

namespace tandem {
namespace {

// Enough rows for all threads, little beside the samples themselves.
constexpr std::size_t kBlockBytes = 4 << 20;

// A row and what is to be reported of it.
struct Outcome {
  RenderedRow row;
  RowForm form = RowForm::kMessages;
  bool cut = false, dropped = false, special = false;
  std::int64_t reasoning_dropped = 0, text_dropped = 0, lost_bytes = 0;
  std::exception_ptr error;
};

class Renderer {
 public:
  Renderer(const std::filesystem::path& file, const std::filesystem::path& model_dir,
           const RenderOptions& options)
      : file_(file.string()), model_dir_(model_dir), options_(options) {}

  // Read when the first row needs them.
  const TextTools& tools() {
    std::call_once(tools_read_, [&] {
      try {
        tools_.emplace(read_text_tools(model_dir_, options_.chat_template));
      } catch (...) {
        tools_error_ = std::current_exception();  // every row's error then; not read again for each
      }
    });
    if (tools_error_) std::rethrow_exception(tools_error_);
    return *tools_;
  }
  const TextTools* tools_if_read() const { return tools_ ? &*tools_ : nullptr; }

  Outcome render(const Line& line, std::optional<Encoder>& encoder) {
    if (const auto bad = first_invalid_utf8(line.text))
      throw Error(ErrorKind::kInput, cat(file_, " line ", line.number, ": not valid UTF-8 at byte offset ",
                                         line.offset + static_cast<std::int64_t>(*bad), " of the file"));
    Row row = parse_row(line.text, file_, line.number);
    Outcome outcome;
    outcome.row.line = line.number;
    outcome.form = row.form;
    if (row.tokenised()) {
      outcome.row.ids = std::move(row.ids);
      outcome.row.targets = std::move(row.targets);
    } else {
      if (!encoder) encoder.emplace(tools().tokenizer);
      try {
        render_conversation(row.messages, *encoder, outcome);
      } catch (const Error& error) {
        throw Error(error.kind(), cat(file_, " line ", line.number, ": ", error.what()));
      }
    }
    check_ids(outcome.row);
    limit(outcome);
    return outcome;
  }

 private:
  void render_conversation(std::span<const Message> messages, Encoder& encoder, Outcome& outcome) {
    PromptOptions prompt;
    prompt.last_only = options_.targets == "last";
    Rendered rendered = tools().chat_template.render(messages, prompt);
    const auto special = first_added(tools().tokenizer, rendered.text, rendered.own);
    if (!special.empty() && options_.special_in_text == "refuse")
      throw Error(ErrorKind::kInput,
                  cat("the text holds the control token ", special, " (data.special_in_text = refuse)"));
    const std::span<const Span> plain =
        options_.special_in_text == "plain" ? std::span<const Span>(rendered.own) : std::span<const Span>();
    Encoding encoding = encoder.encode(rendered.text, plain);
    outcome.special = !special.empty();
    outcome.reasoning_dropped = rendered.reasoning_dropped;
    outcome.text_dropped = rendered.text_dropped;
    outcome.lost_bytes = static_cast<std::int64_t>(encoding.lost_bytes);
    outcome.row.targets = marks_of(encoding.first_byte, rendered.targets);
    outcome.row.ids = std::move(encoding.ids);
    outcome.row.text = std::move(rendered.text);
  }

  void check_ids(const RenderedRow& row) const {
    if (options_.vocab_size <= 0) return;
    for (const std::int32_t id : row.ids)
      if (id >= options_.vocab_size)
        throw Error(ErrorKind::kInput,
                    cat(file_, " line ", row.line, ": token id ", id, ", but the model's vocabulary has ",
                        options_.vocab_size, " entries"));
  }

  void limit(Outcome& outcome) const {
    const auto most = static_cast<std::size_t>(options_.max_tokens);
    if (outcome.row.ids.size() <= most) return;
    outcome.dropped = options_.truncate == "drop";
    outcome.cut = !outcome.dropped;
    outcome.row.ids.resize(most);
    outcome.row.targets.resize(most);
  }

  std::string file_;
  std::filesystem::path model_dir_;
  RenderOptions options_;
  std::once_flag tools_read_;
  std::optional<TextTools> tools_;
  std::exception_ptr tools_error_;
};

// Renders a block's rows on several threads; the outcomes stand in the rows' order, each row's error with it.
// Rows behind one with an error may be left out.
class Team {
 public:
  explicit Team(int threads) : encoders_(static_cast<std::size_t>(threads)) {}

  std::vector<Outcome> render(Renderer& renderer, const std::vector<Line>& lines) {
    std::vector<Outcome> outcomes(lines.size());
    std::atomic<std::size_t> next = 0;
    std::atomic<bool> failed = false;
    const auto work = [&](std::optional<Encoder>& encoder) {
      // Rows are taken in order and each one taken is done, so all before a failed one have their outcome.
      while (!failed) {
        const std::size_t i = next++;
        if (i >= lines.size()) break;
        try {
          outcomes[i] = renderer.render(lines[i], encoder);
        } catch (...) {
          outcomes[i].error = std::current_exception();
          failed = true;
        }
      }
    };
    std::vector<std::jthread> threads;
    for (std::size_t t = 1; t < std::min(encoders_.size(), lines.size()); ++t)
      threads.emplace_back(work, std::ref(encoders_[t]));
    work(encoders_[0]);
    threads.clear();  // waits
    return outcomes;
  }

 private:
  std::vector<std::optional<Encoder>> encoders_;
};

void check(const RenderOptions& options) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorKind::kUsage, what); };
  const auto one_of = [&](const char* key, const std::string& value,
                          std::initializer_list<std::string_view> known) {
    if (std::find(known.begin(), known.end(), value) == known.end())
      refuse(cat(key, " = ", value, " is not known"));
  };
  one_of("data.truncate", options.truncate, {"right", "drop"});
  one_of("data.targets", options.targets, {"all", "last"});
  one_of("data.special_in_text", options.special_in_text, {"encode", "refuse", "plain"});
  if (options.max_tokens < 1) refuse(cat("data.max_tokens = ", options.max_tokens, " is below 1"));
}

void count(const Outcome& outcome, DatasetReport& report) {
  const RenderedRow& row = outcome.row;
  report.rows += 1;
  report.alpaca += outcome.form == RowForm::kAlpaca;
  report.sharegpt += outcome.form == RowForm::kShareGpt;
  report.cut += outcome.cut;
  report.dropped += outcome.dropped;
  report.reasoning_dropped += outcome.reasoning_dropped;
  report.text_dropped += outcome.text_dropped;
  report.lost_bytes += outcome.lost_bytes;
  if (outcome.lost_bytes > 0 && report.first_lost_line == 0) report.first_lost_line = row.line;
  report.special_in_text += outcome.special;
  if (outcome.special && report.first_special_line == 0) report.first_special_line = row.line;
  if (outcome.dropped) return;
  const auto length = static_cast<std::int64_t>(row.ids.size());
  // Token 0 is never scored.
  const std::int64_t scored = length > 0 ? std::count(row.targets.begin() + 1, row.targets.end(), 1) : 0;
  report.without_targets += scored == 0;
  report.tokens += length;
  report.target_tokens += scored;
  report.longest = std::max(report.longest, length);
}

}  // namespace

DatasetReport for_each_row(const std::filesystem::path& file, const std::filesystem::path& model_dir,
                           const RenderOptions& options, const std::function<bool(RenderedRow&&)>& sink,
                           const Progress& progress) {
  check(options);
  LineReader reader(file);
  Renderer renderer(file, model_dir, options);
  Team team(options.threads > 0 ? options.threads
                                : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  DatasetReport report;
  bool wanted = true;
  while (wanted) {
    const auto lines = reader.next_block(kBlockBytes);
    if (lines.empty()) break;
    for (Outcome& outcome : team.render(renderer, lines)) {
      if (outcome.error) std::rethrow_exception(outcome.error);
      count(outcome, report);
      if (!outcome.dropped) wanted = sink(std::move(outcome.row));
      if (!wanted) break;
    }
    if (progress) progress(reader.share_read());
  }
  report.blank = reader.blank();
  if (const TextTools* tools = renderer.tools_if_read()) {
    report.template_name = tools->chat_template.name();
    report.template_digest = tools->chat_template.digest();
    report.template_overrides_model = tools->chat_template.overrides_model();
  }
  if (report.rows == report.dropped)
    throw Error(
        ErrorKind::kInput,
        cat(file.string(), ": no sample left (", report.rows, " rows, ", report.blank, " blank lines, ",
            report.dropped, " rows longer than data.max_tokens = ", options.max_tokens, " and dropped)"));
  return report;
}

namespace {

Dataset render_all(const std::filesystem::path& file, const std::filesystem::path& model_dir,
                   const RenderOptions& options, const Progress& progress) {
  Dataset dataset;
  dataset.report = for_each_row(
      file, model_dir, options,
      [&](RenderedRow&& row) {
        dataset.samples.add(row.ids, row.targets, row.line);
        return true;
      },
      progress);
  return dataset;
}

}  // namespace

Dataset load_dataset(const std::filesystem::path& file, const std::filesystem::path& model_dir,
                     const RenderOptions& options, const LoadAids& aids) {
  if (aids.cache.empty()) return render_all(file, model_dir, options, aids.progress);
  check(options);
  const std::string digest = aids.data_digest.empty() ? sha256_file(file) : aids.data_digest;
  const std::string key = cache_key(digest, model_dir, options);
  const std::filesystem::path cached = cache_file(aids.cache, key);
  std::string trouble;
  try {
    if (auto dataset = read_cached(cached, key)) return std::move(*dataset);
  } catch (const Error& error) {
    trouble = error.what();
  }
  Dataset dataset = render_all(file, model_dir, options, aids.progress);
  if (aids.write_cache) {
    // What is kept under a digest must be what that digest stands for.
    if (sha256_file(file) != digest)
      throw Error(ErrorKind::kInput, cat(file.string(), ": changed while it was read"));
    try {
      write_cached(cached, key, dataset);
    } catch (const Error& error) {
      trouble = error.what();
    }
  }
  dataset.report.cache_trouble = trouble;
  return dataset;
}

}  // namespace tandem
