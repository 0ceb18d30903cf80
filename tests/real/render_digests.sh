#!/usr/bin/env bash
# Every sample's digest, Tandem against Hugging Face tokenizers and Jinja2, with the real tokenizers and templates:
# conversations of all shapes, PubMedQA's rows and any prepared files.
#
#   python3 -m venv VENV && VENV/bin/pip install tokenizers jinja2 h5py numpy
#   PYTHON=VENV/bin/python tests/real/render_digests.sh TANDEM DATA [ROWS.jsonl ...]
set -eu
[[ $# -ge 2 ]] || { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2; }
tandem=$1 data=$2
shift 2
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$here/pubmedqa_to_chat.py" "$data/pubmedqa/ori_pqal.json" "$folder/pubmedqa.jsonl" --rows 1000
files=(--data "$folder/pubmedqa.jsonl")
for file in "$@"; do files+=(--data "$file"); done
"$python" "$here/../peers/render_test.py" "$tandem" --model "$data/qwen3" --model "$data/smollm2" --rows "${ROWS:-5000}" "${files[@]}"
