"""Small models of each architecture, drawn by SPEC.md's random numbers, so that C++ can draw the same bits.

tests/model/published_logits_test.cpp follows the same recipe: element i of a tensor, row-major, from r =
2*unit(draw(seed, tensor name, i)) - 1: matrices r*sqrt(4/columns), norms' weights 1 + r/2, biases r; in
double, rounded once to float32. Attention is far from uniform then, and no part of a layer without effect.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
import random_numbers  # noqa: E402
import tiny_models  # noqa: E402
from model import base_shapes  # noqa: E402
from model_files import Llama3Rope, ModelConfig  # noqa: E402

SEED, N_TOKENS = 20, 100  # Llama 3's original context here is 64: the tokens go beyond it
LLAMA3 = Llama3Rope(8.0, 1.0, 4.0, 64)
#                  hidden layers heads kv head_dim inter vocab theta eps tied: head_dim is never hidden/heads
CONFIGS = {
    "qwen3-tied": ModelConfig("qwen3", 40, 2, 4, 2, 16, 56, 131, 1e6, 1e-6, True),
    "qwen3-untied": ModelConfig("qwen3", 48, 3, 6, 2, 12, 72, 97, 1e6, 1e-6, False),
    "llama3-tied": ModelConfig("llama", 40, 2, 4, 2, 12, 56, 131, 1e4, 1e-5, True, LLAMA3),
    "llama3-untied": ModelConfig("llama", 48, 3, 4, 1, 20, 72, 97, 5e5, 1e-5, False, LLAMA3),
    "qwen2-tied": ModelConfig("qwen2", 40, 2, 4, 2, 16, 56, 131, 1e6, 1e-6, True),
    "qwen2-untied": ModelConfig("qwen2", 48, 3, 6, 3, 12, 72, 97, 1e6, 1e-6, False),
}


def symmetric(name, n):
    return 2.0 * random_numbers.unit(random_numbers.draw(SEED, name, np.arange(n, dtype=np.uint64))) - 1.0


def tensor(name, shape):
    r = symmetric(name, math.prod(shape))
    if name.endswith(".bias"):
        values = r
    elif len(shape) == 1:
        values = 1.0 + r / 2.0
    else:
        values = r * math.sqrt(4.0 / shape[1])
    return values.astype(np.float32).reshape(shape)


def token_ids(config):
    draws = random_numbers.draw(SEED, "ids", np.arange(N_TOKENS, dtype=np.uint64))
    return (draws % np.uint64(config.vocab)).astype(np.int64).tolist()


def write(folder, config):
    folder = Path(folder)
    tiny_models.write_config(folder, config)
    tensors = {name: tensor(name, shape) for name, shape in base_shapes(config).items()}
    tiny_models.write_tensors(folder, tensors, bf16=False)
    # A row for Tandem: every token scored.
    row = {"ids": token_ids(config), "targets": [1] * N_TOKENS}
    (folder / "row.jsonl").write_text(json.dumps(row) + "\n")
