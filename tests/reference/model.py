"""Qwen3, Qwen2 and Llama with LoRA in PyTorch, one sample at a time, differentiated by autograd.

Written from the models' published definitions (SPEC.md, "Model"). Letters: n tokens, h hidden, d
head_dim, v vocab. Everything is computed in one compute type; where that is float64, SPEC.md's "rounded
to the compute type" (cos and sin) rounds nothing.
"""

import math

import numpy as np
import torch

import random_numbers

MODULES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def projection_sizes(config):
    """{target: (out, in)}."""
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {
        "q": (q, config.hidden),
        "k": (kv, config.hidden),
        "v": (kv, config.hidden),
        "o": (config.hidden, q),
        "gate": (config.intermediate, config.hidden),
        "up": (config.intermediate, config.hidden),
        "down": (config.hidden, config.intermediate),
    }


def base_shapes(config):
    """{tensor name: shape} of the tensors a model's file must hold."""
    shapes = {
        "model.embed_tokens.weight": (config.vocab, config.hidden),
        "model.norm.weight": (config.hidden,),
    }
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocab, config.hidden)
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        for target, size in projection_sizes(config).items():
            shapes[prefix + MODULES[target] + ".weight"] = size
            if config.qkv_bias and target in ("q", "k", "v"):
                shapes[prefix + MODULES[target] + ".bias"] = size[:1]
        shapes[prefix + "input_layernorm.weight"] = (config.hidden,)
        shapes[prefix + "post_attention_layernorm.weight"] = (config.hidden,)
        if config.kind == "qwen3":
            shapes[prefix + "self_attn.q_norm.weight"] = (config.head_dim,)
            shapes[prefix + "self_attn.k_norm.weight"] = (config.head_dim,)
    return shapes


def adapter_modules(config, lora_targets):
    """{module path: (out, in)} of the modules that get an adapter."""
    sizes = projection_sizes(config)
    return {
        f"model.layers.{layer}.{MODULES[target]}": sizes[target]
        for layer in range(config.layers)
        for target in lora_targets
    }


def initial_adapter(config, lora_targets, rank, seed):
    """{<module>.lora_A.weight, <module>.lora_B.weight: float32}, in byte order of the names."""
    tensors = {}
    for module, (n_out, n_in) in adapter_modules(config, lora_targets).items():
        tensors[module + ".lora_A.weight"] = random_numbers.initial_lora_a(seed, module, rank, n_in)
        tensors[module + ".lora_B.weight"] = np.zeros((n_out, rank), dtype=np.float32)
    return {name: tensors[name] for name in sorted(tensors, key=lambda n: n.encode("utf-8"))}


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rope_frequencies(config):
    """[d/2] in double: theta^(-2i/d), scaled as Llama 3 does where the configuration asks for it.

    Llama 3: a wave longer than original/low_freq_factor is slowed down by the factor, one shorter than
    original/high_freq_factor is kept; between them both are mixed, linearly in original/wavelength.
    """
    i = np.arange(config.head_dim // 2, dtype=np.float64)
    frequencies = config.rope_theta ** (-2.0 * i / config.head_dim)
    s = config.scaling
    if s is None:
        return frequencies
    original = s.original_max_position_embeddings
    wavelengths = 2.0 * math.pi / frequencies
    smooth = (original / wavelengths - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
    mixed = (1.0 - smooth) * frequencies / s.factor + smooth * frequencies
    scaled = np.where(wavelengths > original / s.low_freq_factor, frequencies / s.factor, mixed)
    return np.where(wavelengths < original / s.high_freq_factor, frequencies, scaled)


def rope_tables(positions, frequencies, dtype):
    """cos, sin [n, d/2]: angle = position * frequency in double."""
    angle = np.asarray(positions, dtype=np.float64)[:, None] * frequencies[None, :]
    return torch.from_numpy(np.cos(angle)).to(dtype), torch.from_numpy(np.sin(angle)).to(dtype)


def rope(x, cos, sin):
    """x [n, heads, d]: the pair (i, i + d/2) is turned by the angle of position and i."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Model:
    """Frozen base weights; the adapter is handed to each call.

    tensors: {name: model_files.Tensor}; an unknown or missing one is an error, a tied head's copy is left
    aside.
    """

    def __init__(self, config, tensors, dtype=torch.float64):
        self.config, self.dtype = config, dtype
        expected = base_shapes(config)
        ignored = {"lm_head.weight"} if config.tied else set()
        wrong = sorted(set(expected) ^ (set(tensors) - ignored))
        wrong += [n for n in expected if n in tensors and tuple(tensors[n].values.shape) != expected[n]]
        if wrong:
            raise ValueError(
                f"tensor {wrong[0]} is missing, unknown or of another shape ({len(wrong)} in all)"
            )
        self.w = {name: torch.from_numpy(np.array(tensors[name].values)).to(dtype) for name in expected}

    def project(self, x, module, adapter, scale, kept):
        """W x + bias + scale * (B (A drop(x))). x [n, in]; kept: module -> (mask [n, in], 1/(1-p)) or
        None.
        """
        y = x @ self.w[module + ".weight"].T
        if module + ".bias" in self.w:
            y = y + self.w[module + ".bias"]
        a = adapter.get(module + ".lora_A.weight") if adapter else None
        if a is None:
            return y
        if kept is not None:
            mask, factor = kept(module, *x.shape)
            x = x * mask * factor
        return y + scale * ((x @ a.T) @ adapter[module + ".lora_B.weight"].T)

    def attention(self, x, prefix, cos, sin, mask, adapter, scale, kept):
        c = self.config
        q, k, v = (
            self.project(x, f"{prefix}self_attn.{name}_proj", adapter, scale, kept).view(
                -1, heads, c.head_dim
            )
            for name, heads in (("q", c.heads), ("k", c.kv_heads), ("v", c.kv_heads))
        )
        if c.kind == "qwen3":
            q = rms_norm(q, self.w[prefix + "self_attn.q_norm.weight"], c.eps)
            k = rms_norm(k, self.w[prefix + "self_attn.k_norm.weight"], c.eps)
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        kv_of_head = torch.tensor([j * c.kv_heads // c.heads for j in range(c.heads)])
        k, v = k[:, kv_of_head], v[:, kv_of_head]
        scores = torch.einsum("ihd,jhd->hij", q, k) / c.head_dim**0.5
        probabilities = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        mixed = torch.einsum("hij,jhd->ihd", probabilities, v).reshape(-1, c.heads * c.head_dim)
        return self.project(mixed, prefix + "self_attn.o_proj", adapter, scale, kept)

    def hidden_states(self, ids, adapter, scale, kept=None, positions=None, mask=None, residuals=None):
        """[n, h] after the last norm. positions and mask [n, n] are given only by tests of packing.

        residuals: a list that gets the residual stream [n, h] after each layer.
        """
        c, n = self.config, len(ids)
        positions = np.arange(n) if positions is None else positions
        mask = torch.ones(n, n, dtype=torch.bool).tril() if mask is None else mask
        cos, sin = rope_tables(positions, rope_frequencies(c), self.dtype)
        x = self.w["model.embed_tokens.weight"][torch.as_tensor(np.asarray(ids))]
        for layer in range(c.layers):
            prefix = f"model.layers.{layer}."
            y = rms_norm(x, self.w[prefix + "input_layernorm.weight"], c.eps)
            x = x + self.attention(y, prefix, cos, sin, mask, adapter, scale, kept)
            y = rms_norm(x, self.w[prefix + "post_attention_layernorm.weight"], c.eps)
            gate = self.project(y, prefix + "mlp.gate_proj", adapter, scale, kept)
            up = self.project(y, prefix + "mlp.up_proj", adapter, scale, kept)
            x = x + self.project(
                torch.nn.functional.silu(gate) * up, prefix + "mlp.down_proj", adapter, scale, kept
            )
            if residuals is not None:
                residuals.append(x)
        return rms_norm(x, self.w["model.norm.weight"], c.eps)

    def scored_logits(self, x, scored):
        """[len(scored), v] of hidden states: token p is scored by the logits at p-1, over the whole head."""
        head = self.w["model.embed_tokens.weight" if self.config.tied else "lm_head.weight"]
        return x[torch.as_tensor(np.asarray(scored)) - 1] @ head.T

    def nll(self, ids, scored, adapter, scale, kept=None, positions=None, mask=None):
        """Negative log-likelihoods [len(scored)]."""
        logits = self.scored_logits(self.hidden_states(ids, adapter, scale, kept, positions, mask), scored)
        targets = torch.as_tensor(np.asarray(ids))[torch.as_tensor(np.asarray(scored))]
        return torch.nn.functional.cross_entropy(logits, targets, reduction="none")


def batch_gradient(model, samples, adapter, scale, kept=None):
    """Sum of nll, number of scored tokens, gradients of the *mean* nll over them, for a global batch.

    samples: list of (index, Sample); adapter: {name: tensor requiring a gradient}; kept: sample index ->
    what Model.project takes. Sums over samples in double; one division at the end. No scored token:
    gradients are None.
    """
    total, count = 0.0, 0
    sums = {name: torch.zeros(p.shape, dtype=torch.float64) for name, p in adapter.items()}
    for index, sample in samples:
        scored = sample.scored
        if not len(scored):
            continue
        nll = model.nll(sample.ids, scored, adapter, scale, kept(index) if kept else None)
        total += float(nll.detach().double().sum())
        count += len(scored)
        for name, g in zip(adapter, torch.autograd.grad(nll.sum(), list(adapter.values()))):
            sums[name] += g.double()
    return total, count, {name: g / count for name, g in sums.items()} if count else None


def evaluate(model, samples, adapter, scale):
    """Sum of nll in double and number of scored tokens; adapter None: the base model alone."""
    total, count = 0.0, 0
    with torch.no_grad():
        for sample in samples:
            if len(sample.scored):
                total += float(model.nll(sample.ids, sample.scored, adapter, scale).double().sum())
                count += len(sample.scored)
    return total, count
