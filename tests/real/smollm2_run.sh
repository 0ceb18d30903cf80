#!/bin/bash
# smollm2_run.sh [UPDATES [CHOICES]]: a real, trained model on real rows. Makes the inputs of
# configs/smollm2-135m.cfg in runs/smollm2 (downloads the model's weights, see smollm2.sh), trains on 2 ranks, and
# says what it did to the model: the untrained held-out loss beside PyTorch's, greedy answers and multiple-choice
# accuracy before and after.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
data=$(realpath -m "${TANDEM_DATA:-$root/../shared/data}")
[ -d "$data/smollm2" ] || { echo "skipped: no folder of real inputs at $data (TANDEM_DATA)"; exit 77; }
cd "$root"
updates=${1:-60} choices=${2:-400}
say() { printf '\n== %s\n' "$*"; }
work=runs/smollm2 tandem=build/release/tandem reference=${TANDEM_PYTHON:-/usr/bin/python3}
[ -e "$work/model/model.safetensors" ] || TANDEM_DATA=$data tests/real/smollm2.sh "$work"
python3 tests/real/pubmedqa_to_chat.py "$data/pubmedqa/ori_pqal.json" "$work/train.jsonl" --rows 940
python3 tests/real/pubmedqa_to_chat.py "$data/pubmedqa/ori_pqal.json" "$work/held_out.jsonl" --rows 60 --skip 940

launch/tandem-mpirun -n 2 -- "$tandem" train --config configs/smollm2-135m.cfg --overwrite --train.updates "$updates"
"$tandem" inspect "$work/run"

say "the untrained loss in PyTorch"
"$tandem" render --model "$work/model" --data.max_tokens 768 "$work/held_out.jsonl" > "$work/held_out_ids.jsonl"
"$reference" tests/real/held_out_loss.py "$work/model" "$work/held_out_ids.jsonl"

head -n 3 "$work/held_out.jsonl" > "$work/three.jsonl"
say "three held-out questions, before"
"$tandem" generate --model "$work/model" --max-tokens 96 < "$work/three.jsonl"
say "after"
"$tandem" generate --model "$work/model" --adapter "$work/run/adapter" --max-tokens 96 < "$work/three.jsonl"

say "MedMCQA: $choices questions of the development set, before and after"
python3 tests/real/medmcqa_to_choices.py "$data/medmcqa/dev.json" "$work/choices.jsonl" --rows "$choices"
"$tandem" eval --model "$work/model" --adapter "$work/run/adapter" --data "$work/choices.jsonl" --choices
