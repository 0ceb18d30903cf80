"""Reads the reference's inputs: config.json, safetensors and shards, tokenised JSONL rows, a PEFT adapter."""

import hashlib
import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Optional

import numpy as np

from run_spec import sample_digest


class InputError(ValueError):
    pass


@dataclass
class Tensor:
    dtype: str
    values: np.ndarray  # F32 and F16 as themselves, BF16 widened to float32 (exact)
    digest: str  # SHA-256 of the bytes in the file


def read_safetensors(path):
    """{name: Tensor}. 8 bytes little-endian header length, JSON header, then the tensors' bytes without
    holes.
    """
    data = Path(path).read_bytes()
    if len(data) < 8:
        raise InputError(f"{path}: shorter than a safetensors header")
    header_bytes = int.from_bytes(data[:8], "little")
    if header_bytes > len(data) - 8:
        raise InputError(f"{path}: header of {header_bytes} bytes in a file of {len(data)}")
    header = json.loads(data[8 : 8 + header_bytes])
    body = memoryview(data)[8 + header_bytes :]
    tensors, covered = {}, 0
    header.pop("__metadata__", None)
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"][0]):
        begin, end = entry["data_offsets"]
        item_bytes = {"F32": 4, "BF16": 2, "F16": 2}.get(entry["dtype"])
        if item_bytes is None:
            raise InputError(f"{path}: {name} has the type {entry['dtype']}; F32, BF16 and F16 are read")
        if begin != covered or end > len(body) or end - begin != math.prod(entry["shape"]) * item_bytes:
            raise InputError(
                f"{path}: {name} lies at [{begin}, {end}), which does not fit its shape or its neighbour"
            )
        covered = end
        raw = bytes(body[begin:end])
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, "<f4" if entry["dtype"] == "F32" else "<f2")
        tensors[name] = Tensor(
            entry["dtype"], values.reshape(entry["shape"]), hashlib.sha256(raw).hexdigest()
        )
    if covered != len(body):
        raise InputError(f"{path}: {len(body) - covered} bytes after the last tensor")
    return tensors


def read_model_tensors(folder):
    """{name: Tensor} of model.safetensors, else of the shards under model.safetensors.index.json."""
    folder = Path(folder)
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists() or not index.exists():
        return read_safetensors(folder / "model.safetensors")
    shard_of = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    tensors = {}
    for shard in sorted(set(shard_of.values())):
        for name, tensor in read_safetensors(folder / shard).items():
            if shard_of.get(name) != shard:
                raise InputError(f"{index}: {name} lies in {shard}, the index says {shard_of.get(name)}")
            tensors[name] = tensor
    missing = sorted(set(shard_of) - set(tensors))
    if missing:
        raise InputError(f"{index}: {missing[0]} is not in {shard_of[missing[0]]}")
    return tensors


@dataclass
class Llama3Rope:
    """Llama 3's scaling of the rotary frequencies, as its config.json names the values."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass
class ModelConfig:
    kind: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    rope_theta: float
    eps: float
    tied: bool
    scaling: Optional[Llama3Rope] = None

    @property
    def qkv_bias(self):
        return self.kind == "qwen2"


def read_config(path):
    """Defaults and refusals as in SPEC.md, "Model"."""
    c = json.loads(Path(path).read_text(encoding="utf-8"))
    kind = c.get("model_type")
    if kind not in ("qwen3", "qwen2", "llama"):
        raise InputError(f"{path}: model_type {kind!r}; qwen3, qwen2 and llama are known")
    # Old configurations hold rope_theta and rope_scaling, new ones both in rope_parameters.
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type not in ("default", "llama3"):
        raise InputError(f"{path}: rope scaling {rope_type!r} is not part of the specification")
    llama3 = {f.name: rope[f.name] for f in fields(Llama3Rope)} if rope_type == "llama3" else None
    if c.get("attention_bias") or c.get("mlp_bias") or c.get("use_sliding_window"):
        raise InputError(f"{path}: such biases and sliding windows are not part of the specification")
    if c.get("hidden_act", "silu") != "silu":
        raise InputError(f"{path}: hidden_act {c['hidden_act']!r}; silu is known")
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    head_dim = c.get("head_dim") or (128 if kind == "qwen3" else hidden // heads)
    return ModelConfig(
        kind=kind,
        hidden=hidden,
        layers=c["num_hidden_layers"],
        heads=heads,
        kv_heads=c.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        intermediate=c["intermediate_size"],
        vocab=c["vocab_size"],
        rope_theta=float(rope.get("rope_theta", c.get("rope_theta", 1e4))),
        eps=float(c.get("rms_norm_eps", 1e-6)),
        tied=bool(c.get("tie_word_embeddings", False)),
        scaling=Llama3Rope(**llama3) if llama3 else None,
    )


@dataclass
class Sample:
    ids: np.ndarray  # int64 [n]
    targets: np.ndarray  # uint8 [n]

    @property
    def scored(self):
        """Positions p >= 1 with target mark 1; p is predicted from p-1."""
        positions = np.nonzero(self.targets)[0]
        return positions[positions >= 1]

    @property
    def digest(self):
        return sample_digest(self.ids, self.targets)


def read_samples(path, max_tokens, truncate, vocab):
    """Rows {"ids": [...], "targets": [0/1, ...]}, one a line; blank lines are skipped."""
    samples = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        row = json.loads(line)
        if "ids" not in row or "targets" not in row or len(row["ids"]) != len(row["targets"]):
            raise InputError(f"{path}:{number}: a tokenised row has ids and targets of one length")
        if len(row["ids"]) > max_tokens:
            if truncate == "drop":
                continue
            row = {key: row[key][:max_tokens] for key in ("ids", "targets")}
        ids = np.asarray(row["ids"], dtype=np.int64)
        if ids.size and not (0 <= ids.min() and ids.max() < vocab):
            raise InputError(f"{path}:{number}: an id outside [0, {vocab})")
        samples.append(Sample(ids, np.asarray(row["targets"], dtype=np.uint8)))
    return samples


def read_peft_adapter(folder):
    """{<module>.lora_A.weight: float32 array} of adapter_model.safetensors."""
    prefix = "base_model.model."
    tensors = read_safetensors(Path(folder) / "adapter_model.safetensors")
    return {name.removeprefix(prefix): t.values.astype(np.float32) for name, t in tensors.items()}
