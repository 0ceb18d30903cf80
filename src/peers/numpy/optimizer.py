"""Learning rate, clipping, AdamW, in float64 (SPEC.md, "Optimiser")."""

import math

import numpy as np


def learning_rate(cfg, t):
    lr, low, warmup, last = (cfg[k] for k in ("optim.lr", "optim.lr_min", "optim.warmup", "train.updates"))
    if t <= warmup:
        return lr * t / warmup
    if cfg["optim.schedule"] == "cosine":
        return low + (lr - low) * (1 + math.cos(math.pi * (t - warmup) / (last - warmup))) / 2
    if cfg["optim.schedule"] == "linear":
        return low + (lr - low) * (last - t) / (last - warmup)
    return lr


def clip_factor(norm, most):
    return min(1.0, most / (norm + 1e-6)) if most > 0 else 1.0


def norm(a):
    return math.sqrt(float(np.sum(np.square(a))))


class AdamW:
    """First and second moments of every tensor, and the steps made."""

    def __init__(self, cfg, adapter):
        self.cfg = cfg
        self.m = {name: np.zeros_like(p) for name, p in adapter.items()}
        self.v = {name: np.zeros_like(p) for name, p in adapter.items()}
        self.steps = 0

    def step(self, adapter, gradient, lr):
        """Replaces the adapter's tensors; returns the 2-norm of each one's change."""
        cfg = self.cfg
        self.steps += 1
        b1, b2, eps = cfg["optim.beta1"], cfg["optim.beta2"], cfg["optim.eps"]
        decay, rate = 1 - lr * cfg["optim.weight_decay"], lr / (1 - b1**self.steps)
        root = math.sqrt(1 - b2**self.steps)
        change = {}
        for name, g in gradient.items():
            old = adapter[name]
            self.m[name] = b1 * self.m[name] + (1 - b1) * g
            self.v[name] = b2 * self.v[name] + (1 - b2) * g * g
            adapter[name] = old * decay - rate * (self.m[name] / (np.sqrt(self.v[name]) / root + eps))
            change[name] = norm(adapter[name] - old)
        return change
