#!/usr/bin/python3
"""The untrained model's loss on tokenised rows in PyTorch, to stand beside `tandem train`'s evaluation 0.

    tandem render --model MODEL --data.max_tokens 768 held_out.jsonl > rows.jsonl
    held_out_loss.py MODEL rows.jsonl [--precision f64] [--transformers]

The model is the one of tests/reference, or transformers' own (a package of that name), one sample at a time;
sums are in double. Two losses are printed: with the logits' softmax in double, and with PyTorch's own in the
logits' type. In float32 the latter lies about 8e-6 nat too low at 49,152 tokens, on every single one (torch 1.13
and 2.15 on CPUs): its sum of exponentials loses the smallest. So the former is what Tandem is held to.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
import model as models  # noqa: E402
from model_files import read_config, read_model_tensors, read_samples  # noqa: E402


class Reference:
    def __init__(self, folder, config, dtype):
        self.name = "tests/reference"
        self.model = models.Model(config, read_model_tensors(folder), dtype)
        self.head = self.model.w["model.embed_tokens.weight" if config.tied else "lm_head.weight"]

    def logits(self, ids, positions):
        return self.model.hidden_states(ids, None, 1.0)[positions] @ self.head.T


class Published:
    def __init__(self, folder, dtype):
        import transformers

        self.name = f"transformers {transformers.__version__}"
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="eager"
        ).eval()

    def logits(self, ids, positions):
        return self.model(torch.as_tensor(np.asarray(ids))[None]).logits[0][positions]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("rows")
    parser.add_argument("--precision", choices=("f32", "f64"), default="f32")
    parser.add_argument("--transformers", action="store_true", help="its model instead of the reference's")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = read_config(options.model / "config.json")
    samples = read_samples(options.rows, sys.maxsize, "right", config.vocab)
    dtype = torch.float32 if options.precision == "f32" else torch.float64
    model = (
        Published(options.model, dtype) if options.transformers else Reference(options.model, config, dtype)
    )

    begin = time.monotonic()
    in_double, own, count = 0.0, 0.0, 0
    with torch.no_grad():
        for sample in samples:
            if not len(sample.scored):
                continue
            logits = model.logits(sample.ids, torch.as_tensor(sample.scored - 1))
            targets = torch.as_tensor(sample.ids[sample.scored])
            nll = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
            in_double += float(torch.nn.functional.cross_entropy(logits.double(), targets, reduction="sum"))
            own += float(nll.double().sum())
            count += len(targets)
    seconds = time.monotonic() - begin
    print(f"{model.name} {options.precision}, PyTorch {torch.__version__}:", end=" ")
    print(f"loss {in_double / count:.9f}, with its own softmax {own / count:.9f}", end=" ")
    print(f"({count} tokens of {len(samples)} samples, {seconds:.1f} s)")


if __name__ == "__main__":
    main()
