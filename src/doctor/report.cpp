#include "src/doctor/report.hpp"

#include <algorithm>
#include <ostream>

#include "src/base/text.hpp"

namespace tandem {

namespace {

const char* word(Finding::State state) {
  switch (state) {
    case Finding::State::kOk:
      return "ok    ";
    case Finding::State::kNote:
      return "note  ";
    case Finding::State::kFail:
      return "FAIL  ";
  }
  return "";
}

// As text that travels between ranks; "" for none.
std::string encode(const std::optional<Finding>& finding) {
  if (!finding) return "";
  return cat(static_cast<int>(finding->state), static_cast<int>(finding->kind), finding->text);
}

Finding decode(const std::string& text) {
  return {static_cast<Finding::State>(text[0] - '0'), text.substr(2), static_cast<ErrorKind>(text[1] - '0')};
}

}  // namespace

Report::Report(Communicator& comm, const std::string& host, std::ostream& out)
    : comm_(comm), hosts_(comm.all_gather_text(host)), out_(out) {}

std::vector<Report::Group> Report::gather(const std::optional<Finding>& mine) {
  std::vector<Group> groups;
  std::vector<std::string> texts;  // of the groups
  const std::vector<std::string> all = comm_.all_gather_text(encode(mine));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const auto at = std::find(texts.begin(), texts.end(), all[rank]);
    const auto index = static_cast<std::size_t>(at - texts.begin());
    if (at == texts.end()) {
      texts.push_back(all[rank]);
      groups.push_back({decode(all[rank]), {}});
    }
    groups[index].ranks.push_back(static_cast<int>(rank));
  }
  return groups;
}

void Report::add(const std::string& name, const std::optional<Finding>& mine) { print(name, gather(mine)); }

void Report::add_equal(const std::string& name, const Finding& mine, const std::string& what_to_do,
                       bool may_differ) {
  std::vector<Group> groups = gather(mine);
  if (groups.size() > 1)
    for (Group& group : groups)
      if (group.finding.state == Finding::State::kOk) {
        group.finding.state = may_differ ? Finding::State::kNote : Finding::State::kFail;
        group.finding.text += cat(": differs between ranks: ", what_to_do);
      }
  print(name, groups);
}

std::string Report::who(const std::vector<int>& ranks) const {
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    const std::string& host = hosts_[static_cast<std::size_t>(rank)];
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  constexpr std::size_t kShown = 8;
  const std::size_t n = hosts.size();
  if (n > kShown) hosts.resize(kShown);
  return cat(ranks.size() == 1 ? "rank " : "ranks ", ranges_text(ranks), " on ", joined(hosts),
             n > kShown ? cat(" and ", n - kShown, " more") : "", ": ");
}

void Report::print(const std::string& name, const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    if (exit_code_ == 0 && group.finding.state == Finding::State::kFail)
      exit_code_ = static_cast<int>(group.finding.kind);
    if (comm_.rank() != 0) continue;
    std::string title = name;
    title.resize(std::max<std::size_t>(title.size() + 1, 12), ' ');
    const bool all = group.ranks.size() == hosts_.size();
    out_ << word(group.finding.state) << title
         << printable_line((all ? "" : who(group.ranks)) + group.finding.text) << '\n'
         << std::flush;
  }
}

}  // namespace tandem
