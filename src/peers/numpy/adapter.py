"""The adapter's tensors: names, first values, digests. Float64 arrays by name, in byte order of the names."""

import json
import os

import numpy as np
from draws import initial_a, splitmix64_array
from keys import Refused, sha256
from weights import PROJECTIONS, read_safetensors, widen


def adapter_names(cfg, layers):
    targets = cfg["lora.targets"].split(",")
    modules = [f"model.layers.{layer}.{PROJECTIONS[t]}" for layer in range(layers) for t in targets]
    return sorted((f"{module}.lora_{side}.weight" for module in modules for side in "AB"), key=str.encode)


def initial_adapter(cfg, tensors, names):
    """Float32 values, held in double: drawn, or those of lora.init."""
    stored = None if cfg["lora.init"] is None else _imported(cfg, names)
    adapter = {}
    for name in names:
        module, side = name.removesuffix(".weight").split(".lora_")
        out, width = tensors[module + ".weight"].shape
        shape = (cfg["lora.rank"], width) if side == "A" else (out, cfg["lora.rank"])
        if stored is not None:
            if stored[name].shape != shape:
                raise Refused(f"lora.init: {name} has shape {stored[name].shape}, expected {shape}")
            adapter[name] = stored[name]
        elif side == "A":
            adapter[name] = initial_a(cfg["seed.adapter"], module, *shape)
        else:
            adapter[name] = np.zeros(shape)
    return adapter


def _imported(cfg, names):
    with open(os.path.join(cfg["lora.init"], "adapter_config.json"), encoding="utf-8") as file:
        peft = json.load(file)
    asked = {"r": cfg["lora.rank"], "lora_alpha": cfg["lora.alpha"], "use_rslora": cfg["lora.rslora"]}
    for key, value in asked.items():
        if peft.get(key, False) != value:
            raise Refused(f"lora.init: {key} = {peft.get(key)}, the keys ask for {value}")
    stored = read_safetensors(os.path.join(cfg["lora.init"], "adapter_model.safetensors"))
    stored = {name.removeprefix("base_model.model."): widen(*one) for name, one in stored.items()}
    if set(stored) != set(names):
        raise Refused("lora.init: its tensors are not those of lora.targets")
    return stored


def _as_float32(adapter):
    return np.concatenate([tensor.astype("<f4").ravel() for tensor in adapter.values()])


def adapter_digest(adapter):
    return sha256(_as_float32(adapter).tobytes())


def adapter_checksum(adapter):
    bits = _as_float32(adapter).view("<u4").astype(np.uint64)
    weight = splitmix64_array(np.arange(bits.size, dtype=np.uint64)) | np.uint64(1)
    return int(np.sum(weight * bits, dtype=np.uint64))
