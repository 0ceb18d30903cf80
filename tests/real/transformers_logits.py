#!/usr/bin/env python3
"""Logits of small random models against transformers': Qwen3, Llama 3 and Qwen2.5, tied and untied.

    transformers_logits.py WORK_FOLDER [--write tests/model/published_logits.json]

Needs the packages torch, transformers and numpy. transformers computes in float64. Prints, for each model,
the largest relative difference of a position's logits from the reference's in tests/reference. --write keeps
a few values, which tests/model holds Tandem to.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import seeded_models
import torch
import transformers
from published import base_model, difference, kept_values, logits, write_kept

import model as models
from model_files import read_config, read_model_tensors

LIMIT = 1e-5  # see difference()


def reference_logits(folder, ids):
    config = read_config(folder / "config.json")
    model = models.Model(config, read_model_tensors(folder))
    head = model.w["model.embed_tokens.weight" if config.tied else "lm_head.weight"]
    with torch.no_grad():
        return (model.hidden_states(ids, None, 1.0) @ head.T).numpy()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    made_by = f"tests/real/transformers_logits.py, {versions}"
    print(made_by)
    keep, failed = {}, False
    for name, config in seeded_models.CONFIGS.items():
        folder, ids = options.work / name, seeded_models.token_ids(config)
        seeded_models.write(folder, config)
        theirs = logits(base_model(folder), ids)
        reference = difference(reference_logits(folder, ids), theirs)
        failed |= not reference <= LIMIT
        print(f"{name}: reference {reference:.2e}, limit {LIMIT:g}; rms {np.sqrt(np.mean(theirs**2)):.3f}")
        keep[name] = {
            "config": json.loads((folder / "config.json").read_text()),
            "tensors": {tensor: list(shape) for tensor, shape in models.base_shapes(config).items()},
            "values": kept_values(theirs),
        }
    if options.write and not failed:
        head = {"made_by": made_by, "seed": seeded_models.SEED, "n_tokens": seeded_models.N_TOKENS}
        write_kept(options.write, head, keep)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
