"""Recomputes another stack's updates, each from that stack's stored state, and records the differences.

Snapshot t holds the state before update t, so the adapters are the same bits in both stacks and only this
update's own error is left in the gradient.
"""

import time

import numpy as np

import stack
from optimizer import clip_factor
from trajectory import TABLES, now

WRITTEN_TABLES = [
    n for n in TABLES if n.split("/")[0] in ("update", "observed", "audit") and n != "update/adapter_checksum"
]
GROUPS = ("adapter", "m", "v")
U32 = 2.0**-24  # unit roundoff of float32
SMALLEST32 = 2.0**-149


def relative_errors(run, g, reference):
    """Per tensor: |g - g*| / |g*| and <g, g*> / <g*, g*>. Both zero: 0 and 1."""
    errors, projections = [], []
    for name in run.names:
        x, y = g[name], reference[name]
        norm = np.linalg.norm(y)
        difference = np.linalg.norm(x - y)
        errors.append(difference / norm if norm > 0 else (0.0 if difference == 0 else np.inf))
        projections.append(
            float(np.sum(x * y)) / norm**2 if norm > 0 else (1.0 if difference == 0 else np.inf)
        )
    return errors, projections


def optimizer_errors(run, before, after, gradient, steps, t, scored):
    """Largest componentwise error of the other stack's step, given its own g, m, v and adapter; per tensor.

    In units of u(float32) * (|a| + |b|), where a + b is the last sum of each formula: p = p(1 - lr wd) -
    step, m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2. There are no reductions, so a correct float32 step
    stays below 8. Nothing scored: every bit must be as before (0, else infinite). steps: made after this
    update.
    """
    if not scored:
        return [
            0.0 if all(np.array_equal(before[k][n], after[k][n]) for k in GROUPS) else np.inf
            for n in run.names
        ]
    spec = run.spec
    lr = spec.learning_rate(t)
    clip = clip_factor(np.sqrt(sum(float(np.sum(g * g)) for g in gradient.values())), spec["optim.clip"])
    errors = []
    for name in run.names:
        p, m, v, g = before["adapter"][name], before["m"][name], before["v"][name], gradient[name] * clip
        m_parts = spec["optim.beta1"] * m, (1 - spec["optim.beta1"]) * g
        v_parts = spec["optim.beta2"] * v, (1 - spec["optim.beta2"]) * g * g
        v_new = sum(v_parts)
        corrected = np.sqrt(v_new) / np.sqrt(1 - spec["optim.beta2"] ** steps) + spec["optim.eps"]
        # The other stack's own m and v enter its step, so their cancellation is not counted against p again.
        step = lr / (1 - spec["optim.beta1"] ** steps) * after["m"][name] / corrected
        p_parts = p * (1 - lr * spec["optim.weight_decay"]), -step
        worst = 0.0
        for parts, stored in ((p_parts, after["adapter"]), (m_parts, after["m"]), (v_parts, after["v"])):
            scale = U32 * (np.abs(parts[0]) + np.abs(parts[1])) + SMALLEST32
            worst = np.maximum(worst, np.max(np.abs(stored[name] - (parts[0] + parts[1])) / scale))
        errors.append(float(worst) if np.isfinite(worst) else np.inf)
    return errors


def lock_step(run, other, path, precision="f64", report=None):
    """Writes a trajectory of the recomputed updates, their snapshots holding the other's state and this
    gradient.

    optimizer_error is NaN where the other stack kept no snapshot of the next update, which holds the
    step's result.
    """
    if other.texts("adapter/names") != run.names:
        raise ValueError(f"{other.path}: its adapter tensors are not those of the specification")
    writer = stack.new_writer(run, path, "pytorch", precision, WRITTEN_TABLES)
    made = other.array("update/optimizer_step")
    steps = other.snapshot_steps()
    for t, batch in run.batches():
        if t not in steps:
            continue
        begin = time.monotonic()
        before = {group: other.snapshot(t, group) for group in GROUPS}
        adapter = run.adapter(before["adapter"])
        update = run.gradient(t, batch, adapter)
        gradient = other.snapshot(t, "gradient")
        errors, projections = relative_errors(run, gradient, stack.arrays(update.gradients))
        step_errors = [np.nan] * len(run.names)
        if t + 1 in steps:
            after = {group: other.snapshot(t + 1, group) for group in GROUPS}
            step_errors = optimizer_errors(
                run, before, after, gradient, int(made[t - 1]), t, update.n_targets > 0
            )
        loss, norm = other.array("update/loss")[t - 1], other.array("update/grad_norm")[t - 1]
        writer.add(
            "audit",
            step=t,
            loss_error=relative(loss, update.loss),
            norm_error=relative(norm, update.norm),
            relative_error=errors,
            projection=projections,
            optimizer_error=step_errors,
        )
        stack.record_update(writer, run, t, batch, update, int(made[t - 1]), None, time.monotonic() - begin)
        writer.snapshot(t, gradient=stack.arrays(update.gradients), **before)
        if report:
            report(
                f"{update.line(t)}, largest gradient error {max(errors):.2e}, step {max(step_errors):.2f} u"
            )
    writer.attributes["provenance"]["end"] = now()
    writer.publish(complete=1)


def relative(value, reference):
    """|value - reference| / |reference|; two NaNs (nothing scored in either) and two zeros agree."""
    if np.isnan(value) and np.isnan(reference) or value == reference:
        return 0.0
    return float(abs(value - reference) / abs(reference)) if reference else np.inf
