#!/usr/bin/env bash
# leaves_nothing.sh TWO_NODES...: kills the throw-away cluster while a job runs; no process and no file of it stays.
set -uo pipefail

folder=$(mktemp -d)
mark=tandem-leaves-nothing-$$
trap 'rm -rf -- "$folder"' EXIT
# The job's processes and the cluster's are those that have the mark in their environment.
TANDEM_MARK=$mark "$@" bash -c "srun -N2 -n2 sleep 1000 & sleep 3; squeue -h -o %T; touch '$folder/runs'; wait" >"$folder/out" 2>&1 &
cluster=$!
marked() { grep -lsz "^TANDEM_MARK=$mark\$" /proc/[0-9]*/environ | wc -l; }
for _ in {1..400}; do
  [[ -e $folder/runs ]] && break
  kill -0 "$cluster" 2>/dev/null || { wait "$cluster"; code=$?; cat "$folder/out"; exit "$code"; }
  sleep 0.1
done
before=$(marked)
grep -q RUNNING "$folder/out" || { cat "$folder/out"; echo "no job ran"; exit 1; }
kill -9 "$cluster"
for _ in {1..50}; do
  [[ $(marked) == 0 ]] && break
  sleep 0.1
done
after=$(marked)
echo "processes: $before before, $after after"
[[ $before -gt 5 && $after == 0 ]] || exit 1
[[ ! -e /run/tandem-slurm ]] || { echo "/run/tandem-slurm is still there"; exit 1; }
