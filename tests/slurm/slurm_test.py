#!/usr/bin/env python3
"""The job scripts of slurm/ on a real Slurm of two nodes; run beside it: two_nodes.py slurm_test.py TANDEM"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("TANDEM_SLURM_FOLDER", "/nonexistent"))  # seen by all nodes
TANDEM = None
SHORT = ["--config", "configs/tiny.cfg", "--model", "model", "--train.updates", "6", "--eval.every", "6"]
LONG = SHORT[:4] + ["--train.updates", "100000"]


def run(*words, seconds=60, **options):
    return subprocess.run([str(word) for word in words], cwd=SHARED, capture_output=True, text=True, timeout=seconds,
                          **options)


def submit(*words, **environment):
    sent = run("sbatch", "--parsable", "--cpus-per-task=1", *words, env={**os.environ, **environment})
    assert sent.returncode == 0, sent.stderr
    return sent.stdout.strip()


def job(job_id):
    """The job's fields, as scontrol names them."""
    shown = run("scontrol", "-o", "show", "job", job_id).stdout
    return dict(re.findall(r"(\S+?)=(\S*)", shown))


def wait_for(holds, seconds, what):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.1)


def ended(job_id, seconds=60):
    """The job's last state and exit code, as 'FAILED 3:0'."""
    running = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED")
    wait_for(lambda: job(job_id)["JobState"] not in running, seconds, lambda: f"end of job {job_id}: {output_of(job_id)}")
    return f'{job(job_id)["JobState"]} {job(job_id)["ExitCode"]}'


def output_of(job_id):
    return "".join(path.read_text() for path in sorted(SHARED.glob(f"tandem*-{job_id}.out")))


def rank_of(pid):
    environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return max(int(value.split(b"=")[1]) for value in environment
               if value.startswith((b"OMPI_COMM_WORLD_RANK=", b"SLURM_PROCID=")))


def ranks():
    """Process ids of every rank on both nodes (the test sees their processes)."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "exe") == str(TANDEM):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


class Slurm(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        os.environ["OMP_WAIT_POLICY"] = "passive"  # the nodes share this machine's CPUs, with other tests too
        shutil.copytree(ROOT / "configs", SHARED / "configs")
        made = run(TANDEM, "init-model", "--preset", "tiny", "--out", "model")
        assert made.returncode == 0, made.stderr
        plain = run(TANDEM, "train", *SHORT, "--run.out", "plain")
        assert plain.returncode == 0, plain.stderr

    def setUp(self):
        os.environ["TANDEM"] = str(TANDEM)

    def adapter(self, folder):
        return (SHARED / folder / "adapter/adapter_model.safetensors").read_bytes()

    def assert_job(self, job_id, outcome, seconds=60):
        self.assertEqual(ended(job_id, seconds), outcome, output_of(job_id))

    def test_two_nodes_complete_with_the_bits_of_one_process(self):
        for n in (1, 2):
            job_id = submit(f"--ntasks-per-node={n}", ROOT / "slurm/train.sbatch", *SHORT, "--run.out", f"on{2 * n}")
            self.assert_job(job_id, "COMPLETED 0:0")
            self.assertEqual(self.adapter(f"on{2 * n}"), self.adapter("plain"))
            self.assertIn(f"on {2 * n} ranks", output_of(job_id))

    def test_mpirun_inside_the_allocation_does_the_same(self):
        job_id = submit(ROOT / "slurm/train.sbatch", *SHORT, "--run.out", "mpirun", TANDEM_LAUNCHER="mpirun",
                        TANDEM_LAUNCHER_OPTIONS="--mca btl tcp,self,vader")
        self.assert_job(job_id, "COMPLETED 0:0")
        self.assertEqual(self.adapter("mpirun"), self.adapter("plain"))
        self.assertIn("on 2 ranks", output_of(job_id))

    def test_an_input_error_fails_the_job_with_its_code_and_its_line_last(self):
        for launcher in ("pmix", "mpirun"):
            job_id = submit(ROOT / "slurm/train.sbatch", *SHORT, "--data.train", "none.jsonl", "--run.out", "bad",
                            TANDEM_LAUNCHER=launcher)
            self.assert_job(job_id, "FAILED 3:0")
            self.assertIn("none.jsonl", output_of(job_id).splitlines()[-1])

    def test_a_killed_rank_fails_the_job_within_30_seconds(self):
        for launcher, n in (("pmix", 1), ("mpirun", 1), ("pmix", 2), ("mpirun", 2)):
            folder = f"killed_{launcher}{n}"
            job_id = submit(f"--ntasks-per-node={n}", ROOT / "slurm/train.sbatch", *LONG, "--run.out", folder,
                            TANDEM_LAUNCHER=launcher)
            wait_for(lambda: (SHARED / folder / "native.h5").exists(), 60, "first update")
            os.kill(max(ranks(), key=rank_of), signal.SIGKILL)  # node2's
            begin = time.monotonic()
            wait_for(lambda: not ranks(), 30, "no process of the job")
            gone = time.monotonic() - begin
            outcome = ended(job_id, 30)
            print(f"{launcher}, {2 * n} ranks: a killed rank ends all in {gone:.1f} s, the job in "
                  f"{time.monotonic() - begin:.1f} s: {outcome}")
            self.assertTrue(outcome.startswith("FAILED"), outcome)

    def test_a_stopped_rank_is_named_and_fails_the_job_within_30_seconds(self):
        for launcher in ("pmix", "mpirun"):
            job_id = submit(ROOT / "slurm/train.sbatch", *LONG, "--run.out", f"stopped_{launcher}",
                            TANDEM_LAUNCHER=launcher)
            wait_for(lambda: (SHARED / f"stopped_{launcher}/native.h5").exists(), 60, "first update")
            os.kill(max(ranks(), key=rank_of), signal.SIGSTOP)
            begin = time.monotonic()
            self.assert_job(job_id, "FAILED 4:0", 30)
            print(f"{launcher}: a stopped rank ends the job in {time.monotonic() - begin:.1f} s")
            self.assertRegex(output_of(job_id), r"rank [01] on node[12] no longer answers .* waiting in ")
            self.assertEqual(ranks(), [])

    def test_scancel_leaves_no_process(self):
        for launcher in ("pmix", "mpirun"):
            job_id = submit(ROOT / "slurm/train.sbatch", *LONG, "--run.out", f"cancelled_{launcher}",
                            TANDEM_LAUNCHER=launcher)
            wait_for(lambda: (SHARED / f"cancelled_{launcher}/native.h5").exists(), 60, "first update")
            run("scancel", job_id)
            begin = time.monotonic()
            wait_for(lambda: not ranks(), 10, "no process of the job")
            print(f"{launcher}: scancel took {time.monotonic() - begin:.1f} s")
            self.assertTrue(ended(job_id, 20).startswith("CANCELLED"))

    def test_a_job_that_is_warned_goes_on_in_further_allocations_to_the_same_bits(self):
        long = SHORT[:4] + ["--train.updates", "600", "--eval.every", "300"]
        plain = run(TANDEM, "train", *long, "--run.out", "unbroken", seconds=300)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        job_id = submit(ROOT / "slurm/train.sbatch", *long, "--run.out", "warned")
        for n in (1, 2):
            wait_for(lambda: output_of(job_id).count("resumed from") >= n - 1 and len(ranks()) == 2, 60,
                     lambda: f"allocation {n}: {output_of(job_id)}")
            time.sleep(1.0)
            run("scancel", "--batch", "--signal=USR1", job_id)  # as --signal=B:USR1@180 before the time limit
            wait_for(lambda: output_of(job_id).count("back into the queue") >= n, 60,
                     lambda: output_of(job_id))
        self.assert_job(job_id, "COMPLETED 0:0", 240)
        self.assertEqual(int(job(job_id)["Restarts"]), 2)
        self.assertEqual(output_of(job_id).count("resumed from"), 2)
        self.assertEqual(self.adapter("warned"), self.adapter("unbroken"))
        compared = run(TANDEM, "compare", "warned", "unbroken")
        self.assertEqual(compared.returncode, 0, compared.stdout)

    def test_seeds_are_an_array_and_are_compared(self):
        job_id = submit("--array=1-4", ROOT / "slurm/seeds.sbatch", "seeds", *SHORT)
        wait_for(lambda: not run("squeue", "-h", "-j", job_id).stdout, 90, "end of the array")
        for seed in range(1, 5):
            self.assertTrue((SHARED / f"seeds/{seed}/adapter").is_dir(), output_of(f"{job_id}_{seed}"))
            self.assertIn("trained 6 updates", output_of(f"{job_id}_{seed}"))
        self.assertEqual(self.adapter("seeds/1"), self.adapter("plain"))  # tiny.cfg has seed 1
        self.assertNotEqual(self.adapter("seeds/1"), self.adapter("seeds/2"))
        same = submit("--dependency", f"afterok:{job_id}", ROOT / "slurm/compare.sbatch", "seeds/1", "plain")
        self.assert_job(same, "COMPLETED 0:0")
        other = submit(ROOT / "slurm/compare.sbatch", "seeds/1", "seeds/2")
        self.assert_job(other, "FAILED 5:0")

    def test_srun_that_mpi_does_not_understand_is_refused(self):
        for n, kind, code in ((2, "none", 4), (1, "none", 4), (2, "pmi2", 1)):  # 1: of MPI_Init
            done = run("srun", "-N", n, "-n", n, f"--mpi={kind}", TANDEM, "train", *SHORT, "--run.out", "nopmix")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn("srun --mpi=pmix", done.stderr)
            self.assertFalse((SHARED / "nopmix").exists())

    def test_the_doctor_looks_at_both_nodes(self):
        done = run("srun", "-N", 2, "-n", 2, "--mpi=pmix", TANDEM, "doctor", "--seconds", 1, "--out", "doctor")
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"ok +launcher +srun --mpi=pmix; MPI joins 2 ranks\n")
        self.assertRegex(done.stdout, r"ok +hosts +2 ranks on 2 hosts: ")
        self.assertRegex(done.stdout, r"(ok|note) +all-reduce +.* over 2 ranks .* every bit right")
        self.assertNotIn("FAIL", done.stdout)
        alone = run("srun", "-N", 2, "-n", 2, "--mpi=none", TANDEM, "doctor", "--seconds", 1)
        self.assertEqual(alone.returncode, 4, alone.stdout + alone.stderr)
        self.assertEqual(alone.stdout.count("FAIL  launcher"), 1, alone.stdout)
        self.assertIn("srun --mpi=pmix", alone.stdout)

    def test_one_plain_process_in_an_allocation_of_two_works(self):
        job_id = submit("--nodes=2", "--ntasks-per-node=1", "--output=tandem-%j.out", "--wrap",
                        f"{TANDEM} train {' '.join(SHORT)} --run.out one")
        self.assert_job(job_id, "COMPLETED 0:0")
        self.assertEqual(self.adapter("one"), self.adapter("plain"))


if __name__ == "__main__":
    TANDEM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
