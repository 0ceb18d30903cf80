"""The canonical text of a run (SPEC.md, "Keys"), the learning rate and the digests of inputs and adapters."""

import hashlib
import json
import math
from pathlib import Path

import numpy as np

from random_numbers import splitmix64

TARGETS = ("q", "k", "v", "o", "gate", "up", "down")

DEFAULTS = {
    "model.path": "",
    "data.train": "",
    "data.held_out": "",
    "data.template": "auto",
    "data.max_tokens": 1024,
    "data.truncate": "right",
    "data.targets": "all",
    "data.special_in_text": "encode",
    "lora.rank": 16,
    "lora.alpha": 32.0,
    "lora.targets": ",".join(TARGETS),
    "lora.rslora": False,
    "lora.dropout": 0.0,
    "lora.init": "",
    "optim.lr": 0.0002,
    "optim.lr_min": 0.0,
    "optim.schedule": "cosine",
    "optim.warmup": None,
    "optim.beta1": 0.9,
    "optim.beta2": 0.999,
    "optim.eps": 1e-8,
    "optim.weight_decay": 0.0,
    "optim.clip": 1.0,
    "batch.global": 16,
    "train.epochs": 1,
    "train.updates": None,
    "eval.every": None,
    "seed.adapter": 0,
    "seed.order": 0,
    "seed.dropout": 0,
}
INTEGERS = ("optim.warmup", "train.updates", "eval.every")


class SpecError(ValueError):
    pass


def read_value(key, text):
    default = DEFAULTS[key]
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text]
        if isinstance(default, int) or key in INTEGERS:
            return int(text)
        if isinstance(default, float):
            return float(text)
        value = json.loads(text) if text.startswith('"') else text
        return "" if value == "none" else value
    except (ValueError, KeyError) as error:
        raise SpecError(f"{key}: cannot read {text!r}") from error


class RunSpec:
    """Values by key; `text` is kept byte for byte, because peers copy it into their trajectory."""

    def __init__(self, text):
        self.text = text
        self.values = dict(DEFAULTS)
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            key, separator, value = line.partition("=")
            key, value = key.strip(), value.strip()
            if not separator:
                raise SpecError(f"line {number}: no '=' in {line!r}")
            if key == "seed":
                for name in ("seed.adapter", "seed.order", "seed.dropout"):
                    self.values[name] = int(value)
            elif key in DEFAULTS:
                self.values[key] = read_value(key, value)
            else:
                raise SpecError(f"line {number}: unknown key {key}")
        given = [t for t in self["lora.targets"].split(",") if t]
        unknown = [t for t in given if t not in TARGETS]
        if unknown or not given:
            raise SpecError(f"lora.targets: {self['lora.targets']!r}; choose from {','.join(TARGETS)}")
        self.lora_targets = [t for t in TARGETS if t in given]

    def __getitem__(self, key):
        return self.values[key]

    @property
    def digest(self):
        return text_digest(self.text)

    @property
    def lora_scale(self):
        rank = self["lora.rank"]
        return self["lora.alpha"] / (math.sqrt(rank) if self["lora.rslora"] else rank)

    def resolve(self, n_train):
        """Fills in what depends on the number of training samples: T, warm-up, evaluation interval."""
        v = self.values
        if v["train.updates"] is None:
            v["train.updates"] = v["train.epochs"] * -(-n_train // v["batch.global"])
        if v["optim.warmup"] is None:
            v["optim.warmup"] = (3 * v["train.updates"] + 50) // 100
        if v["eval.every"] is None:
            v["eval.every"] = -(-v["train.updates"] // 42)
        if not 0 <= v["optim.warmup"] < v["train.updates"]:
            raise SpecError(f"optim.warmup: {v['optim.warmup']} is not in [0, {v['train.updates']})")

    def learning_rate(self, t):
        """Of update t = 1..T, in double, left to right as SPEC.md writes it."""
        lr, minimum = self["optim.lr"], self["optim.lr_min"]
        warmup, total = self["optim.warmup"], self["train.updates"]
        if t <= warmup:
            return lr * t / warmup
        if self["optim.schedule"] == "cosine":
            return minimum + (lr - minimum) * (1 + math.cos(math.pi * (t - warmup) / (total - warmup))) / 2
        if self["optim.schedule"] == "linear":
            return minimum + (lr - minimum) * (total - t) / (total - warmup)
        if self["optim.schedule"] == "constant":
            return lr
        raise SpecError(f"optim.schedule: {self['optim.schedule']!r}")

    def evaluated(self, t):
        return t == 0 or t % self["eval.every"] == 0 or t == self["train.updates"]


def text_digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def sha256_file(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def files_digest(folder, names):
    """SHA-256 over one line `name sha256` for each of the names that is there, sorted by name."""
    lines = [
        f"{name} {sha256_file(Path(folder) / name)}\n"
        for name in sorted(names)
        if (Path(folder) / name).exists()
    ]
    return text_digest("".join(lines))


def model_digest(folder):
    names = {
        "config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "generation_config.json",
    }
    return files_digest(folder, names | {p.name for p in Path(folder).glob("*.safetensors")})


def peft_digest(folder):
    return files_digest(folder, {"adapter_config.json", "adapter_model.safetensors"})


def adapter_digest(tensors):
    """tensors: {name: array}. SHA-256 of the float32 bytes in byte order of the names."""
    h = hashlib.sha256()
    for name in sorted(tensors, key=lambda n: n.encode("utf-8")):
        h.update(np.ascontiguousarray(tensors[name], dtype="<f4").tobytes())
    return h.hexdigest()


def adapter_checksum(tensors):
    """Sum of (splitmix64(i)|1) * float32 bits mod 2^64; i counts on through all tensors."""
    total, begin = 0, 0
    for name in sorted(tensors, key=lambda n: n.encode("utf-8")):
        bits = np.ascontiguousarray(tensors[name], dtype="<f4").ravel().view("<u4").astype(np.uint64)
        weight = splitmix64(np.arange(begin, begin + bits.size, dtype=np.uint64)) | np.uint64(1)
        total = (total + int(np.sum(weight * bits, dtype=np.uint64))) & ((1 << 64) - 1)
        begin += bits.size
    return total


def sample_digest(ids, targets):
    return hashlib.sha256(
        np.asarray(ids, dtype="<i4").tobytes() + np.asarray(targets, dtype=np.uint8).tobytes()
    ).hexdigest()
