// The page, the table and the writer say the same of a trajectory file.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include "io/format/table.hpp"
#include "tests/support/temp_folder.hpp"

namespace tandem {
namespace {

// "/update/{loss, seconds?}" to "update/loss" (false) and "update/seconds" (true: optional).
std::map<std::string, bool> paths_of(const std::string& cell) {
  std::map<std::string, bool> paths;
  const std::size_t open = cell.find('{');
  const std::string stem = cell.substr(1, open == cell.npos ? open : open - 1);
  const auto add = [&](std::string path) {
    const bool optional = path.ends_with('?');
    if (optional) path.pop_back();
    paths[path] = optional;
  };
  if (open == cell.npos) {
    add(stem);
    return paths;
  }
  std::istringstream names(cell.substr(open + 1, cell.find('}') - open - 1));
  for (std::string name; std::getline(names, name, ',');) {
    name.erase(0, name.find_first_not_of(' '));
    add(stem + name);
  }
  return paths;
}

// The cells of a row of a table, "| a | b |".
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t at = 2; line.starts_with("| ") && at < line.size();) {
    const std::size_t bar = line.find('|', at);
    if (bar == line.npos) break;
    cells.push_back(line.substr(at, bar > at ? bar - at - 1 : 0));
    at = std::min(bar + 2, line.size());
  }
  return cells;
}

TEST(FormatTable, SaysWhatThePageSays) {
  // What the page gives a shape and type to.
  std::map<std::string, std::pair<std::string, bool>> page, table;
  std::istringstream lines(support::read_text(TANDEM_SOURCE_DIR "/io/FORMAT.md"));
  for (std::string line; std::getline(lines, line);)
    if (const auto cells = cells_of(line); cells.size() > 2 && cells[0].starts_with('/') &&
                                           cells[0].find("(attributes)") == std::string::npos &&
                                           cells[0].find('<') == std::string::npos)
      for (const auto& [path, optional] : paths_of(cells[0])) {
        EXPECT_FALSE(page.contains(path)) << path << " stands on the page twice";
        page[path] = {cells[1], optional};
      }
  for (const format::Dataset& dataset : format::datasets())
    table[dataset.path()] = {dataset.shape(), dataset.optional};
  EXPECT_EQ(page, table);
  EXPECT_GT(table.size(), 60u);
}

TEST(FormatTable, NamesTheEnumerationsAsThePageDoes) {
  const std::string page = support::read_text(TANDEM_SOURCE_DIR "/io/FORMAT.md");
  EXPECT_NE(page.find('"' + format::scope_names() + '"'), page.npos);
  EXPECT_NE(page.find('"' + format::verdict_names() + '"'), page.npos);
}

TEST(FormatTable, IsOfDatasetsOnceEachWithUnitDescriptionAndLabels) {
  std::map<std::string, int> seen;
  for (const format::Dataset& dataset : format::datasets()) {
    EXPECT_EQ(++seen[dataset.path()], 1) << dataset.path();
    EXPECT_EQ(format::find(dataset.path()), &dataset);
    EXPECT_FALSE(std::string(dataset.unit).empty() || std::string(dataset.description).empty())
        << dataset.path();
    for (const format::Extent& extent : dataset.extents) {
      EXPECT_FALSE(std::string(extent.label).empty()) << dataset.path();
      const bool number = std::isdigit(static_cast<unsigned char>(extent.symbol[0])) != 0;
      EXPECT_EQ(extent.fixed, number ? std::atoll(extent.symbol) : 0) << dataset.path();
    }
  }
  EXPECT_EQ(format::find("update/nothing"), nullptr);
}

}  // namespace
}  // namespace tandem
