#!/usr/bin/python3
"""Tandem's training in PyTorch, float64, one sample at a time: a stack written from SPEC.md alone.

    tandem spec --config run.cfg > spec.txt
    tandem_reference.py --spec spec.txt --model DIR --train train.jsonl --held-out held.jsonl --out pytorch.h5

Free run: keeps its own state from update 0. With `--lock-step native.h5` every update starts from the
state that the other stack stored in its snapshots, so differences do not pile up. Rows are tokenised
already (`ids`, `targets`). Paths are given beside the text, which holds their digests.
"""

import argparse
import sys
import time
from pathlib import Path

import torch

import lock_step
import stack
from model_files import InputError
from optimizer import AdamW
from run_spec import RunSpec, SpecError, model_digest, peft_digest, sha256_file
from trajectory import Reader, now

PRECISIONS = {"f64": torch.float64, "f32": torch.float32}


def free_run(run, path, stack_name="pytorch", precision="f64", snapshot_every=0, report=None):
    """The whole run from the initial adapter; writes the trajectory and returns the final adapter."""
    writer = stack.new_writer(run, path, stack_name, precision, stack.free_tables(run))
    adapter = run.adapter(run.initial)
    optimizer = AdamW(run.spec, adapter)
    stack.record_evaluation(writer, run, 0, adapter)
    for t, batch in run.batches():
        begin = time.monotonic()
        update = run.gradient(t, batch, adapter)
        if snapshot_every and t % snapshot_every == 0:
            stack.record_snapshot(writer, t, adapter, optimizer, update)
        before = {name: p.detach().clone() for name, p in adapter.items()} if run.spec.evaluated(t) else None
        if update.n_targets:
            optimizer.step(adapter, update.clipped(), run.spec.learning_rate(t))
        stack.record_update(writer, run, t, batch, update, optimizer.steps, adapter, time.monotonic() - begin)
        if run.spec.evaluated(t):
            stack.record_evaluation(writer, run, t, adapter, before)
        if report:
            report(update.line(t))
    writer.attributes["provenance"]["end"] = now()
    writer.publish(complete=1)
    return adapter


def check_digests(spec, arguments):
    """The text names its inputs by content; a stack that read other files must not pass for a peer."""
    pairs = (
        ("model.path", arguments.model, model_digest),
        ("data.train", arguments.train, sha256_file),
        ("data.held_out", arguments.held_out, sha256_file),
        ("lora.init", arguments.lora_init, peft_digest),
    )
    for key, path, digest in pairs:
        if bool(path) != bool(spec[key]):
            raise InputError(
                f"{key}: the specification says {spec[key] or 'none'}, the command line {path or 'none'}"
            )
        if path and spec[key] != digest(path):
            raise InputError(
                f"{key}: {path} has the digest {digest(path)}, the specification says {spec[key]}"
            )


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spec", required=True, help="canonical text, from `tandem spec --config F`")
    parser.add_argument("--model", required=True, help="config.json and one safetensors file or shards")
    parser.add_argument("--train", required=True, help="tokenised JSONL rows")
    parser.add_argument("--held-out", help="tokenised JSONL rows; none: no evaluation")
    parser.add_argument("--lora-init", help="folder of a PEFT adapter; none: drawn from the seed")
    parser.add_argument("--out", required=True, help="trajectory to write, for example pytorch.h5")
    parser.add_argument("--snapshot-every", type=int, default=0, help="updates between snapshots, 0 = none")
    parser.add_argument(
        "--lock-step", metavar="FILE", help="start every update from this trajectory's snapshots"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="f64", help="f32 shows what rounding alone does"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse_arguments(argv)
    torch.set_num_threads(arguments.threads)
    report = None if arguments.quiet else lambda line: print(line, file=sys.stderr)
    try:
        spec = RunSpec(Path(arguments.spec).read_bytes().decode("utf-8"))
        check_digests(spec, arguments)
        run = stack.Run(
            spec,
            arguments.model,
            arguments.train,
            arguments.held_out,
            arguments.lora_init,
            PRECISIONS[arguments.precision],
        )
        if arguments.lock_step:
            lock_step.lock_step(run, Reader(arguments.lock_step), arguments.out, arguments.precision, report)
        else:
            free_run(run, arguments.out, "pytorch", arguments.precision, arguments.snapshot_every, report)
    except (InputError, SpecError, ArithmeticError, ValueError, OSError) as error:
        print(f"tandem_reference: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
