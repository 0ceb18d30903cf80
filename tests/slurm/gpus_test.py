#!/usr/bin/env python3
"""Which rank takes which GPU under a real Slurm of two nodes, whose GPUs are emulated: two_nodes.py gpus_test.py PROGRAM"""
import os
import pathlib
import subprocess
import sys
import unittest

SHARED = pathlib.Path(os.environ.get("TANDEM_SLURM_FOLDER", "/nonexistent"))  # seen by all nodes
PROGRAM = None
# What srun --gpus-per-task=1 does: each task sees one device, which is number 0 for it.
BOUND = 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID exec "$@"'
# A device list that a user exports over Slurm's.
EXPORTED = 'CUDA_VISIBLE_DEVICES=0 exec "$@"'


def doctor(before):
    return subprocess.run(["srun", "-N", "2", "-n", "4", "--mpi=pmix", "bash", "-c", before, "bash", PROGRAM, "doctor",
                           "--seconds", "0", "--out", "doctor"], cwd=SHARED,
                          env={**os.environ, "TANDEM_EMULATED_GPUS": "2"}, capture_output=True, text=True, timeout=90)


class Gpus(unittest.TestCase):
    longMessage = True

    def test_bound_ranks_take_the_one_they_see(self):
        done = doctor(BOUND)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # Both nodes have devices of the same two bus ids.
        for ranks, bus_id in (("0,2", "0000:01:00.0"), ("1,3", "0000:02:00.0")):
            self.assertIn(f"ranks {ranks} on node1, node2: GPU 0 of 1, Emulated GPU, PCI {bus_id}", done.stdout)
        self.assertRegex(done.stdout, r"ok +NCCL +sums gradients")

    def test_ranks_that_were_given_one_device_are_refused_with_its_bus_id(self):
        done = doctor(EXPORTED)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"FAIL +GPU +ranks 0-1 on node1 would compute on one GPU \(PCI 0000:01:00.0\)")


if __name__ == "__main__":
    PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
