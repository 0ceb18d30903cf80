#!/usr/bin/env bash
# How often `tandem compare` raises a false alarm: N pairs (default 200) of clean small runs that differ in ranks, threads and
# micro-batches, native against native and native against the mirror's free run; specs differ from seed to seed. Prints how often
# each observation failed and how near it came to its limit. Exit code 1 where anything failed.
#
#   tests/soak/clean_pairs.sh TANDEM [N]
set -euo pipefail
tandem=$(realpath "$1")
pairs=${2:-200}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMP_WAIT_POLICY=passive
"$tandem" init-model --hidden 48 --layers 2 --heads 4 --kv-heads 2 --head-dim 12 --intermediate 72 --out model >/dev/null
head -12 "$root/configs/tiny.jsonl" >train.jsonl
head -4 "$root/configs/tiny_held_out.jsonl" >held_out.jsonl

# run OUT RANKS THREADS MICRO OPTIONS...
run() {
  local out=$1 ranks=$2 threads=$3 micro=$4
  shift 4
  local launch=()
  [[ $ranks == 1 ]] || launch=("$root/launch/tandem-mpirun" -n "$ranks")
  "${launch[@]}" "$tandem" train --model model --data train.jsonl --data.held_out held_out.jsonl --data.max_tokens 320 \
    --run.out "$out" --threads "$threads" --batch.micro "$micro" --mirror.calibration thresholds "$@" >"$out.log" 2>&1 ||
    { cat "$out.log" >&2; exit 1; }
}

rates=(0.01 0.001 0.0002 0.03)
ranks_of=(2 4 8)
made=0
for ((seed = 0; made < pairs; ++seed)); do
  spec=(--seed "$seed" --optim.lr "${rates[seed % 4]}" --lora.rank "${ranks_of[seed % 3]}" --batch.global $((3 + seed % 4))
    --optim.warmup $((seed % 3)) --train.updates $((8 + seed % 13)) --eval.every $((1 + seed % 3)) --observe.every 1
    --snapshot.every 2)
  run a "$((1 + seed % 2))" "$((1 + seed / 2 % 2))" "$((1 + seed % 4))" "${spec[@]}" --mirror.every 4 --mirror.mode both
  run b "$((1 + (seed + 1) % 2))" 1 "$((1 + (seed + 1) % 4))" "${spec[@]}"
  run c 1 2 "$((1 + seed % 4))" "${spec[@]}" # the same bits as a
  for pair in "a/native.h5 a/mirror.h5" "a/native.h5 b/native.h5" "b/native.h5 a/mirror.h5" "a/native.h5 c/native.h5"; do
    ((made < pairs)) || break
    # shellcheck disable=SC2086  # two words
    "$tandem" compare --json $pair >"pair$made.json" || true
    made=$((made + 1))
  done
  rm -rf a b c
done

/usr/bin/python3 - "$made" <<'PY'
import collections, glob, json, sys
alarms, checked, ratio, verdicts = collections.Counter(), collections.Counter(), {}, collections.Counter()
for name in glob.glob("pair*.json"):
    found = json.load(open(name))
    verdicts[found["verdict"]] += 1
    if found["verdict"] != "PASS":
        print(name, found["why"])
    for o in found["observations"]:
        key = o["name"][3:] if o["name"][:3] in ("A: ", "B: ") else o["name"]
        if o["verdict"] == "NOT CHECKED":
            continue
        checked[key] += 1
        alarms[key] += o["verdict"] != "PASS"
        numbers = o.get("numbers")
        if numbers:
            ratio[key] = max(ratio.get(key, 0.0), numbers["of_limit"])
print("| observation | pairs | false alarms | nearest to its limit |\n|---|---|---|---|")
for key in sorted(checked):
    print(f"| {key} | {checked[key]} | {alarms[key]} | {ratio[key]:.2g} |" if key in ratio else f"| {key} | {checked[key]} | {alarms[key]} | exact |")
print(dict(verdicts), "of", sys.argv[1], "pairs")
sys.exit(sum(alarms.values()) > 0 or verdicts["PASS"] != int(sys.argv[1]))
PY
