"""The reference as a stack: its inputs, one update, one evaluation, and how they are recorded."""

import json
import platform
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import model as models
import observation
import random_numbers
from model_files import InputError, read_config, read_model_tensors, read_peft_adapter, read_samples
from optimizer import clip_factor, gradient_norm
from run_spec import adapter_checksum, adapter_digest, text_digest
from trajectory import TABLES, Writer, now


@dataclass
class Update:
    """What is known of an update before its step. Nothing scored: loss NaN, norm 0, clip 1, no step."""

    loss: float
    n_targets: int
    gradients: dict  # {name: float64 tensor}, of the mean nll, not clipped
    norm: float
    clip: float

    def clipped(self):
        return {name: g * self.clip for name, g in self.gradients.items()}

    def line(self, t):
        numbers = f"loss {self.loss:.9f}, norm {self.norm:.6e}, clip {self.clip:.4f}"
        return f"update {t}: {numbers}, {self.n_targets} scored"


class Run:
    """A specification with its inputs loaded, in a compute type (float64 unless a test asks for less)."""

    def __init__(self, spec, model_folder, train, held_out=None, lora_init=None, dtype=torch.float64):
        self.spec, self.dtype = spec, dtype
        folder = Path(model_folder)
        self.config = read_config(folder / "config.json")
        self.tensors = read_model_tensors(folder)
        self.model = models.Model(self.config, self.tensors, dtype)
        limits = spec["data.max_tokens"], spec["data.truncate"], self.config.vocab
        self.train = read_samples(train, *limits)
        self.held_out = read_samples(held_out, *limits) if held_out else []
        self.spec.resolve(len(self.train))
        if not any(len(s.scored) for s in self.train):
            raise InputError(f"{train}: no sample has a scored token")
        if held_out and not any(len(s.scored) for s in self.held_out):
            raise InputError(f"{held_out}: no sample has a scored token")
        drawn = models.initial_adapter(
            self.config, spec.lora_targets, spec["lora.rank"], spec["seed.adapter"]
        )
        self.initial = read_peft_adapter(lora_init) if lora_init else drawn
        if {n: a.shape for n, a in self.initial.items()} != {n: a.shape for n, a in drawn.items()}:
            raise InputError(f"{lora_init}: its tensors are not those of lora.rank and lora.targets")
        self.names = list(drawn)
        self.probe = observation.Probe.of(self.held_out, observation.MOST) if self.held_out else None

    def adapter(self, values):
        """{name: leaf tensor} of {name: array}, in the order of self.names."""
        return {
            n: torch.tensor(np.asarray(values[n]), dtype=self.dtype, requires_grad=True) for n in self.names
        }

    def batches(self):
        """Yields (t, sample indices) for t = 1..T."""
        order = random_numbers.global_batches(
            self.spec["seed.order"], len(self.train), self.spec["batch.global"], self.spec["train.updates"]
        )
        return enumerate(order, 1)

    def kept(self, t):
        """The dropout of update t as batch_gradient takes it: None, or sample index -> (module, n, in) ->
        mask.
        """
        p = self.spec["lora.dropout"]
        if p == 0.0:
            return None

        def of_sample(index):
            def of_module(module, n, n_in):
                mask = random_numbers.dropout_mask(
                    self.spec["seed.dropout"], module, p, t, int(index), n, n_in
                )
                return torch.from_numpy(mask).to(self.dtype), 1.0 / (1.0 - p)

            return of_module

        return of_sample

    def gradient(self, t, batch, adapter):
        """The Update t of a global batch (sample indices), for the adapter after update t-1."""
        samples = [(int(i), self.train[i]) for i in batch]
        total, count, gradients = models.batch_gradient(
            self.model, samples, adapter, self.spec.lora_scale, self.kept(t)
        )
        if gradients is None:
            return Update(float("nan"), 0, {n: torch.zeros_like(p) for n, p in adapter.items()}, 0.0, 1.0)
        loss, norm = total / count, gradient_norm(gradients)
        if not (np.isfinite(loss) and np.isfinite(norm)):
            raise ArithmeticError(
                f"update {t}: loss {loss}, gradient norm {norm}, samples {list(map(int, batch))}"
            )
        return Update(loss, count, gradients, norm, clip_factor(norm, self.spec["optim.clip"]))

    def evaluate(self, adapter):
        return models.evaluate(self.model, self.held_out, adapter, self.spec.lora_scale)


def float32(adapter):
    return {name: p.detach().numpy().astype(np.float32) for name, p in adapter.items()}


def arrays(tensors):
    return {name: t.detach().numpy() for name, t in tensors.items()}


def free_tables(run):
    """The tables of a free run."""
    absent = ("audit/",) if run.held_out else ("audit/", "probe/", "activation/")
    return [name for name in TABLES if not name.startswith(absent)]


def new_writer(run, path, stack, precision, tables):
    """Everything that is known before the first update."""
    sizes = {
        "sample": run.spec["batch.global"],
        "tensor": len(run.names),
        "module": len(run.names) // 2,
        "layer": run.config.layers,
        "probe token": len(run.probe) if run.probe else 0,
        "rank": observation.TOP,
    }
    writer = Writer(path, stack, sizes, tables)
    writer.set("spec/text", run.spec.text, description="canonical text of the specification")
    writer.set("spec/digest", np.bytes_(run.spec.digest), description="SHA-256 of the text")
    execution = f'batch.micro = 1\nobserve.every = 1\nprecision = "{precision}"\n'
    writer.set("execution/text", execution, description="how it was computed")
    writer.set("execution/digest", np.bytes_(text_digest(execution)), description="SHA-256 of the text")
    shapes = np.array([run.initial[n].shape for n in run.names], dtype=np.int64)
    writer.set(
        "adapter/names", np.array(run.names, dtype=object), labels=("tensor",), description="adapter tensors"
    )
    writer.set("adapter/shapes", shapes, labels=("tensor", "dimension"), description="rows, columns")
    add_inputs(writer, run)
    if run.probe and "probe/nll" in tables:
        for column, values in asdict(run.probe).items():
            writer.set(f"probe/{column}", values, labels=("probe token",), description=f"{column} of each")
    writer.attributes["provenance"] = {
        "arithmetic": "PyTorch",
        "orchestration": "tests/reference",
        "runtime": "CPython",
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "hosts": socket.gethostname(),
        "devices": "cpu",
        "ranks": np.int64(1),
        "threads": np.int64(torch.get_num_threads()),
        "start": now(),
    }
    return writer


def add_inputs(writer, run):
    """Levels 2 and 3: the base tensors and the samples as this stack read them."""
    names = sorted(n for n in run.model.w)
    loaded = [run.tensors[n] for n in names]
    shapes = [list(t.values.shape) + [-1] * (4 - t.values.ndim) for t in loaded]
    means = [float(t.values.astype(np.float64).mean()) for t in loaded]
    rms = [float(np.sqrt(np.square(t.values.astype(np.float64)).mean())) for t in loaded]
    tables = {
        "name": np.array(names, dtype=object),
        "digest": np.array([t.digest for t in loaded], dtype="S64"),
        "shape": np.array(shapes, dtype=np.int64),
        "dtype": np.array([t.dtype for t in loaded], dtype=object),
        "mean": np.array(means),
        "rms": np.array(rms),
    }
    for column, data in tables.items():
        labels = ("base tensor", "dimension")[: data.ndim]
        writer.set(f"load/{column}", data, labels=labels, description=f"{column} of each base tensor")
    writer.set("load/config", json.dumps(asdict(run.config)), description="the model's configuration as read")
    samples = run.train + run.held_out
    last = [int(s.ids[s.scored[-1]]) if len(s.scored) else -1 for s in samples]
    columns = {
        "digest": np.array([s.digest for s in samples], dtype="S64"),
        "n_ids": np.array([len(s.ids) for s in samples], dtype=np.int64),
        "n_targets": np.array([len(s.scored) for s in samples], dtype=np.int64),
        "last_target_id": np.array(last, dtype=np.int64),
    }
    for column, data in columns.items():
        writer.set(
            f"render/{column}", data, labels=("sample",), description=f"{column}; training, then held-out"
        )
    writer.set("render/template_digest", "", description="no row was rendered")
    writer.attributes["render"] = {"n_train": np.int64(len(run.train))}


def record_update(writer, run, t, batch, update, optimizer_step, adapter, seconds):
    """adapter: after the step; None where no step was made from this update."""
    ids = np.full(run.spec["batch.global"], -1, dtype=np.int64)
    ids[: len(batch)] = batch
    writer.add(
        "update",
        step=t,
        optimizer_step=optimizer_step,
        loss=update.loss,
        n_targets=update.n_targets,
        grad_norm=update.norm,
        clip=update.clip,
        lr=run.spec.learning_rate(t),
        n_samples=len(batch),
        sample_ids=ids,
        seconds=seconds,
    )
    if adapter is not None:
        writer.add("update", adapter_checksum=adapter_checksum(float32(adapter)))
    writer.add("observed", step=t, tensor_grad_norm=[float(update.gradients[n].norm()) for n in run.names])


def record_snapshot(writer, t, adapter, optimizer, update):
    """State before the step of update t, and its gradient, not clipped."""
    writer.snapshot(
        t,
        adapter=arrays(adapter),
        m=arrays(optimizer.m),
        v=arrays(optimizer.v),
        gradient=arrays(update.gradients),
    )


def record_evaluation(writer, run, t, adapter, before=None):
    """before: the adapter before update t."""
    if not run.held_out:
        return
    begin = time.monotonic()
    nll_sum, n_tokens = run.evaluate(adapter)
    writer.add(
        "eval",
        step=t,
        nll_sum=nll_sum,
        n_tokens=n_tokens,
        loss=nll_sum / n_tokens,
        seconds=time.monotonic() - begin,
        adapter_digest=adapter_digest(float32(adapter)),
    )
    probe, activation = run.probe.look(run.model, run.held_out, adapter, run.spec.lora_scale)
    writer.add("probe", **probe)
    writer.add(
        "activation",
        **activation,
        ba_norm=observation.ba_norms(run.names, adapter, run.spec.lora_scale),
        update_norm=observation.update_norms(run.names, adapter, before),
    )
    if t in (0, run.spec["train.updates"]):
        nll_sum, n_tokens = run.evaluate(None)
        writer.add("eval", loss_adapter_off=nll_sum / n_tokens)
