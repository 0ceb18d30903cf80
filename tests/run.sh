#!/usr/bin/env bash
# Installs what the tests need, builds everything and runs all tests; ends with ctest's summary. Can be run again and
# from anywhere. Arguments go to ctest: tests/run.sh -R Tokenizer
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=launch/packages.sh
source launch/packages.sh

require_packages "${tandem_packages[@]}" "${tandem_test_packages[@]}" || exit $?
# Hugging Face's tokenizers, for the test against them; where they cannot be had, that test is skipped and says so.
peers=$root/build/peers
if ! "$peers/bin/python" -c 'import tokenizers, jinja2, h5py, numpy' 2>/dev/null; then
  { /usr/bin/python3 -m venv "$peers" &&
    "$peers/bin/python" -m pip install --quiet --timeout 20 --retries 2 tokenizers jinja2 h5py numpy; } ||
    echo "no Python with tokenizers, jinja2, h5py and numpy in $peers: a test will be skipped" >&2
fi
[[ -x $peers/bin/python ]] || peers=/usr
cmake --preset release -DTANDEM_TESTS=ON -DTANDEM_PEER_PYTHON="$peers/bin/python3"
cmake --build build/release
ctest --preset release --parallel "$(nproc)" "$@"
