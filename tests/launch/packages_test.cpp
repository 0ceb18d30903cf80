// launch/packages.sh, with stand-ins for the system's own programs.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/shell.hpp"

namespace tandem {
namespace {

using support::run_shell;
using support::ShellResult;
using support::TempFolder;

// Of the packages asked for, `here` is installed; apt-get works only after its lists are fresh.
constexpr const char* kStandIns = R"(
source ')" TANDEM_SOURCE_DIR R"(/launch/packages.sh'
dpkg-query() { [[ ${@: -1} == here ]] && echo installed; }
env() { shift; "$@"; }
apt-get() { echo "apt-get $*" >>calls; [[ $1 == update ]] && touch fresh; [[ -e fresh ]]; }
)";

TEST(Packages, ThatAreAllHereNeedNothing) {
  const TempFolder folder;
  const ShellResult result = run_shell(folder, std::string(kStandIns) + "require_packages here");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out + result.err, "");
  EXPECT_FALSE(std::filesystem::exists(folder / "calls"));
}

TEST(Packages, AreInstalledByRootAfterFetchingStaleLists) {
  const TempFolder folder;
  const ShellResult result =
      run_shell(folder, std::string(kStandIns) + "id() { echo 0; }; require_packages here a b");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "installing a b\n");
  EXPECT_EQ(support::read_text(folder / "calls"),
            "apt-get install -y -qq --no-install-recommends a b\n"
            "apt-get update -qq\n"
            "apt-get install -y -qq --no-install-recommends a b\n");
}

TEST(Packages, AreInstalledThroughSudo) {
  const TempFolder folder;
  const ShellResult result = run_shell(folder, std::string(kStandIns) +
                                                   "touch fresh; id() { echo 1000; }; sudo() { [[ $1 == -n "
                                                   "]] && shift; \"$@\"; }; require_packages a </dev/null");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(support::read_text(folder / "calls"), "apt-get install -y -qq --no-install-recommends a\n");
}

TEST(Packages, ThatCannotBeInstalledAreNamedInOneLine) {
  const TempFolder folder;
  const ShellResult result = run_shell(
      folder, std::string(kStandIns) +
                  "id() { echo 1000; }; sudo() { return 1; }; require_packages a here b </dev/null");
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.err, "missing packages, to be installed as root: apt-get install a b\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "calls"));
}

}  // namespace
}  // namespace tandem
