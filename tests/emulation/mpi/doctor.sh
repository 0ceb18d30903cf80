#!/bin/bash
# doctor.sh MPIRUN PROGRAM CASE: what `tandem doctor` says of the GPUs of three ranks.
mpirun=$1 program=$2
fail() { echo "$1: $output"; exit 1; }
# wants CODE LINE...: the doctor's exit code, and lines that it says (regular expressions).
wants() {
  [ "$got" = "$1" ] || fail "exit code $got, not $1"
  shift
  for line in "$@"; do grep -Eq "^$line" <<<"$output" || fail "not said: $line"; done
}
doctor() {
  output=$("$mpirun" 3 bash -c "$1"' exec "$@"' bash "$program" doctor --seconds 0 "${@:2}" 2>&1)
  got=$?
}
export TANDEM_EMULATED_GPUS=4
case $3 in
  all)
    doctor ""
    wants 0 "ok +CUDA +driver for CUDA .*, CUDA runtime .*, cuBLASLt .*, NCCL [0-9.]+$" "ok +NCCL +sums gradients" \
      "ok +GPU +rank 2 on .*: GPU 2 of 4, Emulated GPU, PCI 0000:03:00.0, 4.0 GiB, .* free" ;;
  bound)  # as srun --gpus-per-task=1 does
    doctor 'CUDA_VISIBLE_DEVICES=$((3 - OMPI_COMM_WORLD_LOCAL_RANK))'
    wants 0 "ok +GPU +rank 0 on .*: GPU 0 of 1, Emulated GPU, PCI 0000:04:00.0" \
      "ok +GPU +rank 2 on .*: GPU 0 of 1, Emulated GPU, PCI 0000:02:00.0" ;;
  one)
    doctor 'CUDA_VISIBLE_DEVICES=1'
    wants 4 "FAIL +GPU +ranks 0-2 on .* would compute on one GPU \(PCI 0000:02:00.0\)"
    doctor 'CUDA_VISIBLE_DEVICES=1' --share-gpus
    wants 0 "ok +GPU +GPU 0 of 1, Emulated GPU, PCI 0000:02:00.0" "note +NCCL +ranks share a GPU" ;;
  none)
    doctor 'CUDA_VISIBLE_DEVICES='
    wants 0 "note +GPU +no GPU is visible \(CUDA_VISIBLE_DEVICES is \"\"\): runs compute on CPUs"
    doctor 'CUDA_VISIBLE_DEVICES=$((OMPI_COMM_WORLD_RANK * 7))'
    wants 4 "FAIL +GPU +ranks 1-2 of 3: no GPU is visible \(CUDA_VISIBLE_DEVICES is \"7\"\)" ;;
esac
