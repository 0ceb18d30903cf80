"""R41: a run with the mirror beside it is killed before each call that a checkpoint's saving makes to change files, the
removal of the older checkpoint included. Each time a whole checkpoint is there, and `--resume auto` goes on from it and
leaves the bits of the unbroken run.

  kill_each_call.py --tandem PROGRAM --library kill_at_call [--first K] [--last K] [--jobs N]

Exit status 77: cannot run here, with the reason.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from killing import differences, require_files_whole, write_rows

SAVING, BEFORE = 6, 3  # the checkpoint that is saved, and the one that is removed then


def run_tandem(args, folder, run, **environment):
    command = [args.tandem, "train", "--model.path", folder / "model", "--data.train", folder / "train.jsonl", "--data.held_out",
               folder / "held_out.jsonl", "--run.out", run, "--train.updates", 8, "--eval.every", 2, "--batch.global", 8,
               "--lora.rank", 4, "--lora.targets", "q,v", "--threads", 1, "--mirror.mode", "both", "--mirror.every", 2,
               "--checkpoint.every", 3, "--checkpoint.keep", 1, "--resume", "auto"]
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120, env={**os.environ, **environment})


def killing(args, folder, run, at):
    trace = folder / f"{run.name}.trace"
    done = run_tandem(args, folder, run, LD_PRELOAD=str(args.library), TANDEM_KILL_SAVING=str(SAVING), TANDEM_KILL_AT=str(at),
                      TANDEM_KILL_TRACE=str(trace))
    return done.returncode, [re.sub(r"\.tandem-[^/]*?-\d+\.", ".tandem.", line) for line in trace.read_text().splitlines()]


def one_kill(args, folder, number):
    run = folder / f"run{number}"
    code, calls = killing(args, folder, run, number)
    if code == 0 and len(calls) < number:  # the mirror had not got as far, so there was no mirror.h5 yet
        shutil.rmtree(run)
        return "a call more than this run made", []
    assert code == -signal.SIGKILL, f"call {number}: exit status {code}"
    require_files_whole(args.tandem, run)
    whole = sorted(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit())
    assert whole and whole[-1] in (BEFORE, SAVING), f"before {calls[-1]}: checkpoints {whole}"
    done = run_tandem(args, folder, run)
    assert done.returncode == 0, f"before {calls[-1]}: {done.stdout}"
    assert f"checkpoints/{whole[-1]}: update {whole[-1]} of 8" in done.stdout, f"before {calls[-1]}: {done.stdout}"
    found = differences(folder / "whole", run)
    assert not found, f"before {calls[-1]}: the resumed run differs: {found}"
    left = [str(path) for path in run.rglob("*") if ".tandem-" in path.name]
    assert not left, f"before {calls[-1]}: left behind: {left}"
    shutil.rmtree(run)
    return calls[-1], whole


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--last", type=int, default=10**6)
    parser.add_argument("--final", type=int, help="the last so many calls instead")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    if not shutil.which("h5dump"):
        print("skipped: no h5dump here")
        return 77
    with tempfile.TemporaryDirectory(prefix="tandem-kill-") as temporary:
        folder = pathlib.Path(temporary)
        subprocess.run([args.tandem, "init-model", "--preset", "tiny", "--out", str(folder / "model")], check=True,
                       stdout=subprocess.DEVNULL)
        write_rows(folder / "train.jsonl", 50, 1)
        write_rows(folder / "held_out.jsonl", 10, 2)
        code, calls = killing(args, folder, folder / "whole", 0)
        assert code == 0, "the unbroken run failed"
        assert calls[-1].startswith("remove checkpoints/3"), f"the older checkpoint's removal is not the last: {calls[-1]}"
        print(f"{len(calls)} calls in a checkpoint's saving")
        first = len(calls) - args.final + 1 if args.final else args.first
        chosen = range(first, min(args.last, len(calls)) + 1)
        assert len(chosen), f"no call from {first} to {args.last}"
        table = collections.OrderedDict()
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            jobs = [pool.submit(one_kill, args, folder, number) for number in chosen]
            for number, job in zip(chosen, jobs):
                try:
                    call, whole = job.result()
                except BaseException:
                    print(f"failed: --first {number} --last {number}", flush=True)
                    pool.shutdown(cancel_futures=True)
                    raise
                table.setdefault((call, tuple(whole)), []).append(number)
        for (call, whole), numbers in table.items():
            print(f"  killed {len(numbers)} times before {call}: whole were {', '.join(map(str, whole))}")
        kills = sum(len(numbers) for (_, whole), numbers in table.items() if whole)
        assert kills, "no kill came in time"
        print(f"{kills} kills, each resumed to the bits of the unbroken run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
