#!/usr/bin/env bash
# Slow phases planted in runs of two ranks on a quiet machine: rank 1 gets a third of its core (a control group's CPU
# quota, where one can be made), or shares its core with three busy processes; N runs (default 3) with nothing planted
# are controls. Prints what each run named. Exit code 1 where a control named something, or a planted run named another
# rank, or nothing.
#
#   tests/soak/slow_phases.sh TANDEM [N]
set -euo pipefail
tandem=$(realpath "$1")
controls=${2:-3}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
group=/sys/fs/cgroup/cpu/tandem-soak-$$
busy=()
launcher=
cleanup() {
  [[ -z $launcher ]] || kill -KILL "$launcher" 2>/dev/null || true
  ((${#busy[@]} == 0)) || kill "${busy[@]}" 2>/dev/null || true
  [[ ! -d $group ]] || { sleep 1; rmdir "$group" 2>/dev/null || true; }
  rm -rf "$folder"
}
trap cleanup EXIT
cd "$folder"
"$tandem" init-model --preset tiny --seed 1 --out model >/dev/null
updates=800
failed=0

# start OUT: a run in the background; sets `launcher`.
start() {
  "$root/launch/tandem-mpirun" -n 2 "$tandem" train --config "$root/configs/tiny.cfg" --model model --batch.global 8 \
    --train.updates $updates --eval.every $updates --run.out "$1" --log.every 1 >"$1.log" 2>&1 &
  launcher=$!
}
# reach OUT UPDATE: waits for that line of the log.
reach() {
  until grep -q "^update $2/" "$1.log"; do
    kill -0 "$launcher" 2>/dev/null || { cat "$1.log" >&2; exit 1; }
    sleep 0.05
  done
}
# pid of rank 1
rank_1() {
  local pid
  for pid in $(pgrep -f "train --config .* --run.out $1 "); do
    ! tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx OMPI_COMM_WORLD_RANK=1 || { echo "$pid"; return; }
  done
}
# named OUT PATTERN: what was named; without PATTERN nothing may be.
named() {
  wait "$launcher" || { cat "$1.log" >&2; exit 1; }
  local seconds lines
  seconds=$(sed -n 's/^\([0-9.]* s\) of updates.*/\1/p' "$1.log")
  lines=$(grep -E '^warning: .* times as slow' "$1.log" || true)
  echo "$1 ($seconds of updates): ${lines:-nothing named}"
  if [[ -z ${2:-} ]]; then
    [[ -z $lines ]] || failed=1
  else
    grep -q "$2" <<<"$lines" && ! grep -q 'rank 0 on [^:]*: gradient' <<<"$lines" || failed=1
  fi
  local of_file
  of_file=$("$tandem" inspect "$1" | grep -c '^ *slow ' || true)
  [[ $of_file == "$(grep -c . <<<"$lines" || true)" ]] || { echo "$1: the trajectory has $of_file"; failed=1; }
}

for ((i = 1; i <= controls; ++i)); do
  start "control-$i"
  named "control-$i"
done

if mkdir "$group" 2>/dev/null && echo 33000 >"$group/cpu.cfs_quota_us" 2>/dev/null; then
  start quota
  reach quota 500
  rank_1 quota >"$group/cgroup.procs"
  named quota 'rank 1 on .*CPU time ran out'
else
  echo "quota: skipped: no control group can be made here"
fi

start load
reach load 500
cpu=$(sed -n 's/^rank 1 on .* on CPUs\{0,1\} \([0-9]*\).*/\1/p' load.log)
for _ in 1 2 3; do
  taskset -c "$cpu" bash -c 'while :; do :; done' &
  busy+=($!)
done
named load 'rank 1 on '
exit $failed
