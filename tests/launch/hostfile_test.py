#!/usr/bin/env python3
"""launch/hosts.example and the command in it, on two nodes without Slurm; run beside them:
two_nodes.py --without-slurm hostfile_test.py TANDEM"""
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("TANDEM_SLURM_FOLDER", "/nonexistent"))  # seen by both nodes
TANDEM = None
EXAMPLE = ROOT / "launch/hosts.example"
SHORT = ["--train.updates", "6", "--eval.every", "6"]


def rank_of(pid):
    environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    return int(re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", environment)[1])


def ranks():
    """Process ids of every rank on both nodes (the test sees their processes)."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "exe") == str(TANDEM) and b"train" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            pass
    return sorted(found)


def wait_for(holds, seconds, what):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)


class Hostfile(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        os.environ["OMP_WAIT_POLICY"] = "passive"  # the nodes share this machine's CPUs, with other tests too
        shutil.copytree(ROOT / "configs", SHARED / "configs")
        shutil.copy(EXAMPLE, SHARED / "hosts")
        (SHARED / "my.cfg").write_text((ROOT / "configs/tiny.cfg").read_text().replace("= tiny", "= configs/tiny").replace(
            "../runs/quickstart/model", "model"))
        command, = re.findall(r"^# +(tandem-mpirun .*)$", EXAMPLE.read_text(), re.MULTILINE)
        cls.command = shlex.split(command)
        for words in (["init-model", "--preset", "tiny", "--out", "model"],
                      ["train", "--config", "my.cfg", *SHORT, "--run.out", "plain"]):
            done = subprocess.run([TANDEM, *words], cwd=SHARED, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

    def start(self, *options, hosts="hosts"):
        """The example's command, as a user on node1 types it."""
        words = ["hosts" if word == "hosts" else word for word in self.command]
        words[words.index("hosts")] = hosts
        paths = f"{TANDEM.parent}:{ROOT}/launch:{os.environ['PATH']}"
        on_node1 = ["nsenter", "--target", (SHARED / "node1/pid").read_text().strip(), "--mount", "--uts", "--net",
                    f"--wd={SHARED}"]
        return subprocess.Popen([*on_node1, *words, *options], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "PATH": paths, "OMPI_MCA_plm_rsh_agent": str(SHARED / "ssh")})

    def ended(self, job, seconds=60):
        out, err = job.communicate(timeout=seconds)
        return job.returncode, out + err, err

    def adapter(self, folder):
        return (SHARED / folder / "adapter/adapter_model.safetensors").read_bytes()

    def test_the_example_trains_on_both_nodes_to_the_bits_of_one_process(self):
        code, said, _ = self.ended(self.start(*SHORT, "--run.out", "both"))
        self.assertEqual(code, 0, said)
        self.assertEqual(re.findall(r"^rank (\d) on (node\d)", said, re.MULTILINE),
                         [("0", "node1"), ("1", "node1"), ("2", "node2"), ("3", "node2")])
        self.assertEqual(self.adapter("both"), self.adapter("plain"))
        self.assertEqual(ranks(), [])

    def test_an_error_on_all_nodes_is_the_last_line_once(self):
        code, said, err = self.ended(self.start("--data.train", "none.jsonl", "--run.out", "bad"))
        self.assertEqual(code, 3, said)
        self.assertIn("none.jsonl", err.splitlines()[-1])

    def test_a_first_signal_saves_on_both_nodes_and_resume_goes_on(self):
        job = self.start("--train.updates", "100000", "--run.out", "stopped")
        wait_for(lambda: (SHARED / "stopped/native.h5").exists(), 60, "first update")
        job.send_signal(signal.SIGTERM)
        code, said, _ = self.ended(job)
        self.assertEqual(code, 6, said)
        self.assertIn("--resume auto", said)
        self.assertEqual(ranks(), [])

    def test_a_rank_killed_on_the_other_node_ends_all(self):
        job = self.start("--train.updates", "100000", "--run.out", "killed")
        wait_for(lambda: (SHARED / "killed/native.h5").exists() and len(ranks()) == 4, 60, "first update")
        os.kill(max(ranks(), key=rank_of), signal.SIGKILL)  # the last is node2's
        begin = time.monotonic()
        code, said, _ = self.ended(job, 30)
        print(f"a killed rank ends the job in {time.monotonic() - begin:.1f} s")
        self.assertNotEqual(code, 0, said)
        wait_for(lambda: not ranks(), 5, "no process left")

    def test_a_node_that_is_not_there_is_an_error_that_says_so(self):
        (SHARED / "wrong").write_text("node1 slots=2\nnode3 slots=2\n")
        code, said, _ = self.ended(self.start("--run.out", "nowhere", hosts="wrong"))
        self.assertNotEqual(code, 0, said)
        self.assertIn("node3", said)  # ssh says it
        self.assertFalse((SHARED / "nowhere").exists())

    def test_what_hinders_mpirun_is_said(self):
        self.command[self.command.index("4")] = "9"
        try:
            code, said, err = self.ended(self.start("--run.out", "nowhere"))
        finally:
            self.command[self.command.index("9")] = "4"
        self.assertNotEqual(code, 0, said)
        self.assertIn("not enough slots", err)
        code, said, err = self.ended(self.start("--run.out", "nowhere", hosts="absent"))
        self.assertNotEqual(code, 0, said)
        self.assertIn("absent", err)
        self.assertEqual(len([line for line in err.splitlines() if line.strip()]), 1, err)


if __name__ == "__main__":
    TANDEM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
