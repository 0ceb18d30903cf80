#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "src/compare/view.hpp"

namespace tandem {

namespace {

using nlohmann::ordered_json;

// JSON has no NaN and no infinity.
ordered_json number(double x) {
  if (std::isnan(x)) return nullptr;
  if (std::isinf(x)) return x > 0 ? "infinite" : "-infinite";
  return x;
}

ordered_json to_json(const Observation& o) {
  ordered_json json = {{"level", level_of(o.stage)}, {"name", o.name}, {"verdict", name_of(o.outcome)}};
  if (o.outcome != Outcome::kNotChecked) json["class"] = name_of(o.kind);
  if (o.fails()) {
    json["update"] = o.update >= 0 ? ordered_json(o.update) : ordered_json(nullptr);
    json["place"] = o.place;
    json["failed"] = o.failed;
  }
  json["checked"] = o.checked;
  if (!o.detail.empty()) json["detail"] = o.detail;
  if (o.missing) json["hinders_pass"] = true;
  if (!o.unit.empty() && o.checked > 0)
    json["numbers"] = {{"unit", o.unit},
                       {"largest", number(o.largest)},
                       {"seen_from", number(o.finest)},
                       {"seen_to", number(o.coarsest)},
                       {"of_limit", number(o.nearest)}};
  return json;
}

ordered_json to_json(const HeldOutFigures& h) {
  return {{"step", h.step},
          {"percent", h.percent},
          {"mean_size", number(h.mean_size)},
          {"largest", number(h.largest)},
          {"largest_at", h.largest_at},
          {"standard_deviation", number(h.deviation)},
          {"last", number(h.last)},
          {"lag1_autocorrelation", number(h.autocorrelation)},
          {"sign_changes",
           {{"changes", h.signs.changes},
            {"possible", h.signs.possible},
            {"probability_if_independent", number(h.signs.probability)}}},
          {"signed_mean",
           {{"mean", number(h.interval.mean)},
            {"low", number(h.interval.low)},
            {"high", number(h.interval.high)},
            {"level", 0.95},
            {"block", h.interval.block}}}};
}

ordered_json to_json(const Figures& f) {
  ordered_json json;
  json["held_out"] = f.held_out ? to_json(*f.held_out) : ordered_json(nullptr);
  json["gradient_norm"] = nullptr;
  if (f.gradient)
    json["gradient_norm"] = {{"median", number(f.gradient->median)}, {"q90", number(f.gradient->q90)},
                             {"q99", number(f.gradient->q99)},       {"largest", number(f.gradient->largest)},
                             {"largest_at", f.gradient->largest_at}, {"sample_ids", f.gradient->sample_ids}};
  json["audits"] = ordered_json::array();
  for (const AuditTrend& t : f.audits)
    json["audits"].push_back({{"of", t.who},
                              {"audits", t.audits},
                              {"first", number(t.first)},
                              {"last", number(t.last)},
                              {"tau", number(t.trend.tau)},
                              {"p", number(t.trend.p)}});
  json["timings"] = {{"comparable", f.timings.empty()},
                     {"why_not", f.timings},
                     {"update_seconds", {number(f.seconds_a), number(f.seconds_b)}}};
  return json;
}

}  // namespace

void write_json(const Comparison& c, std::ostream& out) {
  ordered_json json;
  json["verdict"] = name_of(c.conclusion);
  json["why"] = c.why;
  json["first_divergence"] =
      c.first >= 0 ? to_json(c.observations[static_cast<std::size_t>(c.first)]) : ordered_json(nullptr);
  json["files"] = ordered_json::array();
  for (const FileFacts& f : c.files)
    json["files"].push_back({{"file", f.file},
                             {"stack", f.stack},
                             {"precision", f.precision},
                             {"ranks", f.ranks},
                             {"threads", f.threads},
                             {"hosts", f.hosts},
                             {"updates", f.updates},
                             {"planned", f.planned >= 0 ? ordered_json(f.planned) : ordered_json(nullptr)},
                             {"complete", f.complete}});
  json["spec"] = {{"equal", c.same_spec}, {"differences", c.spec_differences}};
  json["execution"] = {{"differences", c.execution_differences}, {"equal_bits_promised", c.same_bits}};
  json["axes"] = ordered_json::array();
  for (const Axis& a : c.axes)
    json["axes"].push_back({{"name", a.name}, {"a", a.a}, {"b", a.b}, {"shared", a.shared()}});
  json["rounding_horizon"] = c.horizon;
  json["observations"] = ordered_json::array();
  for (const Observation& o : c.observations) json["observations"].push_back(to_json(o));
  json["figures"] = to_json(c.figures);
  // Text of a foreign file may be no UTF-8.
  out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

}  // namespace tandem
