#!/usr/bin/env bash
# job_test.sh: what slurm/job.sh makes of a launcher's end, with an srun and an scontrol that only play a part (R55):
# exit codes are passed on; a job that was warned and saved goes back into the queue, one that made no update does not.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

cat >"$folder/srun" <<'STUB'
#!/usr/bin/env bash
ended() {
  echo "[rank 0/2 n1] stopped by a signal $STUB_SAID" >&2
  exit 6
}
trap ended USR1
[[ $STUB_CODE != 6 ]] || { touch "$STUB_FOLDER/runs"; while true; do sleep 0.05; done; }
echo "tandem: a cause" >&2
exit "$STUB_CODE"
STUB
printf '#!/bin/sh\necho "$@" >"$STUB_FOLDER/scontrol.log"\n' >"$folder/scontrol"
printf '#!/bin/sh\n' >"$folder/tandem"
chmod +x "$folder"/{srun,scontrol,tandem}
export STUB_FOLDER=$folder STUB_CODE STUB_SAID PATH=$folder:$PATH SLURM_JOB_ID=7 TANDEM_LAUNCHER=pmix TANDEM_MODULES=

# expect CODE REQUEUED SAID: one job
expect() {
  rm -f "$folder/runs" "$folder/scontrol.log"
  STUB_CODE=$1 STUB_SAID=$3
  bash -c 'source "$0/slurm/job.sh"; train --config none.cfg' "$root" >"$folder/out" 2>&1 &
  local job=$! code requeued=no
  if [[ $1 == 6 ]]; then
    until [[ -e $folder/runs ]]; do sleep 0.05; done
    sleep 0.3 # job.sh sets its trap behind the start
    kill -USR1 "$job"
  fi
  wait "$job"
  code=$?
  [[ ! -e $folder/scontrol.log ]] || requeued=$(<"$folder/scontrol.log")
  [[ $code == "$1" && $requeued == "$2" ]] || {
    echo "expected code $1, requeued $2; found $code, $requeued:"
    cat "$folder/out"
    failed=1
  }
}
expect 6 "requeue 7" "after update 3 of 9, saved in run/checkpoints/3"
expect 6 no "before the first update; nothing to save"
expect 42 no ""
expect 3 no ""
exit $failed
