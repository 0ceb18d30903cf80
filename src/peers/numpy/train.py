#!/usr/bin/python3
"""LoRA training of a small Qwen3 in numpy, float64, by SPEC.md and io/FORMAT.md.

    train.py CONFIG --out OUT.h5 [--set KEY=VALUE ...]
    train.py CONFIG --spec          prints the canonical text instead
"""

import argparse
import os
import sys

# One thread: sums then have one order.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import keys  # noqa: E402
from run import Run  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="`key = value` lines")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", help="the trajectory file to write; snapshots go beside it")
    what.add_argument("--spec", action="store_true", help="print what would be computed")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    try:
        given = keys.read_config(options.config)
        for pair in options.set:
            key, _, text = pair.partition("=")
            given[key] = keys.parse(key, text)
        run = Run(given)
    except (keys.Refused, OSError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 3
    if options.spec:
        print(run.spec_text, end="")
    else:
        run.train_all(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
