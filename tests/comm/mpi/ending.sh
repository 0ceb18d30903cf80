#!/bin/bash
# ending.sh MPIRUN PROGRAM HOW N CODE TEXT: the job ends within 30 s with exit code CODE ("any": any but 0) and, unless
# TEXT is empty, says TEXT once on stderr.
mpirun=$1 program=$2 how=$3 n_ranks=$4 code=$5 text=$6
fail() { echo "$how on $n_ranks ranks: $1"; exit 1; }

SECONDS=0
output=$(MPI_TEST_LIMIT=60 "$mpirun" "$n_ranks" "$program" "$how" 2>&1)
got=$?
[ "$SECONDS" -lt 30 ] || fail "took $SECONDS s"
[ "$got" != 0 ] || [ "$code" = 0 ] || fail "exit code 0"
[ "$code" = any ] || [ "$got" = "$code" ] || fail "exit code $got, not $code: $output"
echo "$how: $SECONDS s, exit code $got: $output"
[ -z "$text" ] || [ "$(grep -c "$text" <<<"$output")" = 1 ] || fail "not said once: $text. Output: $output"
# What a killed launcher leaves has 10 s.
for _ in {1..50}; do
  left=$(pgrep -f "^$program $how\$") || exit 0
  [ "$how" = launcher ] && sleep 0.2
done
kill -KILL $left
fail "processes are left: $left"
