#!/usr/bin/env bash
# Longer runs on emulated GPUs than the tests make: both kinds of model, every precision, 1 to 3 ranks with a GPU each and
# 2 that share one, audited by the mirror. Runs of one precision must have the same bits; f32 must agree with the CPU's.
# emulated_gpus.sh [UPDATES (100)] [BUILD (build/release)]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
updates=${1:-100} build=${2:-build/release}
program=$build/tests/emulation/tandem_emulated
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# train NAME RANKS GPUS OPTIONS...
train() {
  local name=$1 ranks=$2 gpus=$3
  shift 3
  TANDEM_EMULATED_GPUS=$gpus tests/support/mpirun.sh "$ranks" "$program" train --model "$work/$type" \
    --data.train configs/tiny.jsonl --data.held_out configs/tiny_held_out.jsonl --data.max_tokens 128 \
    --batch.global 4 --batch.micro 2 --lora.rank 4 --lora.dropout 0.1 --optim.lr 0.005 --observe.probe 32 \
    --train.updates "$updates" --eval.every "$updates" --mirror.every $((updates / 2)) --mirror.on_mismatch stop \
    --threads 1 --run.out "$work/$name" "$@" >"$work/log" 2>&1 || {
    cat "$work/log"
    failed=1
  }
}

for type in qwen3 llama; do
  "$build/tandem" init-model --seed 3 --type "$type" --head-dim 64 --out "$work/$type" >/dev/null
  for precision in f32 tf32 bf16; do
    name=$type-$precision
    for ranks in 1 2 3; do train "$name-$ranks" $ranks $ranks --gpu on --precision $precision; done
    train "$name-shared" 2 1 --gpu shared --precision $precision
    for other in 2 3 shared; do
      if ! cmp -s "$work/$name-1/adapter/adapter_model.safetensors" "$work/$name-$other/adapter/adapter_model.safetensors"; then
        echo "$name: 1 rank and $other: other bits"
        failed=1
      fi
    done
    grep -h 'held-out loss .* before' "$work/log" | sed "s/^/$name: /"
  done
  train "$type-cpu" 1 1 --gpu off
  "$build/tandem" compare "$work/$type-cpu" "$work/$type-f32-1" >"$work/log" 2>&1 || {
    cat "$work/log"
    failed=1
  }
  grep -A1 '^held-out' "$work/log" | sed "s/^/$type, CPU and GPU in f32: /"
done
((failed)) && echo "FAILED" || echo "all of it has the same bits, and agrees"
exit $failed
