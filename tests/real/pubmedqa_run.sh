#!/bin/bash
# pubmedqa_run.sh [WORK_FOLDER]: a real run on real rows: 200 PubMedQA rows as chat, Qwen3's real tokenizer, a small random
# Qwen3 with the real vocabulary, 2 ranks, 30 updates of 16 samples. Says losses, tokens/s and peak memory per node.
# Needs the folder of real inputs (TANDEM_DATA) and a build in build/release.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
data=${TANDEM_DATA:-$root/../shared/data}
[ -d "$data/qwen3" ] || { echo "skipped: no folder of real inputs at $data (TANDEM_DATA)"; exit 77; }
work=${1:-$(mktemp -d)}
mkdir -p "$work"
tandem=$root/build/release/tandem

python3 "$root/tests/real/pubmedqa_to_chat.py" "$data/pubmedqa/ori_pqal.json" "$work/train.jsonl" --rows 160
python3 "$root/tests/real/pubmedqa_to_chat.py" "$data/pubmedqa/ori_pqal.json" "$work/held_out.jsonl" --rows 40 --skip 160
[ -d "$work/model" ] || "$tandem" init-model --preset tiny --tokenizer "$data/qwen3" --hidden 256 --layers 6 --heads 8 \
  --kv-heads 4 --head-dim 64 --intermediate 768 --out "$work/model"
"$root/launch/tandem-mpirun" -n 2 "$tandem" train --model "$work/model" --data "$work/train.jsonl" \
  --data.held_out "$work/held_out.jsonl" --run.out "$work/run" --overwrite --train.updates 30 --eval.every 10 --optim.lr 0.002
"$tandem" inspect "$work/run"
