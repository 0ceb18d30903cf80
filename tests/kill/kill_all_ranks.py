"""kill -9 of all ranks at random instants of a run: the published trajectory opens every time, with h5dump and with
h5py, its rows are a beginning of the unbroken run's (bit for bit), and it holds every update up to the last
publication: an evaluation is said in run.log only after the file that holds it is in place.

Exit status 77: the test cannot run here (ctest shows it as skipped, with the reason).
"""
import argparse
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from killing import h5py, ranks_of, require_opens, send, write_rows

COLUMNS = ["step", "loss", "grad_norm", "checksum", "adapter_checksum", "sample_ids"]


def start(args, folder, run):
    command = [args.mpirun, "2", args.tandem, "train", "--model.path", folder / "model", "--data.train", folder / "train.jsonl",
               "--data.held_out", folder / "held_out.jsonl", "--run.out", run, "--train.updates", str(args.updates),
               "--eval.every", "7", "--batch.global", "8", "--lora.rank", "4", "--output.flush_s", "0.05", "--threads", "1"]
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            start_new_session=True)


def wait_for_update(job, run, instant):
    """Returns once the run has said the evaluation before `instant` (in updates, a fraction) and then has had the time
    for the updates in between, as fast as it makes them; at once where the job has ended."""
    said, at = 0, None  # the evaluation said last, and when
    pace = 0.0  # seconds an update
    deadline = time.monotonic() + 120
    while job.poll() is None and time.monotonic() < deadline:
        now = time.monotonic()
        try:
            steps = re.findall(r"evaluation after update (\d+):", (run / "run.log").read_text())
        except FileNotFoundError:
            steps = []
        if steps and (at is None or int(steps[-1]) > said):
            if at is not None:
                pace = (now - at) / (int(steps[-1]) - said)
            said, at = int(steps[-1]), now
        if at is not None and (now - at >= (instant - said) * pace if pace else instant <= said + 1):
            return
        time.sleep(0.002)


def rows_of(path):
    with h5py.File(path, "r") as file:
        updates = {name: file["update"][name][()] for name in COLUMNS}
        return updates, file["eval/step"][()], int(file.attrs["complete"])


def check(path, whole, log):
    require_opens(path)
    updates, evaluations, complete = rows_of(path)
    n = len(updates["step"])
    for name in COLUMNS:
        assert updates[name].tobytes() == whole[name][:n].tobytes(), f"/update/{name} is no beginning of the unbroken run"
    said = [int(step) for step in re.findall(r"evaluation after update (\d+):", log)]
    last = max(said, default=0)
    assert n >= last, f"update {last} was evaluated and said so, but the file ends at {n}"
    assert not said or last in evaluations, f"the evaluation after update {last} is missing"
    return n, complete


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    args = parser.parse_args()
    if not shutil.which("h5dump"):
        print("skipped: no h5dump here")
        return 77
    draw = random.Random(args.seed)
    print(f"seed {args.seed}")
    with tempfile.TemporaryDirectory(prefix="tandem-kill-") as temporary:
        folder = pathlib.Path(temporary)
        subprocess.run([args.tandem, "init-model", "--preset", "tiny", "--out", str(folder / "model")], check=True,
                       stdout=subprocess.DEVNULL)
        write_rows(folder / "train.jsonl", 50, 1)
        write_rows(folder / "held_out.jsonl", 10, 2)
        assert start(args, folder, folder / "whole").wait() == 0, "the unbroken run failed"
        whole, _, complete = rows_of(folder / "whole" / "native.h5")
        assert complete == 1 and len(whole["step"]) == args.updates

        kills = 0
        for attempt in range(4 * args.kills):
            run = folder / f"run{attempt}"
            job = start(args, folder, run)
            # A random update, then a random part of the time that an update takes in this very run: however fast or
            # loaded the machine is, the instants lie all over the run.
            instant = draw.random() * 0.9 * args.updates
            wait_for_update(job, run, instant)
            for pid in ranks_of(run).values():
                send(pid, signal.SIGKILL)
            code = job.wait(timeout=60)
            log = (run / "run.log").read_text()
            n, complete = check(run / "native.h5", whole, log)
            print(f"kill {kills} at update {instant:.1f}: {n} of {args.updates} updates published, complete = {complete}, "
                  f"exit status {code}")
            assert complete or code != 0, "a killed run must not exit with 0"
            kills += complete == 0
            if kills == args.kills:
                break
        assert kills == args.kills, f"only {kills} of {attempt + 1} kills came before the end of the run"
    return 0


if __name__ == "__main__":
    sys.exit(main())
