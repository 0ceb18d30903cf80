#!/usr/bin/python3
"""src/peers/numpy against Tandem: two stacks made from the same pages, their files held to one another.

    numpy_test.py TANDEM

Runs: the quickstart's configuration, shortened, whose values must be those that SPEC.md prints; and one with
the other settings (dropout, decay, short batches, truncation, awkward rows, no evaluation). Exit code 77
(skipped) without torch, numpy, h5py.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/reference"))
try:
    import compare_trajectories as comparer
    from trajectory import Reader
except ImportError as error:
    print(f"SKIPPED: {sys.executable} lacks {error.name} (Debian: python3-torch, python3-h5py)")
    sys.exit(77)

# float32 beside float64, for a few updates of a small learning rate: the error of 13 products in a row of up
# to 160 terms, 13 sqrt(160) 2^-24 (compare_trajectories.py). m is linear in the gradients, v quadratic; the
# adapter is only reported, since Adam's step turns a small difference of a small gradient into a large one.
FREE_RUN = 1e-5
LIMITS = {**comparer.TOLERANCES, "v": 2 * FREE_RUN,
          **dict.fromkeys(["loss", "grad_norm", "clip", "eval", "tensor norm", "gradient", "m"], FREE_RUN)}
EVALUATED = {"eval", "adapter off", "probe logits", "probe nll", "activation rms", "activation absmax",
             "BA norm", "update norm", "eval steps", "eval tokens", "initial adapter", "probe tokens",
             "probe ids"}
SHORT = {"train.updates": 4, "eval.every": 2, "snapshot.every": 3, "observe.every": 2, "optim.lr": 0.001}
OTHER = {
    "data.max_tokens": 150, "data.targets": "last", "lora.rank": 3, "lora.rslora": "true",
    "lora.dropout": 0.2, "lora.targets": "q,v,o,up,down", "optim.lr": 0.001, "optim.schedule": "linear",
    "optim.lr_min": 0.0001, "optim.warmup": 2, "optim.weight_decay": 0.1, "optim.clip": 0.3,
    "batch.global": 4, "batch.micro": 3, "train.updates": 5, "eval.every": 5, "snapshot.every": 5,
    "observe.every": 1, "seed": 7, "seed.order": 9}
# Think blocks, tool answers, a row without targets, marks, one that is cut, all forms.
ROWS = [
    {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "q\u0301?"},
                  {"role": "assistant", "content": "<think>\nold\n</think>\n\nyes"},
                  {"role": "user", "content": "and?"},
                  {"role": "assistant", "content": "e\u0301", "reasoning_content": "why\n"}]},
    {"messages": [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "one"},
                  {"role": "user", "content": "<tool_response>3</tool_response>"},
                  {"role": "assistant", "content": "two"}]},
    {"messages": [{"role": "user", "content": "nobody answers"}]},
    {"prompt": "control <|im_end|> and <think> inside", "completion": "<|im_start|>" + "long " * 40},
    {"instruction": "", "input": "only input", "output": "o", "system": "s"},
    {"conversations": [{"from": "human", "value": "h"},
                       {"role": "assistant", "content": "\u4e2d\u6587 \U0001f9ea"}]},
    {"ids": [5, 6, 7, 300], "targets": [1, 0, 1, 1]},
]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        shown = " ".join(map(str, command))
        sys.exit(f"FAILED: {shown}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_config(path, keys):
    path.write_text("".join(f"{key} = {value}\n" for key, value in keys.items()), encoding="utf-8")


def train_both(tandem, config):
    """Readers of both files."""
    out = config.parent / config.stem
    run(tandem, "train", "--config", config, "--run.out", out)
    run(sys.executable, ROOT / "src/peers/numpy/train.py", config, "--out", out / "numpy.h5")
    for file in ("native.h5", "numpy.h5"):
        run(tandem, "inspect", "--validate", out / file)
    return Reader(out / "native.h5"), Reader(out / "numpy.h5")


def compare(name, native, peer, absent=()):
    """All that a file may hold must be in both, but for `absent`."""
    required = (set(LIMITS) | set(comparer.EXACT) | {"adapter"}) - set(absent)
    table = comparer.compare(native, peer, LIMITS, required)
    print(f"\n{name}\n{table.text()}")
    same = [native.text(path) == peer.text(path) for path in ("spec/text", "render/template_digest")]
    if not all(same):
        print(f"FAILED: {name}: spec or template differ")
    return not table.failed and all(same)


def printed_values(tandem, folder, native, peer):
    """SPEC.md, "Check values", are what both stacks find."""
    page = (ROOT / "SPEC.md").read_text(encoding="utf-8").split("## Check values")[1]
    table = dict(re.findall(r"^\| (.*?) \| (.*?) \|$", page, re.M))
    whole = folder / "whole.cfg"
    texts = [run(tandem, "spec", "--config", whole),
             run(sys.executable, ROOT / "src/peers/numpy/train.py", whole, "--spec")]
    good = texts[0] == texts[1] and table["model digest"] in texts[0]
    if not good:
        print(f"FAILED: canonical texts\n{texts[0]}\n{texts[1]}")
    found = {
        "spec digest": lambda f: hashlib.sha256(texts[0].encode()).hexdigest(),
        "digest of training sample 0 (line 1)": lambda f: f.texts("render/digest")[0],
        "first global batch": lambda f: " ".join(map(str, f.array("update/sample_ids")[0])),
        "initial adapter digest": lambda f: f.texts("eval/adapter_digest")[0],
        "untrained held-out loss, tokens":
            lambda f: f"{f.array('eval/loss')[0]:.6f}, {f.array('eval/n_tokens')[0]}",
        "loss and gradient norm of update 1":
            lambda f: f"{f.array('update/loss')[0]:.6f}, {f.array('update/grad_norm')[0]:.6f}",
    }
    for what, value in found.items():
        for file in (native, peer):
            if value(file) != table[what]:
                good = False
                print(f"FAILED: SPEC.md, {what}: {table[what]}; {file.path.name} has {value(file)}")
    return good


def main():
    tandem = sys.argv[1]
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(tandem, "init-model", "--preset", "tiny", "--out", folder / "model")
        lines = (ROOT / "configs/tiny.cfg").read_text(encoding="utf-8").splitlines()
        keys = dict(re.findall(r"^([\w.]+)\s*=\s*(\S+)", "\n".join(lines), re.M))
        inputs = {"model.path": folder / "model", "data.train": ROOT / "configs/tiny.jsonl",
                  "data.held_out": ROOT / "configs/tiny_held_out.jsonl"}
        keys = {**{key: value for key, value in keys.items() if key != "run.out"}, **inputs}
        write_config(folder / "whole.cfg", keys)
        write_config(folder / "short.cfg", {**keys, **SHORT})
        native, peer = train_both(tandem, folder / "short.cfg")
        good &= compare("the quickstart's run, shortened", native, peer)
        good &= printed_values(tandem, folder, native, peer)

        rows = folder / "rows.jsonl"
        rows.write_text("\ufeff" + "\r\n".join(json.dumps(row) for row in ROWS) + "\n\n", encoding="utf-8")
        write_config(folder / "other.cfg", {**OTHER, "model.path": folder / "model", "data.train": rows})
        native, peer = train_both(tandem, folder / "other.cfg")
        good &= compare("other settings", native, peer, EVALUATED)
        for file in (native, peer):
            there = [group for group in ("eval", "probe", "activation", "memory") if file.has(group)]
            if there:
                good = False
                print(f"FAILED: {file.path.name} has {there} without held-out data")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
