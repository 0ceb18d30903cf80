"""kill -9 of one rank, drawn at random, at a random instant of a run with the mirror beside it, and `--resume auto` on 1,
2 or 3 ranks until the run is finished; some resumed runs are killed too. After every kill all files open (h5dump, tandem
inspect --validate) and every checkpoint is whole; the finished run has the bits of the unbroken one in every file.

Instants are drawn over updates, and over the moments at which files appear in the run's folder (a checkpoint's folder, a
trajectory, a snapshot, an adapter), so that kills fall into each of them however fast or loaded the machine is. Where one
fell is seen with the killed rank and rank 0, which writes, stopped.

  kill_one_rank.py --tandem PROGRAM --mpirun SCRIPT [--kills N] [--seed S] [--first K] [--records FILE]

Kill K of seed S is drawn from (S, K) alone: --first K --kills 1 draws it again. --records: a line of JSON for each, added.
--table FILE prints the table of such a file, and nothing else. Exit status 77: cannot run here, with the reason.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from killing import differences, ranks_of, require_files_whole, send, write_rows
from watch import Watch

# What the instants of ten kills one after the other are drawn from.
DECK = ["checkpoint", "update", "checkpoint", "native.h5", "checkpoint removed", "load", "checkpoint", "mirror.h5", "evaluation",
        "other file"]
AGAIN = 0.3  # of the resumed runs are killed, too
EVAL_EVERY, SAVE_EVERY = 7, 3
LIMIT_S = 30.0  # from a rank's death to the end of all


def kind_of(name):
    """Of a file that appeared: what it is drawn by."""
    folder, _, file = name.rpartition("/")
    if folder == "checkpoints":
        return {"tmp": "checkpoint", "old": "checkpoint removed"}.get(file.rpartition(".")[2]) if ".tandem-" in file else None
    if not file.endswith(".tmp"):
        return None
    return file.partition(".tandem-")[0] if file.startswith(("native.h5", "mirror.h5")) else "other file"


class Job:
    """One allocation: `tandem train --resume auto` on some ranks, watched."""

    def __init__(self, args, folder, run, ranks):
        run.mkdir(exist_ok=True)
        self.run, self.n_ranks, self.log = run, ranks, run / "run.log"
        self.said = self.log.stat().st_size if self.log.exists() else 0  # by earlier ones
        self.watch = Watch(run)
        self.watch.names(0)
        self.pids = {}
        self.output = tempfile.TemporaryFile(mode="w+")
        command = [args.mpirun, ranks, args.tandem, "train", "--model.path", folder / "model", "--data.train",
                   folder / "train.jsonl", "--data.held_out", folder / "held_out.jsonl", "--run.out", run, "--train.updates",
                   args.updates, "--eval.every", EVAL_EVERY, "--batch.global", 8, "--lora.rank", 4, "--lora.dropout", 0.1,
                   "--output.flush_s", 0.02, "--threads", 1, "--mirror.mode", "both", "--mirror.every", 4, "--snapshot.every", 15,
                   "--checkpoint.every", SAVE_EVERY, "--log.every", 1, "--resume", "auto"]
        self.start = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in command], stdout=self.output, stderr=subprocess.STDOUT,
                                        start_new_session=True)

    def end(self):
        """Nothing of it lives on where the test fails."""
        if self.running():
            os.killpg(self.process.pid, signal.SIGKILL)
            for pid in ranks_of(self.run).values():
                send(pid, signal.SIGKILL)

    def running(self):
        return self.process.poll() is None

    def find_ranks(self):
        while self.running() and len(self.pids) < self.n_ranks:
            self.pids = ranks_of(self.run)
            time.sleep(0.001)

    def text(self):
        """run.log, as far as this job wrote it."""
        try:
            with open(self.log) as file:
                file.seek(self.said)
                return file.read()
        except FileNotFoundError:
            return ""

    def wait(self, limit):
        code = self.process.wait(timeout=limit)
        self.watch.close()
        self.output.seek(0)
        return code, self.output.read()


def await_update(job, instant):
    """Until that update (a fraction) of the run, by the lines it prints and its own pace."""
    said = re.compile(r"^update (\d+)/", re.M)
    seen = []  # (update, when)
    while job.running():
        steps = said.findall(job.text())
        now = time.monotonic()
        if steps and (not seen or int(steps[-1]) != seen[-1][0]):
            seen.append((int(steps[-1]), now))
        if seen and seen[-1][0] >= int(instant):
            pace = (seen[-1][1] - seen[0][1]) / max(1, seen[-1][0] - seen[0][0])
            time.sleep(max(0.0, (instant - seen[-1][0]) * pace))
            return
        job.watch.names(0.5)


def await_file(job, kind, nth):
    """Until the nth file of that kind appears."""
    while job.running():
        for name in job.watch.names(0.5):
            nth -= kind_of(name) == kind
            if nth <= 0:
                return


def await_line(job, pattern):
    while job.running() and not re.search(pattern, job.text(), re.M):
        job.watch.names(0.5)


def draw_instant(draw, kind, whole, updates):
    """(what it is, how to wait for it), from the events of the unbroken run."""
    if kind == "load":
        delay = draw.random() * whole["load_s"]
        return f"{delay:.3f} s after the start", lambda job: time.sleep(max(0.0, job.start + delay - time.monotonic()))
    if kind == "update":
        instant = draw.uniform(1, updates)
        return f"update {instant:.2f}", lambda job: await_update(job, instant)
    if kind == "evaluation":
        step = draw.randrange(0, updates, EVAL_EVERY)
        before = rf"^update {step}/" if step else "."
        delay = draw.random() * 0.004

        def wait(job):
            await_line(job, before)
            time.sleep(delay)

        return f"the evaluation after update {step} + {1e3 * delay:.1f} ms", wait
    nth = draw.randint(1, max(1, whole["files"][kind]))
    delay = 0.0 if draw.random() < 0.2 else draw.random() * (whole["save_s"] if kind == "checkpoint" else 0.004)

    def wait(job):
        await_file(job, kind, nth)
        time.sleep(delay)

    return f"{kind} {nth} + {1e3 * delay:.1f} ms", wait


def phase(job):
    """Where the run stands, as files and log show it."""
    writer = f"-{job.pids.get(0)}."  # rank 0's temporary names
    names = []
    for folder in ("", "checkpoints", "native.snapshots", "mirror.snapshots"):
        try:
            names += [os.path.join(folder, name) for name in os.listdir(job.run / folder) if writer in name]
        except FileNotFoundError:
            pass
    text = job.text()
    updates = [int(step) for step in re.findall(r"^update (\d+)/", text, re.M)]
    for name in names:
        if name.startswith("checkpoints/") and name.endswith(".tmp"):
            inside = sorted(str(file.relative_to(job.run / name)) for file in (job.run / name).rglob("*") if file.is_file())
            if any(file.startswith("checkpoint.json") for file in inside):
                return "checkpoint: marked, synchronised, renamed"
            return "checkpoint: files written" if inside else "checkpoint: folder made"
        if name.startswith("checkpoints/"):
            return "checkpoint: old one removed"
    for name in names:
        if name.startswith(("native.h5", "mirror.h5")):
            return f"{name.partition('.tandem-')[0]} published"
    if names:
        return "adapter, snapshot or text published"
    if not updates:
        return "load, untrained evaluation" if text else "load"
    last = text.rstrip().rpartition("\n")[2]
    if "waiting for the mirror" in text:
        return "mirror awaited at the end"
    if last.startswith("checkpoint"):
        return "between updates, after a checkpoint"
    if last.startswith("update") and updates[-1] % EVAL_EVERY == 0:
        return "evaluation"
    if last.startswith("update") and updates[-1] % SAVE_EVERY == 0:
        return "update, or a checkpoint's state gathered"
    return "update"


def kill_one(draw, job, wait):
    """Returns (phase, rank), or None where the run was over before."""
    job.find_ranks()
    wait(job)
    victim = draw.randrange(job.n_ranks)
    if not job.running() or victim not in job.pids:
        return None
    for rank in {0, victim}:
        send(job.pids[rank], signal.SIGSTOP)
    where = phase(job)
    send(job.pids[victim], signal.SIGKILL)
    send(job.pids[0], signal.SIGCONT)
    return where, victim


def resumed_from(text):
    """The update that a job began after, as it said; 0: anew; the last, where nothing was left to do."""
    done = re.search(r"the run is finished \((\d+)", text)
    if done:
        return int(done[1])
    said = re.search(r"resumed from .*checkpoints/(\d+): update|begun anew", text)
    return int(said[1] or 0) if said else None


def one_kill(args, folder, whole, number):
    draw = random.Random(f"{args.seed} {number}")
    run = folder / f"run{number}"
    kind = DECK[number % len(DECK)]
    record = {"seed": args.seed, "number": number, "kills": []}
    ranks = draw.choice([2, 2, 3])
    for allocation in range(20):
        kills = not record["kills"] or draw.random() < AGAIN
        if record["kills"]:
            ranks = draw.randint(1, 3)
            kind = draw.choice(DECK)
        what, wait = draw_instant(draw, kind, whole, args.updates)
        job = Job(args, folder, run, ranks)
        try:
            killed = kill_one(draw, job, wait) if kills else None
            began = time.monotonic()
            code, text = job.wait(LIMIT_S if killed else 120)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{what}, {killed}: not all ranks ended in {LIMIT_S} s") from None
        finally:
            job.end()
        began_at = resumed_from(text)
        if began_at is not None:  # else this one was killed before it had found where to begin
            for kill in record["kills"]:
                kill.setdefault("resumed_from", began_at)
                kill.setdefault("resumed_on", ranks)
        if killed and code != 0:
            require_files_whole(args.tandem, run)
            record["kills"].append({"drawn": what, "phase": killed[0], "rank": killed[1], "ranks": ranks, "code": code,
                                    "end_s": time.monotonic() - began})
        elif code != 0:
            raise AssertionError(f"{'drawn: ' + what if kills else 'resumed'} on {ranks} ranks: exit status {code}\n{text}")
        elif not record["kills"]:
            shutil.rmtree(run)  # the run was faster: drawn again
        else:
            break
    assert record["kills"], "the run always ended first"
    found = differences(whole["folder"], run)
    assert not found, f"resumed run differs from the unbroken one: {found}"
    left = [str(path) for path in run.rglob("*") if ".tandem-" in path.name]
    assert not left, f"left behind: {left}"
    shutil.rmtree(run)
    return record


def watched(args, folder):
    """The unbroken run, and how often each kind of file appears in it."""
    job = Job(args, folder, folder / "whole", 2)
    files, load_s = collections.Counter(), None
    while job.running():
        for name in job.watch.names(0.1):
            files[kind_of(name)] += 1
        if load_s is None and job.text():
            load_s = time.monotonic() - job.start
    code, text = job.wait(1)
    assert code == 0, f"the unbroken run failed: {text}"
    saves = [float(ms) for ms in re.findall(r"saved in (\d+) ms", job.text())]
    return {"folder": folder / "whole", "files": files, "load_s": load_s, "save_s": 1e-3 * max(saves)}


def print_table(records):
    kills = [kill for record in records for kill in record["kills"]]
    print(f"{len(records)} runs, {len(kills)} kills; from a rank's death to the end of all: "
          f"median {sorted(kill['end_s'] for kill in kills)[len(kills) // 2]:.1f} s, "
          f"longest {max(kill['end_s'] for kill in kills):.1f} s")
    allocations = collections.Counter(len(record["kills"]) + 1 for record in records)
    print("allocations: " + ", ".join(f"{n} in {count} runs" for n, count in sorted(allocations.items())))
    print(f"{'killed in':45} kills  rank 0/1/2  resumed on 1/2/3   resumed from")
    by_phase = collections.defaultdict(list)
    for kill in kills:
        by_phase[kill["phase"]].append(kill)
    for where, group in sorted(by_phase.items()):
        victims, on = collections.Counter(k["rank"] for k in group), collections.Counter(k["resumed_on"] for k in group)
        start = [k["resumed_from"] for k in group]
        saved = sorted(step for step in start if step > 0)
        text = f"updates {saved[0]} to {saved[-1]}" if saved else ""
        if start.count(0):
            text += f"{', ' if text else ''}anew {start.count(0)}"
        print(f"{where:45} {len(group):5}  {'/'.join(str(victims[r]) for r in range(3)):>10}  "
              f"{'/'.join(str(on[n]) for n in (1, 2, 3)):>16}   {text}")


def line_of(record, kill):
    return (f"seed {record['seed']} kill {record['number']} ({kill['drawn']}): rank {kill['rank']} of {kill['ranks']} in "
            f"\"{kill['phase']}\", code {kill['code']}, all ended in {kill['end_s']:.1f} s; resumed from "
            f"{kill['resumed_from']} on {kill['resumed_on']}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tandem")
    parser.add_argument("--mpirun")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--records", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path)
    args = parser.parse_args()
    if args.table:
        print_table([json.loads(line) for line in args.table.read_text().splitlines()])
        return 0
    if not shutil.which("h5dump"):
        print("skipped: no h5dump here")
        return 77
    records = []
    with tempfile.TemporaryDirectory(prefix="tandem-kill-") as temporary:
        folder = pathlib.Path(temporary)
        subprocess.run([args.tandem, "init-model", "--preset", "tiny", "--out", str(folder / "model")], check=True,
                       stdout=subprocess.DEVNULL)
        write_rows(folder / "train.jsonl", 50, 1)
        write_rows(folder / "held_out.jsonl", 10, 2)
        whole = watched(args, folder)
        numbers = range(args.first, args.first + args.kills)
        # Some at a time: most of the time of each is the launcher's, between a rank's death and the end of the others.
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            jobs = {pool.submit(one_kill, args, folder, whole, number): number for number in numbers}
            for job in concurrent.futures.as_completed(jobs):
                try:
                    record = job.result()
                except BaseException:
                    print(f"failed: --seed {args.seed} --first {jobs[job]} --kills 1", flush=True)
                    pool.shutdown(cancel_futures=True)
                    raise
                for kill in record["kills"]:
                    print(line_of(record, kill), flush=True)
                records.append(record)
                if args.records:
                    with open(args.records, "a") as out:
                        out.write(json.dumps(record) + "\n")
    print_table(records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
