"""Gradient norm, clipping and AdamW. SPEC.md, "Optimiser"."""

import math

import torch


def gradient_norm(gradients):
    return math.sqrt(sum(float(g.double().pow(2).sum()) for g in gradients.values()))


def clip_factor(norm, maximum):
    return min(1.0, maximum / (norm + 1e-6)) if maximum > 0 else 1.0


class AdamW:
    """State m, v and `steps`, the number of steps made; tensors keep the type they are given."""

    def __init__(self, spec, adapter):
        self.beta1, self.beta2, self.eps = spec["optim.beta1"], spec["optim.beta2"], spec["optim.eps"]
        self.weight_decay = spec["optim.weight_decay"]
        self.m = {name: torch.zeros_like(p) for name, p in adapter.items()}
        self.v = {name: torch.zeros_like(p) for name, p in adapter.items()}
        self.steps = 0

    def step(self, adapter, gradients, lr):
        """gradients: clipped. Changes adapter, m and v in place."""
        self.steps += 1
        correction1 = 1.0 - self.beta1**self.steps
        correction2 = math.sqrt(1.0 - self.beta2**self.steps)
        with torch.no_grad():
            for name, p in adapter.items():
                g, m, v = gradients[name].to(p.dtype), self.m[name], self.v[name]
                p.mul_(1.0 - lr * self.weight_decay)
                m.mul_(self.beta1).add_(g, alpha=1.0 - self.beta1)
                v.mul_(self.beta2).addcmul_(g, g, value=1.0 - self.beta2)
                p.sub_(m / (v.sqrt() / correction2 + self.eps) * (lr / correction1))
