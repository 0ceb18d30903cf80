#!/usr/bin/env bash
# From a fresh clone to a trained adapter: installs what is missing, builds, makes a tiny model with random weights and
# fine-tunes it on two MPI ranks. Can be run again and from anywhere.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=launch/packages.sh
source launch/packages.sh

build=build/release
out=runs/quickstart
model=$out/model
run=$out/run

require_packages "${tandem_packages[@]}" || {
  code=$?
  echo "then: cmake --preset release -DTANDEM_TESTS=OFF && cmake --build $build --target tandem" >&2
  exit $code
}

# Output of a step that went well is of no interest; of one that failed it is all there is.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  [[ $status == 0 ]] || cat "$log" >&2
  rm -f "$log"
  return $status
}

echo "building $build/tandem"
# Tests need more packages; a build folder that already has them keeps them.
first_time=()
[[ -e $build/CMakeCache.txt ]] || first_time=(-DTANDEM_TESTS=OFF)
quietly cmake --preset release ${first_time[@]+"${first_time[@]}"}
quietly cmake --build "$build" --target tandem

if [[ ! -e $model/config.json ]]; then
  echo "making a tiny model with random weights in $model"
  mkdir -p "$out"
  "$build/tandem" init-model --preset tiny --seed 1 --out "$model"
fi

echo "training on 2 ranks with configs/tiny.cfg"
start=$SECONDS
summary=$(launch/tandem-mpirun -n 2 "$build/tandem" train --config configs/tiny.cfg --model "$model" --run.out "$run" --overwrite)

cat <<END

$summary

It took $((SECONDS - start)) s and made, in $root/$run:
  native.h5      the trajectory: loss, norms and sample ids of every update (io/FORMAT.md)
  adapter/       the LoRA adapter, in PEFT's format
  spec.txt       what was computed (SPEC.md); execution.txt: how; run.log: what you saw
A closer look: $build/tandem inspect $run
END
