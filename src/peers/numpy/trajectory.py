"""The trajectory file (io/FORMAT.md, version 1): what each dataset is, and writing by rename."""

import datetime
import os

import h5py
import numpy as np

TEXT = h5py.string_dtype("utf-8")
DIGEST, INT, REAL, BITS = "S64", "<i8", "<f8", "<u8"
SHA = "SHA-256"

# path: (type, unit, description, dimension labels)
DATASETS = {
    "/spec/text": (TEXT, "text", "canonical text of the run specification", ()),
    "/spec/digest": (TEXT, SHA, "of text", ()),
    "/execution/text": (TEXT, "text", "canonical text of how the run was executed", ()),
    "/execution/digest": (TEXT, SHA, "of text", ()),
    "/load/name": (TEXT, "text", "tensor of the base model", ("tensor",)),
    "/load/digest": (DIGEST, SHA, "of the bytes in the file's type", ("tensor",)),
    "/load/shape": (INT, "elements", "-1 = no such dimension", ("tensor", "dimension")),
    "/load/dtype": (TEXT, "text", "type in the file", ("tensor",)),
    "/load/mean": (REAL, "1", "mean of the elements", ("tensor",)),
    "/load/rms": (REAL, "1", "root mean square of the elements", ("tensor",)),
    "/load/config": (TEXT, "JSON", "the model's configuration as used", ()),
    "/render/digest": (DIGEST, SHA, "of ids (int32) and target marks (bytes)", ("sample",)),
    "/render/n_ids": (INT, "tokens", "tokens of the sample", ("sample",)),
    "/render/n_targets": (INT, "tokens", "scored tokens of the sample", ("sample",)),
    "/render/last_target_id": (INT, "1", "id of the last scored token, -1 = none", ("sample",)),
    "/render/template_digest": (TEXT, SHA, "of the chat template's text", ()),
    "/render/begin": (INT, "tokens", "sample i is [begin[i], begin[i+1])", ("sample",)),
    "/render/ids": ("<i4", "1", "token ids of all samples", ("token",)),
    "/render/targets": ("u1", "1", "target marks of all samples", ("token",)),
    "/adapter/names": (TEXT, "text", "adapter tensors", ("tensor",)),
    "/adapter/shapes": (INT, "elements", "rows and columns", ("tensor", "dimension")),
    "/update/step": (INT, "updates", "number of the update, from 1", ("update",)),
    "/update/optimizer_step": (INT, "updates", "optimiser steps made", ("update",)),
    "/update/loss": (REAL, "nat/token", "mean nll of the scored tokens, NaN where none", ("update",)),
    "/update/n_targets": (INT, "tokens", "scored tokens of the global batch", ("update",)),
    "/update/grad_norm": (REAL, "nat/token", "2-norm of the gradient before clipping", ("update",)),
    "/update/clip": (REAL, "1", "factor applied to the gradient", ("update",)),
    "/update/lr": (REAL, "1", "learning rate", ("update",)),
    "/update/n_samples": (INT, "samples", "samples of the global batch", ("update",)),
    "/update/seconds": (REAL, "s", "wall time of the update", ("update",)),
    "/update/sample_ids": (INT, "1", "samples of the global batch in order, -1 = none", ("update", "sample")),
    "/update/adapter_checksum": (BITS, "1", "weighted sum of the float32 bits after the step", ("update",)),
    "/observed/step": (INT, "updates", "update observed", ("observation",)),
    "/observed/tensor_grad_norm": (REAL, "nat/token", "2-norm of each tensor's gradient before clipping",
                                   ("observation", "tensor")),
    "/eval/step": (INT, "updates", "updates made before the evaluation", ("evaluation",)),
    "/eval/nll_sum": (REAL, "nat", "sum of the nll over the held-out set", ("evaluation",)),
    "/eval/n_tokens": (INT, "tokens", "scored tokens of the held-out set", ("evaluation",)),
    "/eval/loss": (REAL, "nat/token", "nll_sum / n_tokens", ("evaluation",)),
    "/eval/seconds": (REAL, "s", "wall time of the evaluation", ("evaluation",)),
    "/eval/adapter_digest": (DIGEST, SHA, "of the adapter rounded to float32", ("evaluation",)),
    "/eval/loss_adapter_off": (REAL, "nat/token", "held-out loss without adapter, at both ends", ("when",)),
    "/probe/sample": (INT, "1", "held-out sample of the probed token", ("probe token",)),
    "/probe/position": (INT, "tokens", "position of the probed token", ("probe token",)),
    "/probe/target": (INT, "1", "id of the probed token", ("probe token",)),
    "/probe/nll": (REAL, "nat", "nll of the probed token", ("evaluation", "probe token")),
    "/probe/target_logit": (REAL, "1", "logit of the probed token", ("evaluation", "probe token")),
    "/probe/topk_id": (INT, "1", "ids of the 8 largest logits", ("evaluation", "probe token", "rank")),
    "/probe/topk_logit": (REAL, "1", "the 8 largest logits", ("evaluation", "probe token", "rank")),
    "/activation/rms": (REAL, "1", "rms of the residual stream after each layer", ("evaluation", "layer")),
    "/activation/absmax": (REAL, "1", "largest magnitude there", ("evaluation", "layer")),
    "/activation/ba_norm": (REAL, "1", "Frobenius norm of s B A", ("evaluation", "module")),
    "/activation/update_norm": (REAL, "1", "2-norm of each tensor's last change", ("evaluation", "tensor")),
    "/memory/host_bytes": (INT, "bytes", "peak resident memory so far", ("evaluation",)),
    "/memory/device_bytes": (INT, "bytes", "peak device memory so far", ("evaluation",)),
}
SNAPSHOT = {"adapter": "before the update", "m": "first moment before the update",
            "v": "second moment before the update", "gradient": "of the update, not clipped"}


def utc_now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def add(file, path, value, dtype, unit, description, labels):
    data = value if dtype == TEXT else np.array(value, dtype)
    dataset = file.create_dataset(path, data=data, dtype=dtype)
    dataset.attrs["unit"], dataset.attrs["description"] = unit, description
    for i, label in enumerate(labels):
        dataset.dims[i].label = label


def write_whole(path, fill):
    """A reader sees the old file or the new one, each closed."""
    part = f"{path}.part"
    with h5py.File(part, "w") as file:
        fill(file)
    os.replace(part, path)


class Trajectory:
    """Columns in memory; the whole file is written anew at each publication."""

    def __init__(self, path, stack):
        self.path, self.stack = path, stack
        self.values, self.tables, self.snapshots = {}, {}, []
        self.provenance, self.n_train = {}, 0

    def set(self, group, **values):
        for name, value in values.items():
            self.values[f"{group}/{name}"] = value

    def table(self, group, *names, row=()):
        """Columns that grow, each row of the shape `row`."""
        for name in names:
            self.tables[f"{group}/{name}"] = ([], row)

    def row(self, group, **columns):
        for name, value in columns.items():
            self.tables[f"{group}/{name}"][0].append(value)

    def publish(self, complete=False):
        write_whole(self.path, lambda file: self._fill(file, complete))

    def _fill(self, file, complete):
        file.attrs.update({"format": "tandem-trajectory", "format_version": 1, "stack": self.stack,
                           "complete": int(complete), "written_at": utc_now()})
        for path, value in self.values.items():
            add(file, path, value, *DATASETS[path])
        for path, (rows, row) in self.tables.items():
            add(file, path, np.array(rows, DATASETS[path][0]).reshape(len(rows), *row), *DATASETS[path])
        file.create_group("/provenance").attrs.update(self.provenance)
        file["/render"].attrs["n_train"] = self.n_train
        for step, target in self.snapshots:
            file[f"/snapshot/{step}"] = h5py.ExternalLink(target, "/")

    def snapshot(self, step, parts):
        """parts: name of SNAPSHOT -> {tensor: array}; beside the file, linked from it."""
        target = f"{self.stack}.snapshots/{step}.h5"
        path = os.path.join(os.path.dirname(os.path.abspath(self.path)), target)
        os.makedirs(os.path.dirname(path), exist_ok=True)

        def fill(file):
            for part, tensors in parts.items():
                for name, tensor in tensors.items():
                    add(file, f"/{part}/{name}", tensor, REAL, "1", SNAPSHOT[part], ("row", "column"))

        write_whole(path, fill)
        self.snapshots.append((step, target))
