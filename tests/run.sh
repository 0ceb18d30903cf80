#!/usr/bin/env bash
# Installs what the tests need, builds everything and runs all tests; ends with ctest's summary. Can be run again and
# from anywhere. Arguments go to ctest: tests/run.sh -R Tokenizer
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=launch/packages.sh
source launch/packages.sh

require_packages "${tandem_packages[@]}" "${tandem_test_packages[@]}" || exit $?
cmake --preset release -DTANDEM_TESTS=ON
cmake --build build/release
ctest --preset release --parallel "$(nproc)" "$@"
