#!/usr/bin/python3
"""Compares two trajectory files (io/FORMAT.md) and prints the largest differences.

    compare_trajectories.py native.h5 pytorch.h5 --tolerance loss=1e-6 --tolerance gradient=1e-5

B is the reference of relative differences. Exit 0: all within tolerance; 1: not. Quantities without a
tolerance are reported. What one of the files does not record is NOT CHECKED; `--require NAME` makes that
a failure.
"""

import argparse
import sys

import numpy as np

from compare_observations import compare_observations
from lock_step import relative
from trajectory import Reader

EXACT = (
    "spec",
    "adapter names",
    "adapter shapes",
    "steps",
    "sample ids",
    "n_samples",
    "n_targets",
    "optimizer steps",
    "eval steps",
    "eval tokens",
    "initial adapter",
    "base tensors",
    "rendered samples",
    "probe tokens",
    "probe ids",
)
TOLERANCES = {
    "lr": 4.0,
    "loss": 1e-5,
    "grad_norm": 1e-5,
    "clip": 1e-5,
    "eval": 1e-5,
    "adapter off": 1e-6,
    # A float32 logit of a small model: 13 products in a row (3 layers of 4, the head), sums of up to 160
    # terms, each off by sqrt(160) u = 7.5e-7 of its terms: 13 sqrt(160) 2^-24.
    "probe logits": 1e-5,
    "probe nll": 1e-5,
    # Errors average out in the mean square, and are small beside the largest element: 32 u.
    "activation rms": 2e-6,
    "activation absmax": 2e-6,
    "BA norm": 1e-5,
    # p is stored in float32: p(t) - p(t-1) is off by u |p|, and |p| is up to 1,600 times |p(t) - p(t-1)|.
    "update norm": 1e-4,
}
REPORTED = ("tensor norm", "gradient", "adapter", "m", "v")


class Table:
    """Rows (name, largest difference, where, limit); a NaN difference never passes."""

    def __init__(self, tolerances, required):
        self.tolerances, self.required, self.rows, self.failed = tolerances, required, [], False

    def add(self, name, difference, where=""):
        limit = 0.0 if name in EXACT else self.tolerances.get(name)
        within = limit is None or difference <= limit
        self.failed |= not within
        shown = {True: "ok", False: "FAILED"}[within] if limit is not None else "reported"
        self.rows.append((name, f"{difference:.3e}", "" if limit is None else f"{limit:g}", shown, where))

    def worst(self, name, differences, places):
        """The largest of several; a NaN counts as the largest."""
        if not len(differences):
            return self.skip(name, "no values")
        k = int(np.argmax([np.inf if np.isnan(d) else d for d in differences]))
        self.add(name, float(differences[k]), places[k])

    def equal(self, name, same, where=""):
        self.add(name, 0.0 if same else np.inf, "" if same else where)

    def skip(self, name, why):
        missing = name in self.required
        self.failed |= missing
        self.rows.append((name, "-", "", "MISSING" if missing else "NOT CHECKED", why))

    def text(self):
        rows = [("quantity", "largest", "limit", "", "where")] + self.rows
        widths = [max(len(row[k]) for row in rows) for k in range(4)]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths + [0])).rstrip() for row in rows)


def ulps(a, b):
    """Distance in units of the last place of b; NaN stays NaN."""
    return np.abs(a - b) / np.spacing(np.abs(b))


def both(table, name, a, b, *paths):
    for reader in (a, b):
        for path in paths:
            if not reader.has(path):
                table.skip(name, f"{reader.path.name} has no {path}")
                return False
    return True


def compare_exact(table, name, a, b, path, rows=None):
    """rows: (rows of a, rows of b) to compare; otherwise everything, the shape too."""
    if not both(table, name, a, b, path):
        return
    x, y = a.array(path), b.array(path)
    if rows:
        x, y = x[rows[0]], y[rows[1]]
    if x.shape != y.shape:
        table.equal(name, False, f"shapes {x.shape} and {y.shape}")
        return
    differing = np.nonzero((x != y).reshape(len(x), -1).any(axis=1))[0] if len(x) else []
    table.equal(
        name,
        not len(differing),
        f"{path}, row {differing[0]}, {len(differing)} rows" if len(differing) else "",
    )


def common_rows(table, name, a, b, path, subset):
    """Rows of a and b with the same step. Every step of b must be in a, and unless subset the reverse."""
    x, y = a.array(path), b.array(path)
    steps = [s for s in y if s in set(x)]
    complete = len(steps) == len(y) and (subset or len(x) == len(y)) and len(steps) > 0
    table.equal(name, complete, f"{len(x)} and {len(y)}, {len(steps)} in common")
    position = {int(s): k for k, s in enumerate(x)}
    return [position[int(s)] for s in steps], [k for k, s in enumerate(y) if s in set(x)], steps


def compare_updates(table, a, b, subset):
    if not both(table, "steps", a, b, "update/step"):
        return
    in_a, in_b, steps = common_rows(table, "steps", a, b, "update/step", subset)
    places = [f"update {s}" for s in steps]
    for name, path in (
        ("sample ids", "update/sample_ids"),
        ("n_samples", "update/n_samples"),
        ("n_targets", "update/n_targets"),
        ("optimizer steps", "update/optimizer_step"),
    ):
        compare_exact(table, name, a, b, path, (in_a, in_b))
    if both(table, "lr", a, b, "update/lr"):
        table.worst("lr", ulps(a.array("update/lr")[in_a], b.array("update/lr")[in_b]), places)
    for name in ("loss", "grad_norm", "clip"):
        if both(table, name, a, b, f"update/{name}"):
            x, y = a.array(f"update/{name}")[in_a], b.array(f"update/{name}")[in_b]
            table.worst(name, [relative(p, q) for p, q in zip(x, y)], places)


def compare_observed(table, a, b):
    if not both(table, "tensor norm", a, b, "observed/step", "observed/tensor_grad_norm", "adapter/names"):
        return
    rows = [{int(s): k for k, s in enumerate(r.array("observed/step"))} for r in (a, b)]
    names, differences, places = b.texts("adapter/names"), [], []
    for step in sorted(set(rows[0]) & set(rows[1])):
        x, y = (r.array("observed/tensor_grad_norm")[k[step]] for r, k in zip((a, b), rows))
        differences += [relative(p, q) for p, q in zip(x, y)]
        places += [f"update {step}, {name}" for name in names]
    table.worst("tensor norm", differences, places)


def compare_evaluations(table, a, b):
    if not both(table, "eval", a, b, "eval/step", "eval/nll_sum", "eval/n_tokens"):
        return
    in_a, in_b, steps = common_rows(table, "eval steps", a, b, "eval/step", False)
    compare_exact(table, "eval tokens", a, b, "eval/n_tokens", (in_a, in_b))
    x, y = a.array("eval/nll_sum")[in_a], b.array("eval/nll_sum")[in_b]
    table.worst("eval", [relative(p, q) for p, q in zip(x, y)], [f"after update {s}" for s in steps])
    if both(table, "initial adapter", a, b, "eval/adapter_digest") and len(steps) and steps[0] == 0:
        table.equal(
            "initial adapter",
            a.texts("eval/adapter_digest")[in_a[0]] == b.texts("eval/adapter_digest")[in_b[0]],
        )
    if both(table, "adapter off", a, b, "eval/loss_adapter_off"):
        x, y = a.array("eval/loss_adapter_off"), b.array("eval/loss_adapter_off")
        places = ["at the start", "at the end"]
        if x.shape != y.shape:
            table.add("adapter off", np.inf, f"shapes {x.shape} and {y.shape}")
        else:
            table.worst("adapter off", [relative(p, q) for p, q in zip(x, y)], places)


def compare_tensors(x, y):
    """|x - y| / |y| in the Frobenius norm. Both zero: 0; only y zero: infinite."""
    if x.shape != y.shape:
        return np.inf
    difference, norm = np.linalg.norm(x - y), np.linalg.norm(y)
    return difference / norm if norm > 0 else (0.0 if difference == 0 else np.inf)


def compare_snapshots(table, a, b):
    steps = sorted(set(a.snapshot_steps()) & set(b.snapshot_steps()))
    for group in ("gradient", "adapter", "m", "v"):
        differences, places = [], []
        for step in steps:
            if not (a.has(f"snapshot/{step}/{group}") and b.has(f"snapshot/{step}/{group}")):
                continue
            x, y = a.snapshot(step, group), b.snapshot(step, group)
            for name in sorted(set(x) | set(y)):
                differences.append(compare_tensors(x[name], y[name]) if name in x and name in y else np.inf)
                places.append(f"update {step}, {name}")
        (
            table.worst(group, differences, places)
            if differences
            else table.skip(group, "no snapshot of it in both")
        )


def compare_inputs(table, a, b):
    compare_exact(table, "adapter names", a, b, "adapter/names")
    compare_exact(table, "adapter shapes", a, b, "adapter/shapes")
    compare_exact(table, "rendered samples", a, b, "render/digest")
    if both(table, "base tensors", a, b, "load/name", "load/digest"):
        x, y = (dict(zip(r.texts("load/name"), r.texts("load/digest"))) for r in (a, b))
        wrong = sorted(n for n in set(x) | set(y) if x.get(n) != y.get(n))
        table.equal("base tensors", not wrong, ", ".join(wrong[:1]))
    if both(table, "spec", a, b, "spec/text", "spec/digest"):
        table.equal("spec", a.text("spec/digest") == b.text("spec/digest"), "the specifications differ")


def compare(a, b, tolerances, required=(), subset=False):
    """subset: b may hold fewer updates than a (a lock-step file)."""
    table = Table(tolerances, required)
    compare_inputs(table, a, b)
    compare_updates(table, a, b, subset)
    compare_observed(table, a, b)
    compare_evaluations(table, a, b)
    compare_observations(table, both, a, b)
    compare_snapshots(table, a, b)
    return table


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a")
    parser.add_argument("b", help="the reference")
    names = sorted(set(TOLERANCES) | set(REPORTED))
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        metavar="NAME=LIMIT",
        help=f"relative, lr in ulps; names: {', '.join(names)}",
    )
    parser.add_argument(
        "--require", action="append", default=[], metavar="NAME", help="must be in both files"
    )
    parser.add_argument("--subset", action="store_true", help="B may hold fewer updates than A")
    arguments = parser.parse_args(argv)
    tolerances = dict(TOLERANCES)
    for given in arguments.tolerance:
        name, _, limit = given.partition("=")
        if name not in names:
            parser.error(f"--tolerance {name}: choose from {', '.join(names)}")
        tolerances[name] = float(limit)
    unknown = set(arguments.require) - set(names) - set(EXACT)
    if unknown:
        parser.error(
            f"--require {sorted(unknown)[0]}: choose from {', '.join(sorted(set(names) | set(EXACT)))}"
        )
    table = compare(Reader(arguments.a), Reader(arguments.b), tolerances, arguments.require, arguments.subset)
    print(table.text())
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
