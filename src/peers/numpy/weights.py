"""A model's configuration and tensors, widened to float64 (SPEC.md, "Model")."""

import json
import os
import struct
import sys

import numpy as np
from keys import TARGETS, Refused, sha256

PROJECTIONS = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
               "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def read_safetensors(path):
    """name -> (dtype, shape, bytes)."""
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    tensors = {}
    for name, one in header.items():
        first, last = one["data_offsets"]
        tensors[name] = (one["dtype"], one["shape"], data[begin + first:begin + last])
    return tensors


def widen(dtype, shape, raw):
    if dtype == "BF16":
        values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif dtype in ("F16", "F32"):
        values = np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[dtype])
    else:
        raise Refused(f"a tensor of type {dtype}")
    return values.astype(np.float64).reshape(shape)


class Config:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            c = {key: value for key, value in json.load(file).items() if value is not None}
        rope = c.get("rope_parameters", {})
        other = [c.get("model_type") != "qwen3", "rope_scaling" in c,
                 rope.get("rope_type", "default") != "default", c.get("attention_bias"),
                 c.get("use_sliding_window", "sliding_window" in c),
                 any(kind != "full_attention" for kind in c.get("layer_types", [])),
                 c.get("hidden_act", "silu") != "silu"]
        if any(other):
            raise Refused("only Qwen3 without rope scaling, biases, sliding windows, other activations")
        self.hidden, self.inner = c["hidden_size"], c["intermediate_size"]
        self.layers, self.vocab = c["num_hidden_layers"], c["vocab_size"]
        self.heads = c["num_attention_heads"]
        self.kv = c.get("num_key_value_heads", self.heads)
        self.dim = c.get("head_dim", 128)
        self.theta = float(c.get("rope_theta", rope.get("rope_theta", 1e4)))
        self.eps = float(c.get("rms_norm_eps", 1e-6))
        self.tied = bool(c.get("tie_word_embeddings", False))
        self.positions = c.get("max_position_embeddings", 2048)

    def echo(self):
        return {"model_type": "qwen3", "hidden_size": self.hidden, "intermediate_size": self.inner,
                "num_hidden_layers": self.layers, "vocab_size": self.vocab, "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv, "head_dim": self.dim, "rope_theta": self.theta,
                "rope_scaling": None, "rms_norm_eps": self.eps, "tie_word_embeddings": self.tied,
                "max_position_embeddings": self.positions, "qk_norm": True, "qkv_bias": False}

    def shapes(self):
        """Every tensor of the model and its shape."""
        width, inner, q, kv = self.hidden, self.inner, self.heads * self.dim, self.kv * self.dim
        shapes = {EMBEDDING: (self.vocab, width), "model.norm.weight": (width,)}
        if not self.tied:
            shapes[HEAD] = (self.vocab, width)
        sizes = {"q": (q, width), "k": (kv, width), "v": (kv, width), "o": (width, q), "gate": (inner, width),
                 "up": (inner, width), "down": (width, inner)}
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            shapes.update({prefix + "input_layernorm.weight": (width,),
                           prefix + "post_attention_layernorm.weight": (width,),
                           prefix + "self_attn.q_norm.weight": (self.dim,),
                           prefix + "self_attn.k_norm.weight": (self.dim,)})
            shapes.update({prefix + PROJECTIONS[t] + ".weight": sizes[t] for t in TARGETS})
        return shapes


def _stored(folder):
    single = os.path.join(folder, "model.safetensors")
    if os.path.exists(single):
        return read_safetensors(single)
    with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as file:
        index = json.load(file)["weight_map"]
    shards = {shard: read_safetensors(os.path.join(folder, shard)) for shard in set(index.values())}
    return {name: shards[shard][name] for name, shard in index.items()}


def load(folder, config):
    """(name -> float64 array, rows of /load)."""
    stored, wanted = _stored(folder), config.shapes()
    if config.tied and HEAD in stored:
        if stored[HEAD] != stored.get(EMBEDDING):
            print("warning: the tied head differs from the embedding and is ignored", file=sys.stderr)
        del stored[HEAD]
    stored = {name: one for name, one in stored.items() if "rotary_emb.inv_freq" not in name}
    if set(stored) != set(wanted):
        raise Refused(f"unknown or missing tensors: {sorted(set(stored) ^ set(wanted))}")
    tensors, rows = {}, []
    for name in sorted(stored, key=str.encode):
        dtype, shape, raw = stored[name]
        if tuple(shape) != wanted[name]:
            raise Refused(f"{name}: shape {shape}, expected {wanted[name]}")
        a = tensors[name] = widen(dtype, shape, raw)
        rows.append({"name": name, "digest": sha256(raw), "shape": shape + [-1] * (4 - len(shape)),
                     "dtype": dtype, "mean": a.mean(), "rms": np.sqrt(np.mean(a * a))})
    return tensors, rows
