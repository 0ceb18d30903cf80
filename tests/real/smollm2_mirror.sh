#!/bin/bash
# smollm2_mirror.sh [UPDATES]: native and mirror on a real, trained model and real rows. SmolLM2-135M-Instruct learns
# PubMedQA's answers (question alone in the prompt, at most 256 tokens) with 4 samples an update and 32 held-out
# ones; every 6th update is audited, and beside it the mirror trains freely. About 40 minutes on two cores.
# Prints what both say of the untrained model, the audits, and how far the two trajectories part.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
data=$(realpath -m "${TANDEM_DATA:-$root/../shared/data}")
[ -d "$data/smollm2" ] || { echo "skipped: no folder of real inputs at $data (TANDEM_DATA)"; exit 77; }
cd "$root"
updates=${1:-60}
work=runs/smollm2 tandem=${TANDEM:-build/release/tandem} python=${TANDEM_PYTHON:-/usr/bin/python3}
[ -e "$work/model/model.safetensors" ] || TANDEM_DATA=$data tests/real/smollm2.sh "$work"
python3 tests/real/pubmedqa_to_chat.py "$data/pubmedqa/ori_pqal.json" "$work/short.jsonl" --rows 940 --question-only
python3 tests/real/pubmedqa_to_chat.py "$data/pubmedqa/ori_pqal.json" "$work/short_held_out.jsonl" --rows 32 --skip 940 --question-only

"$tandem" train --config configs/smollm2-135m.cfg --overwrite --run.out "$work/mirrored" \
  --data "$work/short.jsonl" --data.held_out "$work/short_held_out.jsonl" --data.max_tokens 256 --data.truncate drop \
  --batch.global 4 --batch.micro 4 --train.updates "$updates" --eval.every $(((updates + 11) / 12)) \
  --observe.probe 64 --mirror.every 6 --mirror.mode both
"$python" tests/real/mirrored_figures.py "$work/mirrored"
