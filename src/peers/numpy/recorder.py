"""What a run records (io/FORMAT.md), from the run's own values."""

import json
import os
import platform
import resource
import socket

import h5py
import keys
import numpy as np
from adapter import adapter_checksum, adapter_digest
from evaluation import TOP
from optimizer import norm
from trajectory import Trajectory, utc_now

STACK = "numpy"


def execution_text(cfg):
    """As configured, but for what this stack computes otherwise; its build are its sources."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sources = [name for name in os.listdir(folder) if name.endswith(".py")]
    return keys.canonical_text({
        **{key: cfg[key] for key in keys.EXECUTION}, "precision": "f64", "ranks": 1, "device": "cpu",
        "build": keys.files_digest(folder, sources), "instruction_set": platform.machine()})


class Recorder:
    def __init__(self, path, run):
        self.file, self.cfg, self.start = Trajectory(path, STACK), run.cfg, utc_now()
        self.evaluates, self.probes = bool(run.held_out), bool(run.probe_tokens)
        self.adapter_off = [float("nan")] * 2
        self._inputs(run)
        self._tables(run)
        self.publish()

    def _inputs(self, run):
        file, execution = self.file, execution_text(run.cfg)
        file.set("/spec", text=run.spec_text, digest=keys.sha256(run.spec_text.encode()))
        file.set("/execution", text=execution, digest=keys.sha256(execution.encode()))
        file.set("/load", config=json.dumps(run.config.echo(), sort_keys=True),
                 **{column: [row[column] for row in run.load_rows] for column in run.load_rows[0]})
        samples = run.train + run.held_out
        file.n_train = len(run.train)
        file.set("/render", digest=[s.digest for s in samples], n_ids=[len(s.ids) for s in samples],
                 n_targets=[len(s.scored) for s in samples],
                 last_target_id=[s.ids[s.scored[-1]] if len(s.scored) else -1 for s in samples],
                 template_digest=keys.sha256(run.template.encode()),
                 begin=np.cumsum([0] + [len(s.ids) for s in samples]),
                 ids=np.concatenate([s.ids for s in samples]),
                 targets=np.concatenate([s.targets for s in samples]))
        file.set("/adapter", names=list(run.adapter), shapes=[p.shape for p in run.adapter.values()])

    def _tables(self, run):
        file, n_tensors, n_probe = self.file, len(run.adapter), len(run.probe_tokens)
        file.table("/update", "step", "optimizer_step", "loss", "n_targets", "grad_norm", "clip", "lr",
                   "n_samples", "seconds", "adapter_checksum")
        file.table("/update", "sample_ids", row=(self.cfg["batch.global"],))
        if self.cfg["observe.every"]:
            file.table("/observed", "step")
            file.table("/observed", "tensor_grad_norm", row=(n_tensors,))
        if not self.evaluates:
            return
        file.table("/eval", "step", "nll_sum", "n_tokens", "loss", "seconds", "adapter_digest")
        file.set("/eval", loss_adapter_off=self.adapter_off)
        file.table("/activation", "ba_norm", row=(n_tensors // 2,))
        file.table("/activation", "update_norm", row=(n_tensors,))
        file.table("/memory", "host_bytes", "device_bytes")
        if not self.probes:
            return
        sample, position, target = zip(*run.probe_tokens)
        file.set("/probe", sample=sample, position=position, target=target)
        file.table("/probe", "nll", "target_logit", row=(n_probe,))
        file.table("/probe", "topk_id", "topk_logit", row=(n_probe, TOP))
        file.table("/activation", "rms", "absmax", row=(run.config.layers,))

    def publish(self, complete=False):
        self.file.provenance = {
            "arithmetic": "numpy float64", "orchestration": "src/peers/numpy", "runtime": "CPython",
            "python": platform.python_version(), "numpy": np.__version__, "h5py": h5py.__version__,
            "hdf5": h5py.version.hdf5_version, "compiler": platform.python_compiler(),
            "hosts": socket.gethostname(), "ranks": 1, "threads": int(os.environ["OPENBLAS_NUM_THREADS"]),
            "start": self.start, "load": os.getloadavg()[0], **({"end": utc_now()} if complete else {}),
            **{f"path.{key}": os.path.abspath(self.cfg[key]) for key in keys.PATHS if self.cfg[key]}}
        self.file.publish(complete)

    def gradient(self, t, gradient, run):
        """Before update t's step: what is to be stored or observed of it."""
        if self.cfg["snapshot.every"] and t % self.cfg["snapshot.every"] == 0:
            parts = {"adapter": run.adapter, "m": run.optimizer.m, "v": run.optimizer.v, "gradient": gradient}
            self.file.snapshot(t, {part: parts[part] for part in self.cfg["snapshot.what"].split(",")})
        if self.cfg["observe.every"] and t % self.cfg["observe.every"] == 0:
            self.file.row("/observed", step=t, tensor_grad_norm=[norm(g) for g in gradient.values()])

    def update(self, batch, run, **columns):
        padded = batch + [-1] * (self.cfg["batch.global"] - len(batch))
        self.file.row("/update", optimizer_step=run.optimizer.steps, n_samples=len(batch), sample_ids=padded,
                      adapter_checksum=adapter_checksum(run.adapter), **columns)

    def evaluation(self, run, probe, **columns):
        self.file.row("/eval", adapter_digest=adapter_digest(run.adapter), **columns)
        if self.probes:
            self.file.row("/probe", **probe.probe_row())
            self.file.row("/activation", **probe.activation_row(run.config.hidden))
        tensors = list(run.adapter.values())
        self.file.row("/activation", update_norm=list(run.change.values()),
                      ba_norm=[norm(run.model.scale * (b @ a)) for a, b in zip(tensors[0::2], tensors[1::2])])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.file.row("/memory", host_bytes=peak, device_bytes=0)
        self.publish()

    def loss_adapter_off(self, when, loss):
        """when: 0 at step 0, 1 at the end."""
        self.adapter_off[when] = loss
