"""Qwen3 with LoRA, float64: forward, and the backward pass written by hand.

Shapes: N positions of one packed row of samples, H hidden, h heads of d, V vocabulary, S scored tokens.
"""

import numpy as np
from draws import dropout_factor
from weights import EMBEDDING, HEAD, PROJECTIONS


def rms_norm(x, weight, eps):
    """y and 1/rms, kept for the backward pass."""
    r = 1 / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps)
    return x * r * weight, r


def rms_norm_back(dy, x, weight, r):
    g = dy * weight
    return r * g - x * r**3 * np.mean(g * x, -1, keepdims=True)


def rotate(x, cos, sin):
    """Rotary embedding, half-split, of [N, heads, d]; backward is the rotation by -angle."""
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


class Row:
    """A packed row: what the forward pass found and the backward pass needs."""

    def __init__(self, samples, t, indices):
        self.t, self.indices = t, indices  # update (0: no dropout) and the samples' indices
        self.lengths = [len(sample.ids) for sample in samples]
        self.begin = np.cumsum([0] + self.lengths)
        self.ids = np.concatenate([sample.ids for sample in samples])
        self.position = np.concatenate([np.arange(n) for n in self.lengths])
        at = np.concatenate([sample.scored + begin for sample, begin in zip(samples, self.begin)]).astype(int)
        self.at = at - 1  # token p is scored by the logits at p-1 of its own sample
        self.target = self.ids[at]
        self.tape = {}  # of the LoRA products
        self.layers = []
        self.residual = []  # after each layer, [N, H]


class Model:
    def __init__(self, config, tensors, scale, dropout=None):
        """scale: s of the LoRA output; dropout: (seed, p) while training."""
        self.c, self.w, self.scale, self.dropout = config, tensors, scale, dropout
        self.head = tensors[EMBEDDING if config.tied else HEAD]
        self.frequency = config.theta ** (-2.0 * np.arange(config.dim // 2) / config.dim)
        # The key-value head of each query head.
        self.group = [j * config.kv // config.heads for j in range(config.heads)]

    def _linear(self, name, x, adapter, row):
        y = x @ self.w[name + ".weight"].T
        if adapter is None or name + ".lora_A.weight" not in adapter:
            return y
        factor = None
        if self.dropout and row.t:
            factor = np.concatenate([dropout_factor(*self.dropout, name, row.t, sample, n, x.shape[1])
                                     for sample, n in zip(row.indices, row.lengths)])
            x = x * factor
        z = x @ adapter[name + ".lora_A.weight"].T
        row.tape[name] = (x, z, factor)
        return y + self.scale * (z @ adapter[name + ".lora_B.weight"].T)

    def _linear_back(self, name, dy, adapter, row, gradient):
        dx = dy @ self.w[name + ".weight"]
        if name not in row.tape:
            return dx
        x, z, factor = row.tape[name]
        a, b = name + ".lora_A.weight", name + ".lora_B.weight"
        dz = self.scale * (dy @ adapter[b])
        gradient[b] += self.scale * (dy.T @ z)
        gradient[a] += dz.T @ x
        through = dz @ adapter[a]
        return dx + (through if factor is None else through * factor)

    def forward(self, samples, adapter, t=0, indices=None):
        """The row with nll, logits, target_logit of its scored tokens; adapter None: the base model."""
        row = Row(samples, t, indices)
        angle = (row.position[:, None] * self.frequency)[:, None, :]
        row.cos, row.sin = np.cos(angle), np.sin(angle)
        x = self.w[EMBEDDING][row.ids]
        for layer in range(self.c.layers):
            x = self._layer(f"model.layers.{layer}.", x, adapter, row)
            row.residual.append(x)
        h, row.r = rms_norm(x, self.w["model.norm.weight"], self.c.eps)
        row.logits = h[row.at] @ self.head.T  # [S, V]
        top = row.logits.max(-1, keepdims=True)
        row.log_sum = (top + np.log(np.exp(row.logits - top).sum(-1, keepdims=True)))[:, 0]
        row.target_logit = row.logits[np.arange(len(row.at)), row.target]
        row.nll = row.log_sum - row.target_logit
        return row

    def _layer(self, prefix, x, adapter, row):
        c, w, n, kept = self.c, self.w, len(x), {"x": x}

        def linear(target, inputs):
            return self._linear(prefix + PROJECTIONS[target], inputs, adapter, row)

        h, kept["r1"] = rms_norm(x, w[prefix + "input_layernorm.weight"], c.eps)
        kept["q0"] = linear("q", h).reshape(n, c.heads, c.dim)
        kept["k0"] = linear("k", h).reshape(n, c.kv, c.dim)
        kept["v"] = linear("v", h).reshape(n, c.kv, c.dim)
        q, kept["rq"] = rms_norm(kept["q0"], w[prefix + "self_attn.q_norm.weight"], c.eps)
        k, kept["rk"] = rms_norm(kept["k0"], w[prefix + "self_attn.k_norm.weight"], c.eps)
        kept["q"], kept["k"] = rotate(q, row.cos, row.sin), rotate(k, row.cos, row.sin)
        x = x + linear("o", self._attention(row, kept).reshape(n, -1))
        kept["x2"] = x
        h, kept["r2"] = rms_norm(x, w[prefix + "post_attention_layernorm.weight"], c.eps)
        kept["gate"], kept["up"] = linear("gate", h), linear("up", h)
        kept["sigmoid"] = 1 / (1 + np.exp(-kept["gate"]))
        row.layers.append(kept)
        return x + linear("down", kept["gate"] * kept["sigmoid"] * kept["up"])

    def _attention(self, row, kept):
        """[N, h, d]; each sample attends to itself alone."""
        out, kept["p"] = np.empty_like(kept["q"]), []
        for a, b in zip(row.begin, row.begin[1:]):
            q = kept["q"][a:b].transpose(1, 0, 2)
            k, v = (kept[name][a:b].transpose(1, 0, 2)[self.group] for name in "kv")
            score = q @ k.transpose(0, 2, 1) * (1 / np.sqrt(self.c.dim))
            score[:, np.triu(np.ones((b - a, b - a), bool), 1)] = -np.inf
            p = np.exp(score - score.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            kept["p"].append(p)
            out[a:b] = (p @ v).transpose(1, 0, 2)
        return out

    def _attention_back(self, row, kept, dout):
        dq, dk, dv = np.zeros_like(kept["q"]), np.zeros_like(kept["k"]), np.zeros_like(kept["v"])
        for p, a, b in zip(kept["p"], row.begin, row.begin[1:]):
            do, q = dout[a:b].transpose(1, 0, 2), kept["q"][a:b].transpose(1, 0, 2)
            k, v = (kept[name][a:b].transpose(1, 0, 2)[self.group] for name in "kv")
            dp = do @ v.transpose(0, 2, 1)
            dscore = p * (dp - (dp * p).sum(-1, keepdims=True)) * (1 / np.sqrt(self.c.dim))
            dq[a:b] = (dscore @ k).transpose(1, 0, 2)
            each_k, each_v = dscore.transpose(0, 2, 1) @ q, p.transpose(0, 2, 1) @ do
            for j, group in enumerate(self.group):  # query heads that share a key-value head
                dk[a:b, group] += each_k[j]
                dv[a:b, group] += each_v[j]
        return dq, dk, dv

    def backward(self, row, adapter, gradient):
        """Adds the gradient of the row's sum of nll to `gradient`."""
        dlogits = np.exp(row.logits - row.log_sum[:, None])
        dlogits[np.arange(len(dlogits)), row.target] -= 1
        x = row.residual[-1]
        dh = np.zeros_like(x)
        dh[row.at] = dlogits @ self.head  # no position scores two tokens
        dx = rms_norm_back(dh, x, self.w["model.norm.weight"], row.r)
        for layer in reversed(range(self.c.layers)):
            dx = self._layer_back(f"model.layers.{layer}.", dx, adapter, row, row.layers[layer], gradient)

    def _layer_back(self, prefix, dx, adapter, row, kept, gradient):
        c, w, n = self.c, self.w, len(dx)

        def back(target, dy):
            return self._linear_back(prefix + PROJECTIONS[target], dy, adapter, row, gradient)

        da, s = back("down", dx), kept["sigmoid"]
        dgate = da * kept["up"] * s * (1 + kept["gate"] * (1 - s))
        dh = back("gate", dgate) + back("up", da * kept["gate"] * s)
        dx = dx + rms_norm_back(dh, kept["x2"], w[prefix + "post_attention_layernorm.weight"], kept["r2"])
        dq, dk, dv = self._attention_back(row, kept, back("o", dx).reshape(n, c.heads, c.dim))
        dq, dk = (rotate(dy, row.cos, -row.sin) for dy in (dq, dk))
        dq = rms_norm_back(dq, kept["q0"], w[prefix + "self_attn.q_norm.weight"], kept["rq"])
        dk = rms_norm_back(dk, kept["k0"], w[prefix + "self_attn.k_norm.weight"], kept["rk"])
        dh = sum(back(target, dy.reshape(n, -1)) for target, dy in (("q", dq), ("k", dk), ("v", dv)))
        return dx + rms_norm_back(dh, kept["x"], w[prefix + "input_layernorm.weight"], kept["r1"])
