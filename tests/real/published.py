"""What the comparisons with transformers and PEFT share: their logits, Tandem's logits, values kept for
tests/model."""

import json
import os
import sys

import numpy as np
import torch
import transformers

KEPT_POSITIONS, KEPT_IDS = (0, 1, 40, 99), (0, 17, 33, 64, 96)


def base_model(folder, dtype=torch.float64):
    """transformers' model with its plain attention. Some of its steps are float32 for every dtype."""
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True
    )
    wrong = {name: found for name, found in loading.items() if found}
    if wrong:
        sys.exit(f"{folder}: transformers loads it with {wrong}")
    return model.eval()


def logits(model, ids):
    """[len(ids), vocabulary]"""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def difference(ours, theirs):
    """The largest of the positions: |ours - theirs| / |theirs|, 2-norms over the vocabulary."""
    if ours.shape != theirs.shape:
        sys.exit(f"logits of shape {ours.shape} against {theirs.shape}")
    return float(np.max(np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)))


def kept_values(theirs):
    return [
        {
            "position": position,
            "log_sum_exp": round(float(torch.logsumexp(torch.from_numpy(theirs[position]), 0)), 9),
            "logits": {str(i): round(float(theirs[position, i]), 9) for i in KEPT_IDS},
        }
        for position in KEPT_POSITIONS
    ]


def write_kept(path, head, models):
    """One line a model and part, so that a change shows in a diff. models: {name: {part: value}}"""
    lines = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items()] + [
        ' "models": {\n'
    ]
    for name, parts in models.items():
        body = ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in parts.items())
        lines.append(f'  "{name}": {{\n{body}\n  }},\n')
    text = "".join(lines)[:-2]
    text = "{\n" + text + "\n }\n}\n"
    json.loads(text)
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, path)
