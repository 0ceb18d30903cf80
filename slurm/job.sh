# shellcheck shell=bash
# What the job scripts of this folder share; sourced by them.

tandem_slurm=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
  echo "slurm job ${SLURM_JOB_ID:-}: $1" >&2
  exit "${2:-2}"
}

# shellcheck source=slurm/site.env
source "$tandem_slurm/site.env" || fail "$tandem_slurm/site.env cannot be read"
if [[ -n $TANDEM_MODULES ]]; then
  # shellcheck disable=SC2086  # several modules
  module load $TANDEM_MODULES || fail "module load $TANDEM_MODULES failed (TANDEM_MODULES in $tandem_slurm/site.env)" 3
fi

# find_program NAME FOLDER...: in PATH, then in the folders, each relative to this one.
find_program() {
  local name=$1 folder
  shift
  type -P -- "$name" && return 0
  for folder in "$@"; do
    [[ -x $tandem_slurm/$folder/$name ]] && (cd "$tandem_slurm/$folder" && echo "$PWD/$name") && return 0
  done
  fail "$name is in neither PATH nor the folders beside $tandem_slurm: set TANDEM in $tandem_slurm/site.env" 3
}
tandem=$(find_program "$TANDEM" ../../../bin ../build/release) || exit $?

# Since Slurm 22.05 srun no longer takes it from sbatch, and ranks would get one core each.
[[ -z ${SLURM_CPUS_PER_TASK:-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# launch ARGUMENTS...: `tandem ARGUMENTS` on every task of the allocation; returns its exit code. The signal that
# sbatch's --signal asks for comes here and goes to the ranks.
launch() {
  local errors launcher code signal=USR1 options=()
  errors=$(mktemp) || fail "no temporary file in ${TMPDIR:-/tmp}" 3
  read -r -a options <<<"$TANDEM_LAUNCHER_OPTIONS"
  case $TANDEM_LAUNCHER in
    pmix | pmi2)
      srun --mpi="$TANDEM_LAUNCHER" --kill-on-bad-exit=1 ${options[@]+"${options[@]}"} "$tandem" "$@" 2> >(exec tee "$errors" >&2) &
      ;;
    mpirun)
      local wrapper
      wrapper=$(find_program tandem-mpirun ../../../bin ../launch) || exit $?
      "$wrapper" -n "${SLURM_NTASKS:-1}" ${options[@]+"${options[@]}" --} "$tandem" "$@" 2> >(exec tee "$errors" >&2) &
      signal=TERM # the first reaches the ranks as USR1
      ;;
    *) fail "TANDEM_LAUNCHER is '$TANDEM_LAUNCHER', known are pmix, pmi2 and mpirun ($tandem_slurm/site.env)" ;;
  esac
  launcher=$!
  # shellcheck disable=SC2064  # now
  trap "warned=1; kill -$signal $launcher 2>/dev/null" USR1
  # shellcheck disable=SC2064
  trap "kill -$signal $launcher 2>/dev/null" TERM
  while true; do
    wait "$launcher"
    code=$?
    kill -0 "$launcher" 2>/dev/null || break
  done
  trap - USR1 TERM
  # srun's own code may be that of a rank which it killed because another had failed: the first to end counts.
  if [[ $TANDEM_LAUNCHER != mpirun && $code != 0 ]]; then
    local first
    first=$(sed -n 's/^srun: error: .*task.*: Exited with exit code \([0-9]*\)$/\1/p' "$errors" | head -n 1)
    [[ -z $first ]] || code=$first
    grep -m 1 -E '^(tandem: |\[rank [0-9]+/[0-9]+ )' "$errors" >&2
  fi
  ! grep -q 'before the first update; nothing to save' "$errors" || saved=0
  rm -f -- "$errors"
  return "$code"
}

# train ARGUMENTS...: `tandem train ARGUMENTS`, which goes on where the job was before; where it stopped because its time
# is nearly over, and saved, the job goes back into the queue, but not after scancel, and not where it made no update. Ends with tandem's exit code.
train() {
  local code resume=(--resume auto) warned=0 saved=1 argument
  for argument; do
    [[ $argument != --resume && $argument != --resume=* ]] || resume=()
  done
  launch train "$@" ${resume[@]+"${resume[@]}"}
  code=$?
  if [[ $code == 6 && $warned == 1 && $saved == 0 ]]; then
    fail "stopped before the first update, so a further allocation would get no further: give it more time (-t)" 6
  fi
  if [[ $code == 6 && $warned == 1 ]]; then
    local done=${SLURM_RESTART_COUNT:-0} job=$SLURM_JOB_ID
    [[ -z ${SLURM_ARRAY_JOB_ID:-} ]] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
    ((done < TANDEM_REQUEUES)) || fail "not finished after $done times in the queue (TANDEM_REQUEUES)" 6
    echo "slurm job $job: stopped and saved; back into the queue" >&2
    scontrol requeue "$job" || fail "could not be put back into the queue; sbatch it again" 6
  fi
  exit "$code"
}
