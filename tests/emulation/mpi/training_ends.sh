#!/bin/bash
# training_ends.sh MPIRUN PROGRAM CONFIGS HOW: of three ranks that train on emulated GPUs and add gradients over
# NCCL, rank 1 fails in an update. The job ends within 30 s, with one line.
mpirun=$1 program=$2 configs=$3 how=$4
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder" && cp -r "$configs" configs || exit 1
fail() { echo "$how: $1: $output"; exit 1; }
output=$("$program" init-model --preset tiny --head-dim 64 --out model 2>&1) || fail "no model"
code=4
case $how in
  product) planted=cublasLtMatmul:13:350 line='\[rank 1/3 .*\] cuBLASLt: .* | cublasLtMatmul, product ' ;;
  async) planted='nccl async error:6:20' line='\[rank 1/3 .*\] nccl: remote process exited .* | all_reduce([0-9]*)' ;;
  lost) planted='nccl lost contribution:1:3' line='\[rank 0/3 .*\] update 1: the all-reduce of [0-9]* elements does not add up on ranks 0-2' ;;
  kill) planted= code=any line= ;;
esac
# Rank 1 alone: what is planted, and where it is killed, soon after its first update.
cat > rank.sh <<'RANK'
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$@"
[ -n "$PLANTED" ] && TANDEM_EMULATED_FAIL=$PLANTED exec "$@"
"$@" & rank=$!
until [ -e killed ]; do sleep 0.2; done
kill -KILL $rank
wait $rank
exit 137
RANK
start() {
  PLANTED=$planted TANDEM_EMULATED_GPUS=3 MPI_TEST_LIMIT=100 "$mpirun" 3 bash rank.sh "$program" train \
    --config configs/tiny.cfg --model model --train.updates 100 --eval.every 100 --run.out out > log 2>&1
}
# Timed from the kill, or from the first line that says what failed.
begins='^\[rank'
[ "$how" = kill ] && begins='^update 1/'
start &
job=$!
until grep -q "$begins" log 2>/dev/null; do sleep 0.2; kill -0 $job 2>/dev/null || break; done
touch killed
SECONDS=0
wait $job
got=$?
output=$(cat log)
grep -q "$begins" log || fail "nothing happened"
[ "$SECONDS" -lt 30 ] || fail "took $SECONDS s to end"
[ "$got" != 0 ] && [ "$got" != 143 ] && [ "$got" != 124 ] || fail "exit code $got"
[ $code = any ] || [ "$got" = $code ] || fail "exit code $got"
[ -z "$line" ] || [ "$(grep -c "^$line" log)" = 1 ] || fail "not said once: $line"
echo "$how: exit code $got, $(grep '^\[rank' log | head -1)"
