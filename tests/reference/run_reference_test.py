#!/usr/bin/python3
"""Tandem against the PyTorch reference on a tiny model: free run and lock-step. Exit 0 only if both agree.

    run_reference_test.py [--case NAME] TANDEM WORK_FOLDER

Free run: each stack keeps its own state through all updates. Lock-step: the reference recomputes every
update from the state in native's snapshots, which leaves only one update's rounding in the gradients and
is the sharp test.
"""

import argparse
import math
import shutil
import subprocess
import sys
from pathlib import Path

try:
    import h5py  # noqa: F401
    import numpy as np
    import torch
except ImportError as error:
    print(
        f"SKIPPED: {sys.executable} lacks {error.name} (Debian: python3-torch, python3-numpy, python3-h5py)"
    )
    sys.exit(77)

import compare_trajectories
import random_numbers
import tandem_reference
import tiny_models
from model_files import read_config, read_peft_adapter
from run_spec import adapter_checksum, adapter_digest
from trajectory import Reader

N_TRAIN, N_HELD_OUT, BATCH, UPDATES = 41, 6, 8, 20
# Part 1's conditions, for float32 against float64.
LOSS_LIMIT, GRADIENT_LIMIT, FREE_RUN_LIMIT = 1e-6, 1e-5, 1e-5
OPTIMIZER_LIMIT = 8  # u(float32) of the last sum, see lock_step.optimizer_errors

COMMON = {
    "batch.global": BATCH,
    "batch.micro": 3,
    "train.updates": UPDATES,
    "eval.every": 7,
    "snapshot.every": 1,
    "optim.lr": 0.002,
    "optim.warmup": 4,
    "seed": 20240607,
    "mirror.every": 0,
    "data.max_tokens": 64,
}
CASES = {
    "qwen3-tied": {
        "lora.rank": 5,
        "lora.alpha": 9.0,
        "optim.weight_decay": 0.1,
        "optim.clip": 0.2,
        "optim.lr_min": 0.0001,
    },
    "llama-gqa": {
        "lora.rank": 4,
        "lora.alpha": 3.0,
        "lora.rslora": "true",
        "lora.targets": "q,v,o,up,down",
        "optim.schedule": "linear",
        "optim.clip": 0.3,
        "optim.beta2": 0.95,
        "data.max_tokens": 30,
    },
    "llama3-dropout": {
        "lora.rank": 6,
        "lora.alpha": 12.0,
        "lora.dropout": 0.3,
        "seed.dropout": 77,
        "optim.clip": 0.3,
    },
    "qwen2-shards": {
        "lora.rank": 4,
        "lora.alpha": 8.0,
        "lora.targets": "q,k,v,o,down",
        "lora.dropout": 0.1,
        "optim.clip": 0.2,
    },
    "fresh-model": {"lora.rank": 8, "lora.alpha": 16.0, "optim.weight_decay": 0.01, "optim.clip": 0.01},
}


def make_model(case, tandem, folder):
    if case == "qwen3-tied":
        tiny_models.write_model(folder, tiny_models.QWEN3_TIED, 1, bf16=True)
    elif case == "llama-gqa":
        tiny_models.write_model(folder, tiny_models.LLAMA_UNTIED, 2)
    elif case == "llama3-dropout":
        tiny_models.write_model(folder, tiny_models.LLAMA3_SCALED, 6)
    elif case == "qwen2-shards":
        tiny_models.write_model(folder, tiny_models.QWEN2_UNTIED, 7, bf16=True, shards=3)
    else:
        subprocess.run([tandem, "init-model", "--preset", "tiny", "--seed", "5", "--out", folder], check=True)


def write_inputs(case, tandem, work):
    """Model, rows and config. The last batch of an epoch is one sample, and without targets: an update of
    nothing.
    """
    make_model(case, tandem, work / "model")
    vocab = read_config(work / "model" / "config.json").vocab
    order = random_numbers.epoch_order(COMMON["seed"], 0, N_TRAIN)
    tiny_models.write_rows(
        work / "train.jsonl", N_TRAIN, vocab, 3, without_targets=(int(order[-1]), int(order[3]))
    )
    tiny_models.write_rows(work / "held_out.jsonl", N_HELD_OUT, vocab, 4)
    settings = {
        **COMMON,
        **CASES[case],
        "model.path": work / "model",
        "data.train": work / "train.jsonl",
        "data.held_out": work / "held_out.jsonl",
        "run.out": work / "run",
    }
    (work / "run.cfg").write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))


def run_stacks(tandem, work):
    with open(work / "spec.txt", "wb") as f:
        subprocess.run([tandem, "spec", "--config", work / "run.cfg"], stdout=f, check=True)
    subprocess.run([tandem, "train", "--config", work / "run.cfg"], check=True)
    inputs = [
        "--spec",
        work / "spec.txt",
        "--model",
        work / "model",
        "--train",
        work / "train.jsonl",
        "--held-out",
        work / "held_out.jsonl",
        "--quiet",
    ]
    for options in (
        ["--out", work / "pytorch.h5", "--snapshot-every", "1"],
        ["--out", work / "lock_step.h5", "--lock-step", work / "run" / "native.h5"],
    ):
        if tandem_reference.main([str(o) for o in inputs + options]) != 0:
            sys.exit(1)
        # A peer's file must be one that Tandem reads.
        subprocess.run([tandem, "inspect", options[1]], stdout=subprocess.DEVNULL, check=True)


class Checks:
    def __init__(self):
        self.failures = []

    def that(self, condition, text):
        print(f"{'ok    ' if condition else 'FAILED'}  {text}")
        if not condition:
            self.failures.append(text)

    def table(self, title, table):
        print(f"\n{title}\n{table.text()}")
        if table.failed:
            self.failures.append(title)


def check_native_file(checks, native, work):
    """The file agrees with itself: snapshots, norms, checksums and the adapter's folder."""
    updates = native.array("update/step")
    checks.that(updates.tolist() == list(range(1, UPDATES + 1)), f"native has updates 1..{UPDATES}")
    checks.that(native.snapshot_steps() == updates.tolist(), "native has a snapshot of each")
    scored = native.array("update/n_targets") > 0
    checks.that(not scored.all() and scored.sum() > UPDATES / 2, "some updates have nothing to score")
    checks.that(bool((native.array("update/clip") < 1).any()), "clipping was active")
    norms, sums = [], []
    for t in native.snapshot_steps():
        norm = math.sqrt(sum(float(np.sum(g * g)) for g in native.snapshot(t, "gradient").values()))
        norms.append(abs(norm - native.array("update/grad_norm")[t - 1]) <= 1e-6 * norm)
    after = [int(c) for c in native.array("update/adapter_checksum")]
    for t in range(2, UPDATES + 1):
        sums.append(adapter_checksum(native.snapshot(t, "adapter")) == after[t - 2])
    checks.that(all(norms), "the snapshots' gradients have the recorded norms")
    checks.that(all(sums), "the snapshots' adapters have the recorded checksums")
    initial = adapter_digest(native.snapshot(1, "adapter"))
    checks.that(
        initial == native.texts("eval/adapter_digest")[0], "the first snapshot holds the initial adapter"
    )
    saved = read_peft_adapter(work / "run" / "adapter")
    same = (
        adapter_checksum(saved) == after[-1]
        and adapter_digest(saved) == native.texts("eval/adapter_digest")[-1]
    )
    checks.that(same, "the saved adapter has the checksum and digest of the last update")
    first = native.snapshot(1, "gradient")
    checks.that(
        all(not g.any() for n, g in first.items() if "lora_A" in n),
        "at update 1 the gradient of A is exactly 0",
    )


def check_audits(checks, audit):
    checks.that(
        audit.array("audit/step").tolist() == list(range(1, UPDATES + 1)), "every update was recomputed"
    )
    # The last step's result lies in no snapshot.
    for column, rows, limit in (
        ("loss_error", UPDATES, LOSS_LIMIT),
        ("norm_error", UPDATES, GRADIENT_LIMIT),
        ("relative_error", UPDATES, GRADIENT_LIMIT),
        ("optimizer_error", UPDATES - 1, OPTIMIZER_LIMIT),
    ):
        worst = float(np.max(audit.array(f"audit/{column}")[:rows]))
        checks.that(worst <= limit, f"lock-step {column}: largest {worst:.3e}, limit {limit:g}")


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, default="qwen3-tied")
    parser.add_argument("tandem", help="the program")
    parser.add_argument(
        "work", type=Path, help="folder for inputs and results; those of an earlier test are replaced"
    )
    arguments = parser.parse_args(argv)
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    for name in ("model", "run", "pytorch.snapshots", "lock_step.snapshots"):
        shutil.rmtree(work / name, ignore_errors=True)
    torch.set_num_threads(1)
    try:
        write_inputs(arguments.case, arguments.tandem, work)
        run_stacks(arguments.tandem, work)
    except subprocess.CalledProcessError as error:
        print(f"FAILED: {' '.join(map(str, error.cmd))}: exit status {error.returncode}")
        return 1

    checks = Checks()
    native, free, locked = (Reader(work / name) for name in ("run/native.h5", "pytorch.h5", "lock_step.h5"))
    check_native_file(checks, native, work)
    check_audits(checks, locked)
    tolerances = compare_trajectories.TOLERANCES
    required = set(tolerances) | set(compare_trajectories.EXACT) | {"gradient", "adapter", "m", "v"}
    limits = {name: FREE_RUN_LIMIT for name in ("loss", "grad_norm", "eval")}
    checks.table("Free run", compare_trajectories.compare(native, free, {**tolerances, **limits}, required))
    limits = {
        "loss": LOSS_LIMIT,
        "grad_norm": GRADIENT_LIMIT,
        "gradient": GRADIENT_LIMIT,
        "adapter": 0.0,
        "m": 0.0,
        "v": 0.0,
    }
    required = set(limits) | {"sample ids", "n_targets"}
    checks.table(
        "Lock-step", compare_trajectories.compare(native, locked, {**tolerances, **limits}, required)
    )
    print(
        f"\n{arguments.case}: {'agrees' if not checks.failures else 'DIFFERS: ' + '; '.join(checks.failures)}"
    )
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
