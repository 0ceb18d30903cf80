#include "src/compare/view.hpp"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <sstream>
#include <tuple>
#include <vector>

#include "src/base/text.hpp"
#include "src/compare/numbers.hpp"

namespace tandem {

namespace {

constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::size_t kMostListed = 6;  // of differences of texts

struct Painter {
  std::ostream& out;
  bool colour;

  std::string painted(const std::string& text, const char* code) const {
    return colour ? cat("\033[", code, "m", text, "\033[0m") : text;
  }
  std::string outcome(Outcome o, std::size_t width) const {
    std::string text = name_of(o);
    text.resize(std::max(width, text.size()), ' ');
    return painted(text, o == Outcome::kPass ? "32" : o == Outcome::kNotChecked ? "33" : "31;1");
  }
};

constexpr std::size_t kWidth = 110, kHead = 14;

// Lines of at most kWidth columns; all after the first are indented.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string out, line;
  std::istringstream words(printable_line(text));
  for (std::string word; words >> word;) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > kWidth) {
      out += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line + "\n";
}

std::string row(const std::string& name, const std::string& value) {
  std::string head = name;
  head.resize(std::max(kHead, head.size() + 1), ' ');
  return head + wrapped(value, kHead);
}

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (std::size_t i = 0; i < parts.size() && i < kMostListed; ++i) text += (i ? between : "") + parts[i];
  return parts.size() > kMostListed ? cat(text, between, parts.size() - kMostListed, " more") : text;
}

std::string file_line(const FileFacts& f) {
  std::string text = cat(f.file, "   ", f.stack);
  if (!f.precision.empty()) text += ", " + f.precision;
  if (!f.ranks.empty()) text += cat(", ", f.ranks, f.ranks == "1" ? " rank" : " ranks");
  text += cat(", ", f.updates, f.planned >= 0 ? cat(" of ", f.planned) : "", " updates");
  return f.complete ? text : text + ", not complete";
}

std::string axes_line(const std::vector<Axis>& axes) {
  std::vector<std::string> apart, shared, unknown;
  for (const Axis& axis : axes) {
    if (axis.a.empty() || axis.b.empty())
      unknown.push_back(axis.name);
    else if (axis.shared())
      shared.push_back(cat(axis.name, " (", axis.a, ")"));
    else
      apart.push_back(cat(axis.name, " (", axis.a, " / ", axis.b, ")"));
  }
  std::string text = apart.empty() ? "none" : joined(apart, ", ");
  if (!shared.empty()) text += cat("; shared, so that its faults show in neither: ", joined(shared, ", "));
  if (!unknown.empty()) text += cat("; not said: ", joined(unknown, ", "));
  return text;
}

std::string observation_text(const Observation& o) {
  std::string text = o.name;
  if (!o.place.empty()) text += ": " + o.place;
  if (!o.detail.empty()) text += (o.place.empty() ? ": " : "; ") + o.detail;
  if (!o.fails() && o.checked > 0 && !std::isnan(o.coarsest))
    text += o.coarsest == o.finest
                ? cat(", sees from ", short_number(o.finest))
                : cat(", sees from ", short_number(o.finest), " to ", short_number(o.coarsest));
  else if (!o.fails() && o.checked > 0)
    text += ", sees any";
  return printable_line(text);
}

using List = std::vector<const Observation*>;

List of_level(const Comparison& c, int level) {
  List here;
  for (const Observation& o : c.observations)
    if (level_of(o.stage) == level) here.push_back(&o);
  return here;
}

void level_line(const Comparison& c, int level, const Painter& paint) {
  const List here = of_level(c, level);
  std::size_t passed = 0, failed = 0, left = 0, missing = 0;
  const Observation* first = nullptr;
  for (const Observation* o : here) {
    passed += o->outcome == Outcome::kPass, failed += o->fails();
    left += o->outcome == Outcome::kNotChecked, missing += o->missing;
    const auto key = [](const Observation& x) { return std::tuple(x.stage, x.update, x.step); };
    if (o->fails() && (!first || key(*o) < key(*first))) first = o;
  }
  const Outcome outcome = first ? first->outcome : missing || !passed ? Outcome::kNotChecked : Outcome::kPass;
  std::string name = cat(level, " ", level_name(level));
  name.resize(kHead, ' ');
  std::string counts = cat(passed, " passed", failed ? cat(", ", failed, " failed") : "",
                           left ? cat(", ", left, " not checked") : "",
                           missing ? cat(" (", missing, " that should be there)") : "");
  if (first && c.first >= 0)
    if (const Stage cause = c.observations[static_cast<std::size_t>(c.first)].stage; first->stage > cause)
      counts += cat("; follows from level ", level_of(cause));
  paint.out << paint.painted(name, "1") << paint.outcome(outcome, 13) << counts << "\n";
}

// One line an observation; those left for the same reason share one.
void observation_lines(const Comparison& c, int level, const ViewOptions& options, const Painter& paint) {
  const std::size_t indent = kHead + 13;
  std::string head = cat("level ", level);
  const auto line = [&](Outcome outcome, const std::string& text) {
    head.resize(kHead, ' ');
    paint.out << head << paint.outcome(outcome, 13) << wrapped(text, indent);
    head.clear();
  };
  std::vector<std::pair<std::string, std::string>> reasons;  // and what was left for it
  for (const Observation* o : of_level(c, level)) {
    if (o->outcome != Outcome::kNotChecked) {
      if (o->fails() || options.all) line(o->outcome, observation_text(*o));
      continue;
    }
    const auto known =
        std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.first == o->detail; });
    if (known == reasons.end())
      reasons.emplace_back(o->detail, o->name);
    else
      known->second += "; " + o->name;
  }
  for (const auto& [reason, names] : reasons) line(Outcome::kNotChecked, cat(names, ": ", reason));
}

std::string percent(double x) {
  if (std::isnan(x)) return "-";
  return cat(x > 0 ? "+" : "", short_number(x), " %");
}

void held_out_lines(const HeldOutFigures& h, std::ostream& out) {
  out << row("held-out",
             cat("(A - B) / B over ", counted(h.percent.size(), "evaluation"), ": mean size ",
                 short_number(h.mean_size), " %, largest ", short_number(h.largest), " % after update ",
                 h.largest_at, ", sd ", short_number(h.deviation), " %, at the end ", percent(h.last)));
  out << std::string(14, ' ') << block_line(h.percent, 64) << "  from -" << short_number(h.largest)
      << " % to +" << short_number(h.largest) << " %\n";
  out << row("", cat("signed mean ", percent(h.interval.mean),
                     std::isnan(h.interval.low)
                         ? std::string(" (too few evaluations for an interval)")
                         : cat(", 95 % interval ", percent(h.interval.low), " to ", percent(h.interval.high),
                               " (moving blocks of ", h.interval.block, ")")));
  out << row("",
             cat(h.signs.changes, " sign changes of ", h.signs.possible, " possible, lag-1 autocorrelation ",
                 std::isnan(h.autocorrelation) ? "-" : short_number(h.autocorrelation)));
  if (h.signs.probability < 0.05)
    out << row("", cat("that few have probability ", short_number(h.signs.probability),
                       " for independent values: the difference persists, so sign changes do not show that "
                       "it is unbiased"));
}

}  // namespace

std::string block_line(std::span<const double> values, std::size_t width) {
  std::vector<double> cells;
  const std::size_t n = std::min(width, values.size());
  for (std::size_t c = 0; c < n; ++c) {
    const std::size_t begin = c * values.size() / n, end = (c + 1) * values.size() / n;
    double sum = 0.0;
    for (std::size_t i = begin; i < end; ++i) sum += values[i];
    cells.push_back(sum / static_cast<double>(end - begin));
  }
  double largest = 0.0;
  for (const double x : cells) largest = std::fmax(largest, std::abs(x));
  std::string line;
  for (const double x : cells) {
    const double share = largest > 0.0 ? (x / largest + 1) / 2 : 0.5;
    line +=
        std::isfinite(share) ? kBlocks[std::min<std::size_t>(7, static_cast<std::size_t>(share * 8))] : "?";
  }
  return line;
}

void write_view(const Comparison& c, const ViewOptions& options, std::ostream& out) {
  const Painter paint{out, options.colour};
  for (std::size_t i = 0; i < c.files.size(); ++i)
    out << row(i == 0 ? "A" : i == 1 ? "B" : "replicate of A", file_line(c.files[i]));
  out << row("spec", c.same_spec                  ? "equal"
                     : c.spec_differences.empty() ? "not equal, or not there"
                                                  : joined(c.spec_differences, "; "));
  out << row("execution", c.execution_differences.empty() ? "equal" : joined(c.execution_differences, "; "));
  out << row("independent", axes_line(c.axes));
  if (c.same_bits)
    out << row("rounding", "one execution class: equal bits are promised, so all is compared to the bit");
  if (!c.observations.empty()) {
    if (!c.same_bits)
      out << row("rounding", cat("followed over the first ", counted(c.horizon, "update"),
                                 "; after that only what needs no history is judged",
                                 c.files.size() > 2 ? ", and replicates" : ""));
    out << "\n";
    for (int level = 1; level <= 4; ++level) level_line(c, level, paint);
    out << "\n";
    for (int level = 1; level <= 4; ++level) observation_lines(c, level, options, paint);
    out << "\n";
  }
  if (c.figures.held_out) held_out_lines(*c.figures.held_out, out);
  if (const auto& g = c.figures.gradient) {
    std::string ids;
    for (std::size_t i = 0; i < g->sample_ids.size() && i < 8; ++i)
      ids += cat(i ? " " : "", g->sample_ids[i]);
    if (g->sample_ids.size() > 8) ids += " ...";
    out << row("gradient norm",
               cat("|A - B| / B: median ", short_number(g->median), ", 90 % ", short_number(g->q90),
                   ", 99 % ", short_number(g->q99), ", largest ", short_number(g->largest), " at update ",
                   g->largest_at, ids.empty() ? "" : cat(" (samples ", ids, ")")));
  }
  for (const AuditTrend& t : c.figures.audits)
    out << row(cat("audits of ", t.who),
               cat("median d over its threshold from ", short_number(t.first), " to ", short_number(t.last),
                   " in ", counted(t.audits, "audit"), "; Mann-Kendall tau ", short_number(t.trend.tau),
                   ", p ", short_number(t.trend.p)));
  if (!c.observations.empty())
    out << row("time", c.figures.timings.empty()
                           ? cat("updates took ", short_number(c.figures.seconds_a), " s in A, ",
                                 short_number(c.figures.seconds_b), " s in B")
                           : cat("not comparable: ", c.figures.timings));
  using Conclusion = Comparison::Conclusion;
  const char* code = c.conclusion == Conclusion::kPass       ? "32;1"
                     : c.conclusion == Conclusion::kDisagree ? "31;1"
                                                             : "33;1";
  out << "\n" << paint.painted(name_of(c.conclusion), code) << ": " << wrapped(c.why, 0);
}

}  // namespace tandem
