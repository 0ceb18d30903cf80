#!/usr/bin/python3
"""The untrained model's loss on tokenised rows in PyTorch, to stand beside `tandem train`'s evaluation 0.

    tandem render --model MODEL --data.max_tokens 768 held_out.jsonl > rows.jsonl
    held_out_loss.py MODEL rows.jsonl [--precision f64] [--transformers]

The model is the one of tests/reference, or transformers' own (a package of that name), one sample at a time;
sums are in double.
"""

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
import model as models  # noqa: E402
from model_files import read_config, read_model_tensors, read_samples  # noqa: E402


class Published:
    """transformers' model, with the reference's nll()."""

    def __init__(self, folder, dtype):
        import transformers

        self.name = f"transformers {transformers.__version__}, "
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="eager"
        ).eval()

    def nll(self, ids, scored, adapter, scale):
        logits = self.model(torch.as_tensor(ids)[None]).logits[0]
        scored = torch.as_tensor(scored)
        return torch.nn.functional.cross_entropy(
            logits[scored - 1], torch.as_tensor(ids)[scored], reduction="none"
        )


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
    if options.transformers:
        model = Published(options.model, dtype)
    else:
        model = models.Model(config, read_model_tensors(options.model), dtype)
    begin = time.monotonic()
    total, count = models.evaluate(model, samples, None, 1.0)
    seconds = time.monotonic() - begin
    print(
        f"{getattr(model, 'name', '')}PyTorch {torch.__version__} {options.precision}: loss {total / count:.9f}"
        f" ({count} tokens of {len(samples)} samples, {seconds:.1f} s)"
    )


if __name__ == "__main__":
    main()
