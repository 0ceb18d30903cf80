#!/usr/bin/env python3
"""Adapters to PEFT and back, on small random models of each architecture.

    peft_roundtrip.py WORK_FOLDER TANDEM [--write tests/model/published_adapters.json]

Needs the packages torch, transformers, peft, safetensors and numpy. For each model: Tandem trains an adapter
and exports it; PEFT loads it, and both give the same logits, which are not the base model's; the keys are
exactly PEFT's; the merged model is PEFT's merged model within the rounding that the export states, and gives
the same logits; an adapter that PEFT writes starts a run of Tandem. --write keeps PEFT's keys and a few
logits of seeded adapters.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import peft
import seeded_models
import tiny_models
import torch
import transformers
from peft.utils import get_peft_model_state_dict, load_peft_weights, set_peft_model_state_dict
from published import base_model, difference, kept_values, logits, write_kept
from safetensors.torch import load_file

import model as models

CASES = {  # model: what its adapter is
    "qwen3-tied": {"lora.rank": 4, "lora.alpha": 2.0, "lora.dropout": 0.1},
    "llama3-untied": {"lora.rank": 5, "lora.alpha": 1.5, "lora.rslora": "true", "lora.targets": "q,v,o,down"},
    "qwen2-untied": {"lora.rank": 3, "lora.alpha": 3.0, "lora.targets": "k,gate,up"},
}
# Of a position's logits, |ours - theirs| / |theirs|: float32 sums of a few layers against float64.
LOGITS_LIMIT = 1e-5
LOSS_LIMIT = 1e-6  # relative; the mean over some hundred tokens
UNIT = 2.0**-24  # of float32


class Checks:
    def __init__(self):
        self.failed = False

    def that(self, condition, text):
        print(f"  {'ok    ' if condition else 'FAILED'} {text}")
        self.failed |= not condition


def run(*command):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {result.returncode}\n{result.stderr}")
    return result.stdout


def train(tandem, work, settings, out, updates):
    keys = {
        **settings,
        "train.updates": updates,
        "batch.global": 8,
        "optim.lr": 0.05,
        "optim.warmup": 0,
        "data.max_tokens": 256,
    }
    inputs = (
        "--model",
        work / "model",
        "--data",
        work / "train.jsonl",
        "--data.held_out",
        work / "held_out.jsonl",
    )
    run(tandem, "train", *inputs, "--run.out", out, *(s for k, v in keys.items() for s in (f"--{k}", v)))
    return json.loads(run(tandem, "inspect", "--json", out))["trajectories"][0]["held_out"]


def loss(model, rows):
    """Mean nll of the scored tokens of tokenised rows."""
    total, count = 0.0, 0
    for line in rows.read_text().splitlines():
        row = json.loads(line)
        scored = [p for p, target in enumerate(row["targets"]) if target and p > 0]
        if scored:
            with torch.no_grad():
                given = torch.log_softmax(model(torch.tensor([row["ids"]])).logits[0].double(), -1)
            total -= float(sum(given[p - 1, row["ids"][p]] for p in scored))
            count += len(scored)
    return total / count


def peft_model(checks, model, adapter):
    """PEFT's model with the adapter's folder loaded, every key accounted for."""
    config = peft.PeftConfig.from_pretrained(adapter)
    model = peft.get_peft_model(base_model(model), config)
    result = set_peft_model_state_dict(model, load_peft_weights(adapter))
    left = [k for k in result.missing_keys if "lora_" in k] + list(result.unexpected_keys)
    expected = {k: tuple(v.shape) for k, v in get_peft_model_state_dict(model).items()}
    stored = {k: tuple(v.shape) for k, v in load_file(adapter / "adapter_model.safetensors").items()}
    checks.that(stored == expected and not left, f"the {len(stored)} keys and shapes are exactly PEFT's")
    return model.eval()


def check_merged(checks, tandem, work, adapted, ids, given):
    """Changes `adapted`."""
    said = run(tandem, "export", "--run", work / "run", "--merge", "--out", work / "merged")
    stated = float(re.search(r"relative rounding error of an element (\S+)", said)[1])
    checks.that(stated <= UNIT, f"merging states a relative rounding error of {stated:g}, at most {UNIT:.3g}")
    error = difference(logits(base_model(work / "merged"), ids), given)
    checks.that(error <= LOGITS_LIMIT, f"the merged model gives the adapted one's logits: {error:.2e}")
    mine = load_file(work / "merged" / "model.safetensors")
    theirs = adapted.merge_and_unload().state_dict()
    # PEFT forms the product in float64 here: what it leaves is far below a rounding to float32.
    worst = max(
        float(((v.double() - theirs[k]) / theirs[k]).abs().nan_to_num(0.0).max()) for k, v in mine.items()
    )
    checks.that(
        worst <= stated * 1.001, f"merged weights are PEFT's: largest relative difference {worst:.4g}"
    )


def check_import(checks, tandem, work):
    """An adapter that PEFT draws, fills and saves starts a run."""
    torch.manual_seed(3)
    config = peft.LoraConfig(
        r=6, lora_alpha=15, target_modules=["q_proj", "o_proj", "up_proj"], task_type="CAUSAL_LM"
    )
    made = peft.get_peft_model(base_model(work / "model", torch.float32), config)
    for name, p in made.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.2)
    made.save_pretrained(work / "peft")
    theirs = peft_model(checks, work / "model", work / "peft")
    settings = {"lora.init": work / "peft", "lora.rank": 6, "lora.alpha": 15, "lora.targets": "q,o,up"}
    ours = train(tandem, work, settings, work / "run_from_peft", 1)["first"]["loss"]
    check_loss(checks, ours, loss(theirs, work / "held_out.jsonl"), "from PEFT's adapter: held-out loss")


def check_loss(checks, ours, theirs, what):
    checks.that(abs(ours / theirs - 1) <= LOSS_LIMIT, f"{what} {ours:.9f}, PEFT's {theirs:.9f}")


def seeded_adapter(model, ids, settings):
    """PEFT's keys and shapes for the settings, and logits with an adapter that seeded_models draws."""
    targets = settings.get("lora.targets", ",".join(models.MODULES)).split(",")
    config = peft.LoraConfig(
        r=settings["lora.rank"],
        lora_alpha=settings["lora.alpha"],
        use_rslora="lora.rslora" in settings,
        target_modules=[models.MODULES[target].split(".")[1] for target in targets],
        task_type="CAUSAL_LM",
    )
    adapted = peft.get_peft_model(base_model(model), config).eval()
    shapes = {name: tuple(t.shape) for name, t in get_peft_model_state_dict(adapted).items()}
    drawn = {
        name: seeded_models.tensor(name.removeprefix("base_model.model."), shapes[name]) for name in shapes
    }
    set_peft_model_state_dict(adapted, {name: torch.from_numpy(t).double() for name, t in drawn.items()})
    return {
        "rank": config.r,
        "alpha": config.lora_alpha,
        "rslora": config.use_rslora,
        "targets": targets,
        "keys": {name: list(shape) for name, shape in shapes.items()},
        "values": kept_values(logits(adapted, ids)),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("tandem")
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = f"peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}"
    print(versions)
    checks, keep = Checks(), {}
    for name, settings in CASES.items():
        print(name)
        work = options.work / name
        shutil.rmtree(work, ignore_errors=True)
        config = seeded_models.CONFIGS[name]
        seeded_models.write(work / "model", config)
        tiny_models.write_rows(work / "train.jsonl", 24, config.vocab, 3)
        tiny_models.write_rows(work / "held_out.jsonl", 6, config.vocab, 4)
        ids = seeded_models.token_ids(config)
        held_out = train(options.tandem, work, settings, work / "run", 12)
        run(options.tandem, "export", "--run", work / "run", "--out", work / "adapter")
        adapted = peft_model(checks, work / "model", work / "adapter")
        given, base = logits(adapted, ids), logits(base_model(work / "model"), ids)
        checks.that(
            difference(given, base) > 0.1, f"the adapter changes the logits: {difference(given, base):.3g}"
        )
        check_loss(checks, held_out["last"]["loss"], loss(adapted, work / "held_out.jsonl"), "held-out loss")
        check_merged(checks, options.tandem, work, adapted, ids, given)
        check_import(checks, options.tandem, work)
        keep[name] = seeded_adapter(work / "model", ids, settings)
    if options.write and not checks.failed:
        write_kept(options.write, {"made_by": f"tests/real/peft_roundtrip.py, {versions}"}, keep)
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
