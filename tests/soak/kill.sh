#!/usr/bin/env bash
# Kills one rank of N runs (default 200), drawn at random, at random instants, resumes each on 1 to 3 ranks and holds it to the unbroken run; then kills a
# run before each call of a checkpoint's saving that changes files (R41). Prints where the kills fell. What failed is printed as arguments that draw it again:
# tests/kill/kill_one_rank.py. About 5 s a kill; needs h5dump and h5py.
#
#   tests/soak/kill.sh [N [SEED]]
set -euo pipefail
kills=${1:-200} seed=${2:-$RANDOM}
root=$(cd "$(dirname "$0")/../.." && pwd)
tandem=${TANDEM:-$root/build/release/tandem}
python=/usr/bin/python3
records=$(mktemp)
trap 'rm -f "$records"' EXIT
chunk=20
for ((first = 0; first < kills; first += chunk)); do
  "$python" "$root/tests/kill/kill_one_rank.py" --tandem "$tandem" --mpirun "$root/tests/support/mpirun.sh" --seed "$seed" --first "$first" \
    --kills $((kills - first < chunk ? kills - first : chunk)) --records "$records" | grep '^seed'
done
"$python" "$root/tests/kill/kill_one_rank.py" --table "$records"
"$python" "$root/tests/kill/kill_each_call.py" --tandem "$tandem" --library "$root/build/release/tests/kill/libkill_at_call.so"
