"""Compares what evaluations record beside the loss: /probe and /activation of two trajectories."""

import numpy as np

from lock_step import relative


def compare_observations(table, both, a, b):
    """both: says whether both files have all paths, and notes what is missing."""
    if both(table, "probe tokens", a, b, "probe/sample", "probe/position", "probe/target"):
        same = all(
            np.array_equal(a.array(f"probe/{name}"), b.array(f"probe/{name}"))
            for name in ("sample", "position", "target")
        )
        table.equal("probe tokens", same, "the files look at different tokens")
        if same:
            compare_probe(table, both, a, b)
    for name, path, unit in (
        ("activation rms", "activation/rms", "layer"),
        ("activation absmax", "activation/absmax", "layer"),
        ("BA norm", "activation/ba_norm", "module"),
        ("update norm", "activation/update_norm", "tensor"),
    ):
        if both(table, name, a, b, path, "eval/step"):
            compare_relative(table, name, a.array(path), b.array(path), b.array("eval/step"), unit)


def compare_relative(table, name, x, y, steps, unit):
    if x.shape != y.shape:
        table.add(name, np.inf, f"shapes {x.shape} and {y.shape}")
        return
    places = [f"after update {s}, {unit} {k}" for s in steps for k in range(y.shape[1])]
    table.worst(name, [relative(p, q) for p, q in zip(x.ravel(), y.ravel())], places)


def compare_probe(table, both, a, b):
    """Logits in units of the largest logit of their row, losses in nat per unit of twice that, since a loss
    moves by at most twice what its logits move by. Ids only where the reference's logits are further apart
    than the limit on logits could move two of them.
    """
    columns = ("nll", "target_logit", "topk_id", "topk_logit")
    if not both(table, "probe logits", a, b, *(f"probe/{name}" for name in columns)):
        return
    nll, target, ids, top = ((a.array(f"probe/{n}"), b.array(f"probe/{n}")) for n in columns)
    if any(x.shape != y.shape for x, y in (nll, target, ids, top)):
        table.add("probe logits", np.inf, "shapes differ")
        return
    size = np.maximum(np.abs(top[1]).max(axis=2), np.abs(target[1]))
    moved = np.maximum(np.abs(top[0] - top[1]).max(axis=2), np.abs(target[0] - target[1])) / size
    steps = b.array("eval/step")
    places = [f"after update {s}, token {k}" for s in steps for k in range(size.shape[1])]
    table.worst("probe logits", moved.ravel(), places)
    table.worst("probe nll", (np.abs(nll[0] - nll[1]) / (2 * size)).ravel(), places)
    gaps = -np.diff(top[1], axis=2)
    limit = 2 * table.tolerances.get("probe logits", 0.0) * size[:, :, None]
    apart = np.pad(gaps > limit, ((0, 0), (0, 0), (1, 0)), constant_values=True)
    apart[:, :, :-1] &= gaps > limit
    apart[:, :, -1] = False  # the ninth logit is not known
    wrong = np.argwhere(apart & (ids[0] != ids[1]))
    table.equal("probe ids", not len(wrong) and apart.any(), f"{len(wrong)} of {apart.sum()} differ")
