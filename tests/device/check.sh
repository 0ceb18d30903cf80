#!/bin/sh
# Builds Tandem's CUDA part on a machine with a GPU and checks it there, in one command:
#
#     tests/device/check.sh [--quick]
#
# Needs CUDA's toolkit (12 or newer), CMake, a C++20 compiler; no network. Results go to $OUT, or to the build folder
# (BUILD, default: build/device). --quick: no compute-sanitizer, no PyTorch, two updates. Ends with 0 where all that ran
# was right, 1 where something was not, 4 where there is no GPU (everything is built then).
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-$root/build/device}
out=${OUT:-$build}
quick=false
for word; do
  case $word in
    --quick) quick=true ;;
    *) echo "unknown argument $word; see the head of $0"; exit 2 ;;
  esac
done
mkdir -p "$build" "$out" || exit 2
log=$out/check.log
: > "$log"
: > "$out/rows"
wrong=0
skipped=""
begun=$(date +%s)

say() { echo "$*" | tee -a "$log"; }
skip() { say "skipped: $*"; skipped="$skipped
- skipped: $*"; }
# Seconds that all phases have together, the build included.
whole=470
# phase NAME SECONDS COMMAND...: its output goes to $out/NAME.log and here.
phase() {
  name=$1 limit=$2
  shift 2
  left=$((whole - $(date +%s) + begun))
  if [ "$left" -lt 10 ]; then
    skip "$name: no time is left"
    return 0
  fi
  [ "$limit" -le "$left" ] || limit=$left
  say ""
  say "== $name (at most $limit s)"
  start=$(date +%s)
  timeout -k 10 "$limit" "$@" > "$out/$name.log" 2>&1
  status=$?
  tail -n 200 "$out/$name.log" | tee -a "$log"
  took=$(($(date +%s) - start))
  case $status in
    0) result=right ;;
    124 | 137) result="NOT DONE in $limit s" ;;
    *) result="WRONG (status $status)" ;;
  esac
  [ "$result" = right ] || wrong=1
  echo "| $name | $result | $took s |" >> "$out/phases"
  say "== $name: $result, $took s"
  return $status
}
: > "$out/phases"

# ---- build ----
for folder in ${CUDA_HOME:-} /usr/local/cuda; do
  if ! command -v nvcc > /dev/null && [ -x "$folder/bin/nvcc" ]; then PATH=$folder/bin:$PATH; fi
done
# Of the device that is here, else Hopper's.
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -d '. ')
case $architecture in '' | *[!0-9]*) architecture=90 ;; esac
generator=
if command -v ninja > /dev/null; then generator="-G Ninja"; fi
build_all() {
  # shellcheck disable=SC2086
  cmake -S "$root/tests/device" -B "$build" $generator -DCMAKE_CUDA_ARCHITECTURES="$architecture-real" &&
    cmake --build "$build" -j "${JOBS:-$(nproc)}"
}
if ! build_all > "$out/build.log" 2>&1; then
  grep -n -E "error|Error" "$out/build.log" | head -n 20
  tail -n 5 "$out/build.log"
  say "the build failed: $out/build.log"
  exit 1
fi
say "built for sm_$architecture in $(($(date +%s) - begun)) s: $(nvcc --version | grep -o 'release [0-9.]*')"
if ! "$build/device_tests" none > "$out/gpu.log" 2>&1 && grep -q '^no GPU' "$out/gpu.log"; then
  cat "$out/gpu.log"
  exit 4
fi
say "$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2> /dev/null || head -n 1 "$out/gpu.log")"

# ---- right? ----
phase kernels 90 "$build/device_tests" Row Product Rounding Attention Emulated
phase update 90 "$build/device_tests" Update

# ---- fast? ----
updates=4
if $quick; then updates=2; fi
floors=
if command -v python3 > /dev/null && floors=$(python3 "$root/tests/bench/napkin.py" 2> /dev/null); then
  say "$(echo "$floors" | tail -n 1)"
else
  skip "shares of the floor: tests/bench/napkin.py needs python3"
fi
# Tokens a second: 16,384 tokens an update over the milliseconds in that column of the last row.
floor_of() {
  case $1 in bf16) column=6 ;; f32) column=8 ;; tf32) column=9 ;; esac
  echo "$floors" | awk -F'|' -v column="$column" '/^\| sum / { printf "%.0f", 16384e3 / $column }'
}
for precision in bf16 tf32 f32; do
  floor=$(floor_of $precision)
  phase "throughput_$precision" 80 "$build/device_throughput" --precision $precision --updates $updates \
    --floor "${floor:-0}"
  sed -n 's/^row: //p' "$out/throughput_$precision.log" >> "$out/rows"
done

# ---- beside PyTorch and PEFT ----
if $quick; then
  skip "PyTorch and PEFT: --quick"
elif ! command -v python3 > /dev/null; then
  skip "PyTorch and PEFT: no python3"
elif why=$(python3 "$root/tests/device/peft_throughput.py" --can-run 2>&1); then
  phase peft 90 python3 "$root/tests/device/peft_throughput.py"
  sed -n 's/^row: //p' "$out/peft.log" >> "$out/rows"
else
  skip "PyTorch and PEFT: $(echo "$why" | tail -n 1)"
fi

# ---- compute-sanitizer ----
if $quick; then
  skip "compute-sanitizer: --quick"
elif ! command -v compute-sanitizer > /dev/null; then
  skip "compute-sanitizer: not in the PATH"
else
  for tool in memcheck racecheck synccheck; do
    phase "sanitizer_$tool" 60 env TANDEM_SMALL_MODELS=1 \
      compute-sanitizer --tool $tool --error-exitcode 9 "$build/device_tests" \
      RowKernels/Float32.RmsNorm RowKernels/Bf16.Swiglu RowKernels/Bf16.Rope AttentionEmulated/F32.LseIsKept \
      AttentionEmulated/Bf16.LseIsKept EmulatedExactSum EmulatedChecksum Update.Bf16
  done
fi

# ---- the table ----
{
  echo
  echo "| phase | result | time |"
  echo "|---|---|--:|"
  cat "$out/phases"
  echo
  echo "Qwen3-0.6B's shape, rank 16, 8 x 2,048 tokens an update, one GPU:"
  echo
  echo "| program | tokens/s | ms an update | GiB | of the floor |"
  echo "|---|--:|--:|--:|--:|"
  cat "$out/rows"
  echo "$skipped"
  echo
  if [ $wrong = 0 ]; then echo "all that ran was right"; else echo "NOT ALL RIGHT: the logs are in $out"; fi
  echo "$(($(date +%s) - begun)) s in all"
} > "$out/table.md"
tee -a "$log" < "$out/table.md"
exit $wrong
