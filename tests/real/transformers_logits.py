#!/usr/bin/env python3
"""Logits of small random models against transformers': Qwen3, Llama 3 with its rope scaling, Qwen2.5, tied and untied.

    transformers_logits.py WORK_FOLDER TANDEM [--write tests/model/published_logits.json]

Needs the packages torch, transformers and numpy. transformers computes in float64 (norms' sums, softmax and rotary
angles stay float32 in its code) with its plain attention. Prints, for each model, the largest relative difference of a
position's logits, and that of the reference in tests/reference. --write keeps a few values for tests/model.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import seeded_models
import torch
import transformers

import model as models
from model_files import read_config, read_model_tensors

LIMIT = 1e-5  # of a position: |ours - theirs| / |theirs|, 2-norms over the vocabulary
KEPT_POSITIONS, KEPT_IDS = (0, 1, 40, 99), (0, 17, 33, 64, 96)


def published_logits(folder, ids):
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True
    )
    wrong = {name: found for name, found in loading.items() if found}
    if wrong:
        sys.exit(f"{folder}: transformers loads it with {wrong}")
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def reference_logits(folder, ids):
    config = read_config(folder / "config.json")
    model = models.Model(config, read_model_tensors(folder))
    head = model.w["model.embed_tokens.weight" if config.tied else "lm_head.weight"]
    with torch.no_grad():
        return (model.hidden_states(ids, None, 1.0) @ head.T).numpy()


def tandem_logits(tandem, folder, ids):
    raise NotImplementedError


def difference(ours, theirs):
    if ours.shape != theirs.shape:
        sys.exit(f"logits of shape {ours.shape}, transformers has {theirs.shape}")
    return float(np.max(np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)))


def kept(folder, config, logits):
    values = []
    for position in KEPT_POSITIONS:
        row = logits[position]
        values.append(
            {
                "position": position,
                "log_sum_exp": round(float(torch.logsumexp(torch.from_numpy(row), 0)), 9),
                "logits": {str(i): round(float(row[i]), 9) for i in KEPT_IDS},
            }
        )
    shapes = {name: list(shape) for name, shape in models.base_shapes(config).items()}
    return {"config": json.loads((folder / "config.json").read_text()), "tensors": shapes, "values": values}


def write(path, head, keep):
    """One line a model and part, so that a change shows in a diff."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()]
    for name, parts in keep.items():
        body = ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in parts.items())
        lines.append(f'  "{name}": {{\n{body}\n  }},\n')
    lines.insert(len(head), ' "models": {\n')
    text = "{\n" + "".join(lines)[:-2] + "\n }\n}\n"
    json.loads(text)
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("tandem")
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    made_by = f"tests/real/transformers_logits.py, transformers {transformers.__version__}, torch {torch.__version__}"
    print(made_by)
    keep, failed = {}, False
    for name, config in seeded_models.CONFIGS.items():
        folder, ids = options.work / name, seeded_models.token_ids(config)
        seeded_models.write(folder, config)
        theirs = published_logits(folder, ids)
        ours = difference(tandem_logits(options.tandem, folder, ids), theirs)
        reference = difference(reference_logits(folder, ids), theirs)
        failed |= not (ours <= LIMIT and reference <= LIMIT)
        print(f"{name}: Tandem {ours:.2e}, reference {reference:.2e}, limit {LIMIT:g}; rms {np.sqrt(np.mean(theirs**2)):.3f}")
        keep[name] = kept(folder, config, theirs)
    if options.write and not failed:
        write(options.write, {"made_by": made_by, "seed": seeded_models.SEED, "n_tokens": seeded_models.N_TOKENS}, keep)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
