#!/usr/bin/python3
"""What the mirror costs a run, on a machine with two cores: native on one of them, the mirror on the other.

    mirror_cost.py TANDEM WORK [--pairs 8] [--updates 100] [--part waiting|pairs]

First, mirror.when_behind = wait, for mirror.every = 1, 10, 100 at both scopes: the mirror's work as a share of the
run without it, foretold before the run and taken afterwards, and how much longer the whole run took. Then skip with
mirror.every = 1, where the mirror never rests, in pairs with a run without it, in turn and in both orders: the
slow-down of native's updates with its 95 % interval (Student's t on the logarithms of the pairs' ratios).
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np

# Two-sided 97.5 % points of Student's t, by degrees of freedom.
STUDENT = {3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 11: 2.201, 15: 2.131}
ROOT = Path(__file__).resolve().parents[2]


class Bench:
    def __init__(self, tandem, work, updates):
        self.tandem, self.work, self.updates = tandem, work, updates
        model = work / "model"
        if not model.exists():
            sizes = "--hidden 256 --layers 3 --heads 4 --kv-heads 2 --head-dim 64 --intermediate 768".split()
            subprocess.run([tandem, "init-model", *sizes, "--out", model], check=True, stdout=subprocess.DEVNULL)

    def run(self, *mirror):
        """(seconds of the program, seconds of native's updates, provenance)"""
        out = self.work / "run"
        command = [self.tandem, "train", "--config", ROOT / "configs/tiny.cfg", "--model", self.work / "model",
                   "--run.out", out, "--overwrite", "--threads", "1", "--batch.micro", "2", "--snapshot.every", "0",
                   "--train.updates", str(self.updates), "--eval.every", str(self.updates), *mirror]
        start = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        seconds = time.monotonic() - start
        if done.returncode != 0:
            sys.exit(done.stdout)
        with h5py.File(out / "native.h5") as file:
            return seconds, float(file["update/seconds"][:].sum()), dict(file["provenance"].attrs)


def cost_of_waiting(bench):
    bench.run()
    base, base_updates, _ = bench.run()
    print(f"without the mirror: {base:.1f} s, {base_updates:.1f} s of them {bench.updates} updates")
    print("| scope | every | audits | mirror's work, foretold | taken | run longer by |")
    print("|---|---|---|---|---|---|")
    for scope in ("batch", "microbatch"):
        for every in (1, 10, 100):
            seconds, _, facts = bench.run("--mirror.every", str(every), "--mirror.scope", scope)
            audits = float(facts["mirror_audits"])  # at least one: every is at most --updates
            foretold = 100 * float(facts["mirror_seconds_per_audit_expected"]) * audits / base
            taken = 100 * float(facts["mirror_seconds_per_audit"]) * audits / base
            print(f"| {scope} | {every} | {audits:.0f} | {foretold:.1f} % | {taken:.1f} % | "
                  f"{100 * (seconds / base - 1):.1f} % |", flush=True)


def slow_down_of_skipping(bench, pairs):
    ratios, skipped = [], []
    for pair in range(pairs):
        runs = {}
        for with_mirror in (False, True) if pair % 2 == 0 else (True, False):
            more = ("--mirror.every", "1", "--mirror.when_behind", "skip") if with_mirror else ()
            runs[with_mirror] = bench.run(*more)
        ratios.append(runs[True][1] / runs[False][1])
        skipped.append(float(runs[True][2]["mirror_audits_skipped"]))
    logs = np.log(ratios)
    half = STUDENT[len(logs) - 1] * logs.std(ddof=1) / np.sqrt(len(logs))
    low, middle, high = 100 * np.expm1([logs.mean() - half, logs.mean(), logs.mean() + half])
    print(f"skip, {pairs} pairs: updates slower by {middle:.2f} % (95 % interval {low:.2f} to {high:.2f} %), "
          f"{np.mean(skipped):.0f} of {bench.updates} audits skipped; pairs {np.round(ratios, 4).tolist()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tandem")
    parser.add_argument("work", type=Path)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--part", choices=["waiting", "pairs"], help="one of the two alone")
    options = parser.parse_args()
    if options.pairs - 1 not in STUDENT:
        parser.error(f"--pairs is one of {[n + 1 for n in STUDENT]}")
    if options.updates < 100:
        parser.error("--updates is at least 100, the rarest audits")
    options.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.tandem, options.work, options.updates)

    if options.part != "pairs":
        cost_of_waiting(bench)
    if options.part != "waiting":
        slow_down_of_skipping(bench, options.pairs)


if __name__ == "__main__":
    main()
