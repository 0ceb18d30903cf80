#!/usr/bin/env bash
# Fuzzes the readers of rows, tokenizer.json, tokenizer_config.json, safetensors and trajectories with address and undefined-behaviour
# sanitizers: SECONDS each (default 600), one after the other; or the TARGETS named. What ends a reader is left in FOLDER (default: a new one) and its
# path printed; the exit code is then 1. New inputs are kept in FOLDER too. Needs Debian's clang and libclang-rt-14-dev.
#
#   tests/soak/fuzz.sh [SECONDS [FOLDER [TARGET ...]]]
set -eu
seconds=${1:-600}
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${2:-$(mktemp -d)}
mkdir -p "$folder"
shift $(($# < 2 ? $# : 2))
targets=("$@")
((${#targets[@]})) || targets=(rows tokenizer tokenizer_config safetensors trajectory)
command -v clang++ >/dev/null || { echo "clang++ is missing: apt-get install clang libclang-rt-14-dev" >&2; exit 77; }
failed=0
for target in "${targets[@]}"; do
  sources=("$root"/io/text/*.cpp "$root"/io/safetensors.cpp "$root"/io/publish.cpp)
  libraries="libpcre2-8 libutf8proc libcrypto" length=4096 more=()
  if [[ $target == trajectory ]]; then
    sources=("$root"/io/format/*.cpp "$root"/io/{contained,hdf5,hdf5_read,observation_tables,publish,samples,trajectory,trajectory_reader,trajectory_validation}.cpp
      "$root"/io/text/utf8.cpp)
    # HDF5 keeps memory of files that it could not open.
    libraries="hdf5 libcrypto" length=32768 more=(-detect_leaks=0)
  fi
  # shellcheck disable=SC2046  # flags are words
  clang++ -std=c++20 -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
    -I"$root" "$root/tests/fuzz/${target}_fuzz.cpp" "${sources[@]}" "$root"/src/base/sha256.cpp \
    -o "$folder/fuzz_$target" $(pkg-config --cflags --libs $libraries)
  mkdir -p "$folder/corpus_$target"
  echo "fuzzing $target for $seconds s"
  # A single input may take 10 s and 1 GiB at most.
  if "$folder/fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len="$length" -print_final_stats=1 \
    "${more[@]}" -dict="$root/tests/fuzz/json.dict" -artifact_prefix="$folder/$target-" "$folder/corpus_$target" "$root/tests/fuzz/corpus/$target" \
    >"$folder/$target.log" 2>&1; then
    grep -E "number_of_executed_units|peak_rss|slowest_unit" "$folder/$target.log"
  else
    tail -40 "$folder/$target.log"
    failed=1
  fi
done
exit $failed
