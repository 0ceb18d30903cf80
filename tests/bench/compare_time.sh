#!/usr/bin/env bash
# Size of a trajectory as the study's run leaves it (10,536 updates, 43 evaluations, 28 layers), and time and memory of
# `tandem compare` and `tandem inspect` on it.
#
#   tests/bench/compare_time.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$build/tests/bench/large_trajectory" a.h5 native 1e-7 2
"$build/tests/bench/large_trajectory" b.h5 mirror 1e-7 3
"$build/tests/bench/large_trajectory" c.h5 native 1e-7 4
# Seconds and peak memory of a command; compare may find differences (5).
timed() {
  /usr/bin/python3 - "$@" <<'PY'
import resource, subprocess, sys, time
start = time.monotonic()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(f"{' '.join(sys.argv[2:])}: exit code {code}, {time.monotonic() - start:.2f} s, {peak:.0f} MiB")
PY
}
timed "$build/tandem" inspect a.h5
timed "$build/tandem" compare a.h5 b.h5
timed "$build/tandem" compare a.h5 c.h5
timed "$build/tandem" compare --json a.h5 b.h5
