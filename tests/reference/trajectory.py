"""Writes and reads trajectory files, format version 1 (io/FORMAT.md)."""

import datetime
import os
from pathlib import Path

import h5py
import numpy as np

# path: (type, unit, labels of the dimensions, description)
TABLES = {
    "update/step": ("i8", "1", ("update",), "update, from 1"),
    "update/optimizer_step": ("i8", "1", ("update",), "optimiser steps made after the update"),
    "update/loss": ("f8", "nat/token", ("update",), "mean nll of the global batch before the step"),
    "update/n_targets": ("i8", "token", ("update",), "scored tokens of the global batch"),
    "update/grad_norm": ("f8", "1", ("update",), "2-norm of all adapter gradients before clipping"),
    "update/clip": ("f8", "1", ("update",), "clip factor"),
    "update/lr": ("f8", "1", ("update",), "learning rate"),
    "update/n_samples": ("i8", "sample", ("update",), "samples of the global batch"),
    "update/seconds": ("f8", "s", ("update",), "wall time of the update"),
    "update/sample_ids": ("i8", "1", ("update", "sample"), "global batch in order, -1 = none"),
    "update/adapter_checksum": (
        "u8",
        "1",
        ("update",),
        "checksum of the adapter after the step, rounded to float32",
    ),
    "observed/step": ("i8", "1", ("observation",), "update"),
    "observed/tensor_grad_norm": ("f8", "1", ("observation", "tensor"), "2-norm of each tensor's gradient"),
    "eval/step": ("i8", "1", ("evaluation",), "update after which was evaluated, 0 = untrained"),
    "eval/nll_sum": ("f8", "nat", ("evaluation",), "sum of nll over the held-out set"),
    "eval/n_tokens": ("i8", "token", ("evaluation",), "scored tokens of the held-out set"),
    "eval/loss": ("f8", "nat/token", ("evaluation",), "nll_sum / n_tokens"),
    "eval/seconds": ("f8", "s", ("evaluation",), "wall time of the evaluation"),
    "eval/adapter_digest": ("S64", "1", ("evaluation",), "SHA-256 of the adapter, rounded to float32"),
    "eval/loss_adapter_off": ("f8", "nat/token", ("start and end",), "held-out loss without the adapter"),
    "probe/nll": ("f8", "nat", ("evaluation", "probe token"), "nll of each probed token"),
    "probe/target_logit": ("f8", "1", ("evaluation", "probe token"), "logit of the probed token"),
    "probe/topk_id": ("i8", "1", ("evaluation", "probe token", "rank"), "ids of the 8 largest logits"),
    "probe/topk_logit": ("f8", "1", ("evaluation", "probe token", "rank"), "the 8 largest logits"),
    "activation/rms": ("f8", "1", ("evaluation", "layer"), "residual stream after each layer, on the probe"),
    "activation/absmax": ("f8", "1", ("evaluation", "layer"), "its largest magnitude"),
    "activation/ba_norm": ("f8", "1", ("evaluation", "module"), "Frobenius norm of s B A"),
    "activation/update_norm": ("f8", "1", ("evaluation", "tensor"), "2-norm of the last update's change"),
    "audit/step": ("i8", "1", ("audit",), "update recomputed from the other stack's stored state"),
    "audit/loss_error": ("f8", "1", ("audit",), "relative difference of the losses"),
    "audit/norm_error": ("f8", "1", ("audit",), "relative difference of the gradient norms"),
    "audit/relative_error": ("f8", "1", ("audit", "tensor"), "|g - g*| / |g*|, g* of this stack"),
    "audit/projection": ("f8", "1", ("audit", "tensor"), "<g, g*> / <g*, g*>"),
    "audit/optimizer_error": (
        "f8",
        "u(float32)",
        ("audit", "tensor"),
        "optimiser step in isolation, see lock_step.py",
    ),
}


def row_shape(path, sizes):
    return tuple(sizes[label] for label in TABLES[path][2][1:])


class Writer:
    """Collects rows; `publish` writes the whole file beside its place and renames it."""

    def __init__(self, path, stack, sizes, tables=tuple(TABLES)):
        """sizes: {dimension label: columns}, for tables of two dimensions."""
        self.path, self.stack, self.sizes = Path(path), stack, sizes
        self.rows = {name: [] for name in tables}
        self.fixed, self.attributes, self.snapshots = {}, {}, []  # attributes: {group: {name: value}}
        self.snapshot_folder = self.path.parent / f"{self.path.stem}.snapshots"

    def add(self, group, **columns):
        for column, value in columns.items():
            self.rows[f"{group}/{column}"].append(value)

    def set(self, path, value, unit="1", labels=(), description=""):
        self.fixed[path] = (value, unit, labels, description)

    def snapshot(self, step, **groups):
        """groups: adapter, m, v, gradient; each {name: tensor}."""
        self.snapshot_folder.mkdir(parents=True, exist_ok=True)
        with published(self.snapshot_folder / f"{step}.h5") as f:
            f.attrs["step"] = np.int64(step)
            for group, tensors in groups.items():
                for name, tensor in tensors.items():
                    describe(f.create_dataset(f"{group}/{name}", data=tensor), "1", ("row", "column"), group)
        self.snapshots.append(step)

    def publish(self, complete):
        with published(self.path) as f:
            f.attrs["format"] = "tandem-trajectory"
            f.attrs["format_version"] = np.int64(1)
            f.attrs["stack"] = self.stack
            f.attrs["complete"] = np.int64(complete)
            f.attrs["written_at"] = now()
            for path, (value, unit, labels, description) in self.fixed.items():
                describe(f.create_dataset(path, data=value), unit, labels, description)
            for path, rows in self.rows.items():
                kind, unit, labels, description = TABLES[path]
                data = np.array(rows, dtype=kind).reshape((len(rows),) + row_shape(path, self.sizes))
                dataset = f.create_dataset(path, data=data, maxshape=(None,) + data.shape[1:], chunks=True)
                describe(dataset, unit, labels, description)
            for group, attributes in self.attributes.items():
                for name, value in attributes.items():
                    f.require_group(group).attrs[name] = value
            for step in self.snapshots:
                f[f"snapshot/{step}"] = h5py.ExternalLink(f"{self.snapshot_folder.name}/{step}.h5", "/")


class published:
    """A new HDF5 file under a temporary name, moved to its place when complete."""

    def __init__(self, path):
        self.path, self.temporary = Path(path), Path(f"{path}.part")

    def __enter__(self):
        self.file = h5py.File(self.temporary, "w")
        return self.file

    def __exit__(self, kind, *_):
        self.file.close()
        if kind is None:
            with open(self.temporary, "rb") as f:
                os.fsync(f.fileno())
            os.replace(self.temporary, self.path)
        else:
            self.temporary.unlink()


def describe(dataset, unit, labels, description):
    dataset.attrs["unit"] = unit
    dataset.attrs["description"] = description
    for dimension, label in zip(dataset.dims, labels):
        dimension.label = label


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Reader:
    """A closed file of format version 1. Paths as in FORMAT.md, without the leading slash."""

    def __init__(self, path):
        self.path = Path(path)
        self.file = h5py.File(self.path, "r")
        kind, version = self.file.attrs.get("format"), self.file.attrs.get("format_version")
        if text(kind) != "tandem-trajectory" or int(version) != 1:
            raise ValueError(
                f"{path}: not a trajectory of format version 1 (format {kind!r}, version {version!r})"
            )
        self.stack = text(self.file.attrs["stack"])

    def has(self, path):
        return path in self.file

    def array(self, path):
        return self.file[path][()]

    def text(self, path):
        return text(self.file[path][()])

    def texts(self, path):
        return [text(value) for value in self.file[path][()]]

    def snapshot_steps(self):
        return sorted(int(step) for step in self.file["snapshot"]) if self.has("snapshot") else []

    def snapshot(self, step, group):
        """{name: float64 array}, each as /adapter/shapes says."""
        node = self.file[f"snapshot/{step}/{group}"]
        shapes = dict(zip(self.texts("adapter/names"), self.array("adapter/shapes")))
        return {name: node[name][()].astype(np.float64).reshape(shapes[name]) for name in node}


def text(value):
    if isinstance(value, np.ndarray):
        value = value.reshape(-1)[0]
    return value.decode("utf-8").rstrip("\0") if isinstance(value, bytes) else str(value)
