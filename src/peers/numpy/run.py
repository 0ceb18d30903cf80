"""One training run: inputs, updates, evaluations."""

import math
import os
import sys
import time

import chat_template
import keys
import numpy as np
import weights
from adapter import adapter_names, initial_adapter
from draws import batches
from evaluation import Probe, evaluate
from keys import Refused
from model import Model
from optimizer import AdamW, clip_factor, learning_rate
from recorder import Recorder
from samples import read_samples
from tokenizer import Tokenizer


class Run:
    def __init__(self, given):
        """given: what a configuration says."""
        for key in ("model.path", "data.train"):
            if given.get(key) is None:
                raise Refused(f"{key} is not given")
        folder = given["model.path"]
        self.config = weights.Config(folder)
        data = {key: given.get(key, keys.SPEC[key][0]) for key in keys.SPEC if key.startswith("data.")}
        if data["data.max_tokens"] > self.config.positions:
            raise Refused("data.max_tokens is above max_position_embeddings")
        self.template = chat_template.read_template(folder) or ""
        chat_template.expect_qwen3(data["data.template"], self.template)
        tokenizer = Tokenizer(os.path.join(folder, "tokenizer.json"))
        self.train = self._samples("data.train", data, tokenizer)
        self.held_out = self._samples("data.held_out", data, tokenizer)
        cfg = self.cfg = keys.complete(given, len(self.train))
        self.spec_text = keys.spec_text(cfg)
        tensors, self.load_rows = weights.load(folder, self.config)
        root = math.sqrt(cfg["lora.rank"]) if cfg["lora.rslora"] else cfg["lora.rank"]
        dropout = (cfg["seed.dropout"], cfg["lora.dropout"]) if cfg["lora.dropout"] else None
        self.model = Model(self.config, tensors, cfg["lora.alpha"] / root, dropout)
        self.adapter = initial_adapter(cfg, tensors, adapter_names(cfg, self.config.layers))
        self.optimizer = AdamW(cfg, self.adapter)
        self.change = dict.fromkeys(self.adapter, 0.0)  # 2-norms of the last update
        scored = [(i, p, sample.ids[p]) for i, sample in enumerate(self.held_out) for p in sample.scored]
        self.probe_tokens = scored[:cfg["observe.probe"]]

    def _samples(self, key, data, tokenizer):
        if data[key] is None:
            return []
        samples, counts = read_samples(data[key], tokenizer, data, self.config.vocab)
        say(f"{data[key]}: {len(samples)} samples, {counts}")
        return samples

    def micro_batches(self, batch):
        size = self.cfg["batch.micro"]
        return [batch[begin:begin + size] for begin in range(0, len(batch), size)]

    def gradient(self, batch, t):
        """(sum of nll, scored tokens, gradient of the sum) of a global batch."""
        gradient = {name: np.zeros_like(p) for name, p in self.adapter.items()}
        total, count = 0.0, 0
        for part in self.micro_batches(batch):
            row = self.model.forward([self.train[i] for i in part], self.adapter, t, part)
            self.model.backward(row, self.adapter, gradient)
            total += float(row.nll.sum())
            count += len(row.nll)
        return total, count, gradient

    def update(self, t, batch, recorder):
        began, lr = time.perf_counter(), learning_rate(self.cfg, t)
        total, count, gradient = self.gradient(batch, t)
        gradient = {name: g / max(count, 1) for name, g in gradient.items()}
        loss, grad_norm, clip = math.nan, 0.0, 1.0
        if count:
            loss = total / count
            grad_norm = math.sqrt(sum(float(np.sum(np.square(g))) for g in gradient.values()))
            if not (math.isfinite(loss) and math.isfinite(grad_norm)):
                raise ArithmeticError(f"update {t}: loss {loss}, gradient norm {grad_norm}")
            clip = clip_factor(grad_norm, self.cfg["optim.clip"])
        recorder.gradient(t, gradient, self)
        if count:
            clipped = {name: clip * g for name, g in gradient.items()}
            self.change = self.optimizer.step(self.adapter, clipped, lr)
        else:
            self.change = dict.fromkeys(self.adapter, 0.0)
        recorder.update(batch, self, step=t, loss=loss, n_targets=count, grad_norm=grad_norm, clip=clip,
                        lr=lr, seconds=time.perf_counter() - began)
        if t == 1 or t % self.cfg["log.every"] == 0:
            last = self.cfg["train.updates"]
            say(f"update {t}/{last}  loss {loss:.6f}  grad norm {grad_norm:.6f}  lr {lr:.6g}")

    def evaluation(self, t, recorder):
        began, micro = time.perf_counter(), self.cfg["batch.micro"]
        if t in (0, self.cfg["train.updates"]):
            total, count = evaluate(self.model, self.held_out, None, micro)
            recorder.loss_adapter_off(int(t > 0), total / count)
        probe = Probe(len(self.probe_tokens), self.config.layers)
        total, count = evaluate(self.model, self.held_out, self.adapter, micro, probe)
        recorder.evaluation(self, probe, step=t, nll_sum=total, n_tokens=count, loss=total / count,
                            seconds=time.perf_counter() - began)
        say(f"evaluation after update {t}: held-out loss {total / count:.6f} ({count} tokens)")

    def train_all(self, out):
        cfg, recorder = self.cfg, Recorder(out, self)
        if self.held_out:
            self.evaluation(0, recorder)
        order = batches(cfg["seed.order"], len(self.train), cfg["batch.global"], cfg["train.updates"])
        for t, batch in enumerate(order, 1):
            self.update(t, batch, recorder)
            if self.held_out and (t % cfg["eval.every"] == 0 or t == cfg["train.updates"]):
                self.evaluation(t, recorder)
        recorder.publish(complete=True)


def say(text):
    print(text, file=sys.stderr, flush=True)
