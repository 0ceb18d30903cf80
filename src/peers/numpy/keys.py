"""The keys of a run: their defaults, a configuration file, the canonical texts and the digests in them."""

import hashlib
import json
import os
import re

TARGETS = ["q", "k", "v", "o", "gate", "up", "down"]
UNSET = object()  # a default that follows from other keys

# key: (default, type); None is `none`.
SPEC = {
    "model.path": (None, str), "data.train": (None, str), "data.held_out": (None, str),
    "data.template": ("auto", str), "data.max_tokens": (1024, int), "data.truncate": ("right", str),
    "data.targets": ("all", str), "data.special_in_text": ("encode", str),
    "lora.rank": (16, int), "lora.alpha": (32.0, float), "lora.targets": (",".join(TARGETS), str),
    "lora.rslora": (False, bool), "lora.dropout": (0.0, float), "lora.init": (None, str),
    "optim.lr": (0.0002, float), "optim.lr_min": (0.0, float), "optim.schedule": ("cosine", str),
    "optim.warmup": (UNSET, int), "optim.beta1": (0.9, float), "optim.beta2": (0.999, float),
    "optim.eps": (1e-8, float), "optim.weight_decay": (0.0, float), "optim.clip": (1.0, float),
    "batch.global": (16, int), "train.updates": (UNSET, int), "eval.every": (UNSET, int),
    "seed.adapter": (UNSET, int), "seed.order": (UNSET, int), "seed.dropout": (UNSET, int)}
ONLY_DEFAULTS = {"train.epochs": (1, int), "seed": (0, int)}
EXECUTION = {
    "precision": ("f32", str), "gpu": ("auto", str), "batch.micro": (4, int), "batch.deal": ("least_loaded", str),
    "mirror.every": (0, int), "mirror.mode": ("audit", str), "mirror.scope": ("batch", str),
    "mirror.rank": (-1, int), "mirror.threads": (1, int), "mirror.when_behind": ("wait", str),
    "mirror.on_mismatch": ("record", str), "snapshot.every": (0, int),
    "snapshot.what": ("adapter,m,v,gradient", str), "observe.every": (10, int),
    "observe.probe": (512, int), "memory.limit": (0.0, float), "threads": (0, int)}
NEITHER = {
    "mirror.calibration": (None, str), "data.cache": (None, str), "run.out": ("runs/train", str),
    "overwrite": (False, bool), "resume": ("never", str),
    "checkpoint.every": (0, int), "checkpoint.minutes": (15.0, float), "checkpoint.keep": (2, int),
    "output.flush_s": (10.0, float), "log.every": (10, int)}
KEYS = {**SPEC, **ONLY_DEFAULTS, **EXECUTION, **NEITHER}
PATHS = ["model.path", "data.train", "data.held_out", "lora.init"]
CHOICES = {"data.truncate": ("right", "drop"), "data.targets": ("all", "last"),
           "data.special_in_text": ("encode", "refuse", "plain"),
           "optim.schedule": ("cosine", "linear", "constant")}


class Refused(Exception):
    """Input that SPEC.md or this trainer does not accept."""


def parse(key, text):
    """The value that a text stands for; strings may stand in JSON's quotes."""
    if key not in KEYS:
        raise Refused(f"unknown key {key}")
    if text == "none":
        return None
    if text.startswith('"'):
        text = json.loads(text)
    kind = KEYS[key][1]
    if kind is bool:
        if text not in ("true", "false"):
            raise Refused(f"{key}: true or false expected, not {text}")
        return text == "true"
    try:
        return kind(text)
    except ValueError:
        raise Refused(f"{key}: {text} is not a number") from None


def read_config(path):
    """What the file says and no more; its paths start at its folder."""
    given = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = re.sub(r"(^|\s)#.*", "", line).strip()
            if not line:
                continue
            key, equals, text = (part.strip() for part in line.partition("="))
            if not equals or key in given:
                raise Refused(f"{path}:{number}: no `key = value`, or given twice: {line}")
            given[key] = parse(key, text)
    folder = os.path.dirname(os.path.abspath(path))
    return {k: os.path.join(folder, v) if k in PATHS and v is not None else v for k, v in given.items()}


def complete(given, n_train):
    """All keys, defaults filled in; n_train samples after rendering."""
    cfg = {key: given.get(key, default) for key, (default, _) in KEYS.items()}
    for part in ("adapter", "order", "dropout"):
        if cfg["seed." + part] is UNSET:
            cfg["seed." + part] = cfg["seed"]
    if cfg["train.updates"] is UNSET:
        cfg["train.updates"] = cfg["train.epochs"] * -(-n_train // cfg["batch.global"])
    last = cfg["train.updates"]
    if cfg["optim.warmup"] is UNSET:
        cfg["optim.warmup"] = (3 * last + 50) // 100
    if cfg["eval.every"] is UNSET:
        cfg["eval.every"] = -(-last // 42)
    asked = cfg["lora.targets"].replace(" ", "").split(",")
    if any(a not in TARGETS for a in asked):
        raise Refused("lora.targets: " + cfg["lora.targets"])
    cfg["lora.targets"] = ",".join(t for t in TARGETS if t in asked)
    for key, allowed in CHOICES.items():
        if cfg[key] not in allowed:
            raise Refused(f"{key} = {cfg[key]}: not one of {allowed}")
    if not 0 <= cfg["optim.warmup"] < last or cfg["eval.every"] < 1:
        raise Refused("optim.warmup must be less than train.updates, eval.every at least 1")
    return cfg


def canonical_text(values):
    def show(value):
        if value is None:
            return "none"
        if isinstance(value, bool):
            return "true" if value else "false"
        return repr(value) if isinstance(value, (int, float)) else json.dumps(value, ensure_ascii=False)

    return "".join(f"{key} = {show(values[key])}\n" for key in sorted(values, key=str.encode))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def file_digest(path):
    with open(path, "rb") as file:
        return sha256(file.read())


def files_digest(folder, names):
    """Over `name digest` of those that are there."""
    names = sorted((n for n in set(names) if os.path.exists(os.path.join(folder, n))), key=str.encode)
    return sha256("".join(f"{n} {file_digest(os.path.join(folder, n))}\n" for n in names).encode())


def model_digest(folder):
    weights = [n for n in os.listdir(folder) if n.endswith(".safetensors")]
    return files_digest(folder, weights + [
        "model.safetensors.index.json", "config.json", "tokenizer.json", "tokenizer_config.json",
        "chat_template.jinja", "generation_config.json"])


def adapter_folder_digest(folder):
    return files_digest(folder, ["adapter_config.json", "adapter_model.safetensors"])


def input_digests(cfg):
    """What stands for the paths in the canonical text."""
    make = {"model.path": model_digest, "data.train": file_digest, "data.held_out": file_digest,
            "lora.init": adapter_folder_digest}
    return {key: None if cfg[key] is None else make[key](cfg[key]) for key in PATHS}


def spec_text(cfg):
    return canonical_text({**{key: cfg[key] for key in SPEC}, **input_digests(cfg)})
