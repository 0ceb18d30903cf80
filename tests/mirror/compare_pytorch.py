#!/usr/bin/python3
"""The mirror against PyTorch in float64 (tests/reference) on tiny models: both compute a whole run.

    compare_pytorch.py MIRROR_TOOL [--case NAME]

Every update's loss, norm, clip factor and samples, every evaluation, the initial and final digests; then, at the
mirror's own state before the last update, every adapter gradient, the probe, activations and norms. The limit is
relative 1e-12, far above float64's rounding in sums of this size (measured: at most 3e-14) and far below any
misreading.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
try:
    import numpy as np
    import torch
except ImportError as error:
    print(f"SKIPPED: {sys.executable} lacks {error.name} (Debian: python3-torch, python3-numpy)")
    sys.exit(77)
try:
    import h5py  # noqa: F401  (the reference's own modules need it)
except ImportError as error:
    print(f"SKIPPED: {sys.executable} lacks {error.name} (Debian: python3-h5py)")
    sys.exit(77)

import observation
import optimizer
import stack
import tiny_models
from model_files import ModelConfig
from run_spec import RunSpec, adapter_checksum, adapter_digest, model_digest, sha256_file

LIMIT = 1e-12
QWEN3_UNTIED = ModelConfig("qwen3", 40, 2, 4, 4, 12, 56, 101, 5e5, 1e-6, False)
LLAMA_TIED = ModelConfig("llama", 48, 2, 6, 2, 10, 64, 89, 1e4, 1e-5, True)

# model, its dtype and number of files, keys other than the defaults
CASES = {
    "qwen3-tied": (tiny_models.QWEN3_TIED, True, 1, {"lora.rank": 5, "lora.alpha": 9.0, "optim.weight_decay": 0.1}),
    "qwen3-untied": (QWEN3_UNTIED, False, 1, {"lora.targets": "q,k,v,o", "optim.schedule": "linear", "optim.clip": 0.0}),
    "llama-gqa": (tiny_models.LLAMA_UNTIED, False, 2, {"lora.rslora": True, "data.max_tokens": 30, "optim.lr_min": 0.001}),
    "llama-tied": (LLAMA_TIED, True, 1, {"lora.targets": "gate,up,down", "optim.schedule": "constant"}),
    "llama3-scaling": (tiny_models.LLAMA3_SCALED, False, 1, {"optim.beta1": 0.8, "optim.beta2": 0.95}),
    "qwen2-biases": (tiny_models.QWEN2_UNTIED, True, 3, {"data.max_tokens": 30, "data.truncate": "drop"}),
    "dropout": (tiny_models.QWEN3_TIED, False, 1, {"lora.dropout": 0.3, "seed.dropout": 77}),
}
DEFAULTS = {
    "batch.global": 5, "data.max_tokens": 64, "data.special_in_text": "encode", "data.targets": "all",
    "data.template": "auto", "data.truncate": "right", "eval.every": 4, "lora.alpha": 8.0, "lora.dropout": 0.0,
    "lora.init": None, "lora.rank": 4, "lora.rslora": False, "lora.targets": "q,k,v,o,gate,up,down",
    "optim.beta1": 0.9, "optim.beta2": 0.999, "optim.clip": 0.3, "optim.eps": 1e-08, "optim.lr": 0.02,
    "optim.lr_min": 0.0, "optim.schedule": "cosine", "optim.warmup": 2, "optim.weight_decay": 0.0,
    "seed.adapter": 11, "seed.dropout": 12, "seed.order": 13, "train.updates": 9,
}  # fmt: skip


def canonical_text(values):
    def write(value):
        if value is None:
            return "none"
        return repr(value).lower() if isinstance(value, bool) else json.dumps(value)

    return "".join(f"{key} = {write(values[key])}\n" for key in sorted(values))


def write_inputs(case, folder):
    config, bf16, shards, keys = CASES[case]
    tiny_models.write_model(folder / "model", config, 1, bf16=bf16, shards=shards)
    tiny_models.write_rows(folder / "train.jsonl", 17, config.vocab, 3, without_targets=(2,))
    tiny_models.write_rows(folder / "held_out.jsonl", 6, config.vocab, 4)
    values = {
        **DEFAULTS,
        **keys,
        "model.path": model_digest(folder / "model"),
        "data.train": sha256_file(folder / "train.jsonl"),
        "data.held_out": sha256_file(folder / "held_out.jsonl"),
    }
    (folder / "spec.txt").write_text(canonical_text(values))


class Checks:
    def __init__(self):
        self.failures, self.worst = [], {}

    def equal(self, what, ours, theirs):
        if ours != theirs:
            self.failures.append(f"{what}: the mirror has {ours}, PyTorch {theirs}")

    def close(self, what, ours, theirs):
        """Relative distance in the 2-norm."""
        ours, theirs = (np.asarray(x, dtype=np.float64).ravel() for x in (ours, theirs))
        size = np.linalg.norm(theirs)
        distance = np.linalg.norm(ours - theirs) / size if size else np.linalg.norm(ours)
        kind = what.split(":")[0]
        self.worst[kind] = max(self.worst.get(kind, 0.0), float(distance))
        if not distance <= LIMIT:
            self.failures.append(f"{what}: relative distance {distance:.3e}")


def compare_run(checks, mirror, run):
    """Both stacks' free runs."""
    adapter = run.adapter(run.initial)
    adamw = optimizer.AdamW(run.spec, adapter)
    evaluations = iter(mirror["evaluations"])

    def compare_evaluation(t):
        ours = next(evaluations)
        nll_sum, n_tokens = run.evaluate(adapter)
        checks.equal("evaluation", (ours["step"], ours["n_tokens"]), (t, n_tokens))
        checks.close("evaluation", ours["nll_sum"], nll_sum)

    checks.equal("initial digest", mirror["evaluations"][0]["adapter_digest"], adapter_digest(run.initial))
    compare_evaluation(0)
    for ours, (t, batch) in zip(mirror["updates"], run.batches()):
        theirs = run.gradient(t, batch, adapter)
        if theirs.n_targets:
            adamw.step(adapter, theirs.clipped(), run.spec.learning_rate(t))
            checks.close("loss", ours["loss"], theirs.loss)
        checks.close("norm", ours["grad_norm"], theirs.norm)
        checks.close("clip", ours["clip"], theirs.clip)
        checks.close("lr", ours["lr"], run.spec.learning_rate(t))
        checks.equal(
            f"update {t}",
            (ours["sample_ids"], ours["n_targets"], ours["optimizer_step"]),
            ([int(i) for i in batch], theirs.n_targets, adamw.steps),
        )
        if run.spec.evaluated(t):
            compare_evaluation(t)
    checks.equal("evaluations", list(evaluations), [])
    last = {name: p.detach().numpy() for name, p in adapter.items()}
    checks.equal("float32 of the last adapter", mirror["updates"][-1]["adapter_checksum"], adapter_checksum(last))
    checks.equal("digest of the last adapter", mirror["evaluations"][-1]["adapter_digest"], adapter_digest(last))


def compare_last_update(checks, mirror, run):
    """From the mirror's own state, so that no difference is left but this update's."""
    shapes = {name: a.shape for name, a in run.initial.items()}
    adapter = run.adapter({n: np.array(mirror["last_adapter"][n]).reshape(shapes[n]) for n in shapes})
    t, batch = list(run.batches())[-1]
    theirs = run.gradient(t, batch, adapter)
    checks.close("loss", mirror["last_nll_sum"] / theirs.n_targets, theirs.loss)
    for name, gradient in theirs.gradients.items():
        checks.close(f"gradient: {name}", np.array(mirror["last_gradient"][name]) / theirs.n_targets, gradient.numpy())
    probe, activation = run.probe.look(run.model, run.held_out, adapter, run.spec.lora_scale)
    for column, values in {**probe, **activation}.items():
        checks.close(f"probe: {column}", mirror["last_probe"][column], np.array(values))
    checks.close("ba_norm", mirror["last_probe"]["ba_norm"], observation.ba_norms(run.names, adapter, run.spec.lora_scale))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="default: all")
    parser.add_argument("mirror_tool")
    arguments = parser.parse_args(argv)
    tool = Path(arguments.mirror_tool).resolve()
    torch.set_num_threads(1)
    failed = False
    for case in [arguments.case] if arguments.case else CASES:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            write_inputs(case, folder)
            inputs = [folder / name for name in ("spec.txt", "model", "train.jsonl", "held_out.jsonl")]
            done = subprocess.run([tool, "run", *inputs, "none", "2"], capture_output=True, text=True)
            if done.returncode:
                print(f"{case}: FAILED: {done.stderr.strip()}")
                failed = True
                continue
            run = stack.Run(RunSpec(inputs[0].read_text()), *inputs[1:])
            checks, mirror = Checks(), json.loads(done.stdout)
            loaded = [[n, run.tensors[n].digest, run.tensors[n].dtype] for n in sorted(run.model.w)]
            checks.equal("load", [tensor[:3] for tensor in mirror["load"]], loaded)
            compare_run(checks, mirror, run)
            compare_last_update(checks, mirror, run)
        print(f"{case}: largest relative distance " + ", ".join(f"{k} {v:.1e}" for k, v in checks.worst.items()))
        for failure in checks.failures:
            print(f"  FAILED: {failure}")
        failed |= bool(checks.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
