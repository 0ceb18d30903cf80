#!/usr/bin/env bash
# The program that is built for GPUs, on a machine without their driver: `gpu = on` is one line and exit code 4,
# `gpu = auto` computes on the CPU and says why. without_driver.sh PROGRAM CONFIGS
set -euo pipefail
program=$1 configs=$2
if [[ -e /dev/nvidiactl ]]; then
  echo "skipped: this machine has a driver"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$program" init-model --seed 1 --head-dim 64 --out "$work/model" >/dev/null
train() {
  "$program" train --model "$work/model" --data.train "$configs/tiny.jsonl" --data.max_tokens 128 \
    --train.updates 1 --optim.warmup 0 --run.out "$work/run" "$@" >"$work/log" 2>&1
}
code=0
train --gpu on || code=$?
cat "$work/log"
[[ $code == 4 ]]
grep -c '^tandem: ' "$work/log" | grep -qx 1
grep -q '^tandem: gpu = on: no NVIDIA driver' "$work/log"
train
grep -q 'computing on the CPU: no NVIDIA driver' "$work/log"
"$program" --version
