#!/bin/bash
# mpirun.sh N PROGRAM ARGS...: runs a test on N ranks, with the flags that this machine needs and no others.
# MPI_TEST_LIMIT: seconds until the job is ended (120). Shared memory and session files of Open MPI lie in a folder that
# is deleted at the end: killed ranks leave 4 MiB each.
set -u
n_ranks=$1
shift

base=${TMPDIR:-/tmp}
[ -d /dev/shm ] && [ -w /dev/shm ] && base=/dev/shm
folder=$(mktemp -d "$base/tandem-test.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
export TMPDIR=$folder

flags=(-q -n "$n_ranks" --bind-to none --mca orte_tmpdir_base "$folder" --mca btl_vader_backing_directory "$folder")
[ "$(id -u)" = 0 ] && flags+=(--allow-run-as-root)
if [ "$n_ranks" -gt "$(env -u OMP_NUM_THREADS nproc)" ]; then
  flags+=(--oversubscribe)
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
fi

# More threads than CPUs: waiting threads give theirs away.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
timeout --kill-after=10 "${MPI_TEST_LIMIT:-120}" mpirun "${flags[@]}" "$@"
