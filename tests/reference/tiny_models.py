"""Small random models and tokenised rows for tests, with weights that let every part of the model matter.

Fresh models (normal 0.02, norms of one) have near-uniform attention and hide misplaced norms; these do
not: matrices are scaled to keep activations near one, norm weights vary between 0.5 and 1.5.
"""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from model import base_shapes
from model_files import Llama3Rope, ModelConfig

# head_dim differs from hidden/heads; three query heads share a key-value head, or two.
QWEN3_TIED = ModelConfig("qwen3", 48, 2, 6, 2, 16, 80, 131, 1e6, 1e-6, True)
LLAMA_UNTIED = ModelConfig("llama", 40, 3, 4, 2, 12, 72, 97, 1e4, 1e-5, False)
# Waves of 6, 29, 135 and more tokens: one is kept, one mixed, the others are slowed down.
LLAMA3_SCALED = ModelConfig("llama", 40, 2, 6, 3, 12, 72, 97, 1e4, 1e-5, True, Llama3Rope(8.0, 1.0, 4.0, 64))
QWEN2_UNTIED = ModelConfig("qwen2", 48, 3, 6, 2, 8, 56, 113, 1e6, 1e-6, False)


def write_safetensors(path, tensors, bf16):
    """tensors: {name: float32 array}. BF16 keeps the upper half of each float32."""
    header, chunks, begin = {}, [], 0
    for name in sorted(tensors):
        values = np.ascontiguousarray(tensors[name], dtype="<f4")
        raw = (values.view("<u4") >> 16).astype("<u2").tobytes() if bf16 else values.tobytes()
        header[name] = {
            "dtype": "BF16" if bf16 else "F32",
            "shape": list(values.shape),
            "data_offsets": [begin, begin + len(raw)],
        }
        chunks.append(raw)
        begin += len(raw)
    encoded = json.dumps(header).encode("utf-8")
    encoded += b" " * (-len(encoded) % 8)
    Path(path).write_bytes(len(encoded).to_bytes(8, "little") + encoded + b"".join(chunks))


def write_tensors(folder, tensors, bf16, shards=1):
    """model.safetensors, or so many shards and their index. Neighbours lie in different shards."""
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, bf16)
        return
    weight_map = {}
    for k in range(shards):
        file = f"model-{k + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in sorted(tensors)[k::shards]}
        write_safetensors(folder / file, part, bf16)
        weight_map.update({name: file for name in part})
    total = sum(t.size for t in tensors.values()) * (2 if bf16 else 4)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def write_model(folder, config, seed, bf16=False, shards=1):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in folder.glob("*.safetensors*"):
        earlier.unlink()
    generator = np.random.default_rng(seed)
    tensors = {}
    for name, shape in base_shapes(config).items():
        if name.endswith(".bias"):
            tensors[name] = generator.uniform(-1.0, 1.0, shape).astype(np.float32)
        elif len(shape) == 1:
            tensors[name] = generator.uniform(0.5, 1.5, shape).astype(np.float32)
        else:
            deviation = 1.0 if "embed" in name or "lm_head" in name else 1.2
            tensors[name] = (generator.standard_normal(shape) * deviation / shape[1] ** 0.5).astype(
                np.float32
            )
        if bf16:
            tensors[name] = (tensors[name].view(np.uint32) & 0xFFFF0000).view(np.float32)
    write_tensors(folder, tensors, bf16, shards)
    write_config(folder, config, bf16)


def write_config(folder, config, bf16=False):
    folder.mkdir(parents=True, exist_ok=True)
    names = {"qwen3": "Qwen3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}
    (folder / "config.json").write_text(
        json.dumps(
            {
                **rope_keys(config),
                **({} if default_head_dim(config) else {"head_dim": config.head_dim}),
                "architectures": [names[config.kind]],
                "model_type": config.kind,
                "hidden_size": config.hidden,
                "num_hidden_layers": config.layers,
                "num_attention_heads": config.heads,
                "num_key_value_heads": config.kv_heads,
                "intermediate_size": config.intermediate,
                "vocab_size": config.vocab,
                "rms_norm_eps": config.eps,
                "tie_word_embeddings": config.tied,
                "hidden_act": "silu",
                "attention_bias": False,
                "max_position_embeddings": 512,
                "torch_dtype": "bfloat16" if bf16 else "float32",
            },
            indent=2,
        )
    )


def default_head_dim(config):
    """Qwen2's configurations leave it out."""
    return config.kind == "qwen2" and config.head_dim * config.heads == config.hidden


def rope_keys(config):
    """Old keys for the models of their time, new ones for Qwen2: both have to be read."""
    if config.scaling:
        scaling = {**asdict(config.scaling), "rope_type": "llama3"}
        return {"rope_theta": config.rope_theta, "rope_scaling": scaling}
    if config.kind == "qwen2":
        return {"rope_parameters": {"rope_theta": config.rope_theta, "rope_type": "default"}}
    return {"rope_theta": config.rope_theta}


def write_rows(path, n, vocab, seed, longest=40, without_targets=()):
    """Ragged rows: the last one a single token, target marks in runs, on the first token too (it is never
    scored).
    """
    generator = np.random.default_rng(seed)
    lines = []
    for k in range(n):
        length = 1 if k == n - 1 else int(generator.integers(2, longest + 1))
        ids = generator.integers(0, vocab, length)
        targets = np.zeros(length, dtype=int)
        if k not in without_targets:
            targets[int(generator.integers(0, length)) :] = 1
            targets[0] = generator.integers(0, 2)
        lines.append(json.dumps({"ids": ids.tolist(), "targets": targets.tolist()}))
    Path(path).write_text("\n".join(lines) + "\n")
