"""R41: a run of one rank, the mirror beside it, is killed at every system call that a checkpoint's saving makes and that
changes files: from the trajectory's publication before it to the removal of the older checkpoint after it. Each time a
whole checkpoint is there, and `--resume auto` goes on from it and leaves the bits of the unbroken run.

  kill_each_call.py --tandem PROGRAM [--first K] [--last K] [--jobs N]

strace kills at the K-th call of its name. MPI wakes its threads by more or fewer writes, and mirror.h5 is published when the
mirror has got somewhere: a kill may fall on a call near the one meant, so where each fell is printed, and the calls that
none fell on. Exit status 77: cannot run here, with the reason.
"""
import argparse
import collections
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from killing import differences, require_files_whole, write_rows

CALLS = ["mkdir", "write", "fsync", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir",
         "copy_file_range", "sendfile"]
BEGIN, END = '"update 6/8', '"checkpoint after update 6'


def command(args, folder, run):
    return [args.tandem, "train", "--model.path", folder / "model", "--data.train", folder / "train.jsonl", "--data.held_out",
            folder / "held_out.jsonl", "--run.out", run, "--train.updates", "8", "--eval.every", "4", "--batch.global", "8",
            "--lora.rank", "4", "--lora.targets", "q,v", "--threads", "1", "--mirror.mode", "both", "--mirror.every", "2",
            "--checkpoint.every", "3", "--checkpoint.keep", "1", "--checkpoint.minutes", "0", "--output.flush_s", "3600",
            "--log.every", "1", "--resume", "auto"]


def traced(args, folder, run, inject=()):
    """Exit status, and the calls of the main thread as strace writes them."""
    trace = folder / f"{run.name}.trace"
    words = ["strace", "-f", "-y", "-qq", "-s", "40", "-e", "trace=" + ",".join(CALLS), *inject, "-o", trace]
    done = subprocess.run([str(word) for word in words + command(args, folder, run)], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, timeout=120)
    lines = [line.split(None, 1) for line in trace.read_text(errors="replace").splitlines()]
    main = next((pid for pid, text in lines if "update 1/8" in text), None)
    return done.returncode, [text for pid, text in lines if pid == main and not text.startswith(("+++", "---"))]


def name_of(call):
    return call.partition("(")[0]


def shape(call):
    """A call's name and paths, without what differs between runs."""
    data = call.partition(">, ") if name_of(call) == "write" else (call, "", "")
    paths = re.findall(r'[<"](/[^">]*)[">]|"([^"/]*)"', data[0] if data[1] else call)
    words = [re.sub(r"^.*?/(run\d+|whole)/", "", re.sub(r"\.tandem-[^/]*?-\d+\.", ".tandem.", first or second)) for first, second in paths]
    return " ".join([name_of(call)] + words)


def calls_of_saving(calls):
    """(call, which of its name) of every call between the last line on update 6 and the line on the checkpoint."""
    begin = max(i for i, call in enumerate(calls) if BEGIN in call) + 1
    end = max(i for i, call in enumerate(calls) if END in call) + 1
    seen, found = collections.Counter(), []
    for i, call in enumerate(calls[:end]):
        seen[name_of(call)] += 1
        if i >= begin:
            found.append((shape(call), name_of(call), seen[name_of(call)]))
    return found


def one_kill(args, folder, number, call):
    expected, name, nth = call
    run = folder / f"run{number}"
    code, calls = traced(args, folder, run, ["-e", f"inject={name}:signal=KILL:when={nth}"])
    assert code != 0, f"{expected}: not killed"
    require_files_whole(args.tandem, run)
    whole = sorted(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit())
    earlier = '"checkpoint after update 3' in "".join(calls)
    assert whole or not earlier, f"{expected}: no checkpoint is left"
    said = f"checkpoints/{whole[-1]}: update {whole[-1]} of 8" if whole else "begun anew"
    done = subprocess.run([str(word) for word in command(args, folder, run)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120)
    assert done.returncode == 0, f"{expected}: {done.stdout}"
    assert said in done.stdout, f"{expected}: {done.stdout}"
    found = differences(folder / "whole", run)
    assert not found, f"{expected}: resumed run differs: {found}"
    left = [str(path) for path in run.rglob("*") if ".tandem-" in path.name]
    assert not left, f"{expected}: left behind: {left}"
    shutil.rmtree(run)
    return expected, shape(calls[-1]), whole[-1] if whole else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tandem", required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=10**6)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    for program in ("h5dump", "strace"):
        if not shutil.which(program):
            print(f"skipped: no {program} here")
            return 77
    if subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], stderr=subprocess.DEVNULL).returncode:
        print("skipped: strace may not trace here")
        return 77
    with tempfile.TemporaryDirectory(prefix="tandem-kill-") as temporary:
        folder = pathlib.Path(temporary)
        subprocess.run([args.tandem, "init-model", "--preset", "tiny", "--out", str(folder / "model")], check=True,
                       stdout=subprocess.DEVNULL)
        write_rows(folder / "train.jsonl", 50, 1)
        write_rows(folder / "held_out.jsonl", 10, 2)
        code, calls = traced(args, folder, folder / "whole")
        assert code == 0, "the unbroken run failed"
        saving = calls_of_saving(calls)
        print(f"{len(saving)} calls in a checkpoint's saving")
        chosen = range(args.first, min(args.last + 1, len(saving)))
        table = collections.OrderedDict()
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            jobs = [pool.submit(one_kill, args, folder, number, saving[number]) for number in chosen]
            for number, job in zip(chosen, jobs):
                try:
                    expected, actual, resumed = job.result()
                except BaseException:
                    print(f"failed: --first {number} --last {number} ({saving[number]})", flush=True)
                    pool.shutdown(cancel_futures=True)
                    raise
                key = (actual, resumed)
                table[key] = table.get(key, 0) + 1
        print("killed at (times): resumed from")
        for (call, resumed), times in table.items():
            print(f"  {call} ({times}): {resumed}")
        fell = {call for call, _ in table}
        for missed in dict.fromkeys(call for call, _, _ in saving if call not in fell):
            print(f"  on none of: {missed}")
        print(f"{len(chosen)} kills, each resumed to the bits of the unbroken run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
