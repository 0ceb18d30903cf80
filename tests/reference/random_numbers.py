"""Counter-based random numbers, the initial LoRA A and the data order. SPEC.md, "Random numbers"."""

import numpy as np

MASK = (1 << 64) - 1


def splitmix64(x):
    """x: int or uint64 array; arithmetic wraps at 64 bits."""
    if isinstance(x, np.ndarray):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fnv1a64(text):
    h = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def draw(seed, name, i):
    """i: int or uint64 array."""
    base = splitmix64(seed ^ fnv1a64(name))
    if isinstance(i, np.ndarray):
        return splitmix64(np.uint64(base) + i)
    return splitmix64((base + i) & MASK)


def unit(u):
    """The upper 53 bits as a double in [0, 1)."""
    if isinstance(u, np.ndarray):
        return (u >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return float(u >> 11) * 2.0**-53


def initial_lora_a(seed, module, rank, n_in):
    """float32 [rank, n_in]: drawn in double, rounded once."""
    u = unit(draw(seed, module, np.arange(rank * n_in, dtype=np.uint64)))
    return ((2.0 * u - 1.0) * np.sqrt(1.0 / n_in)).astype(np.float32).reshape(rank, n_in)


def epoch_order(seed, epoch, n):
    """Sample indices [n] of an epoch (from 0), sorted by (draw, index)."""
    index = np.arange(n, dtype=np.uint64)
    key = draw(seed, "order", np.uint64((epoch << 32) & MASK) | index)
    return np.argsort(key, kind="stable").astype(np.int64)


def global_batches(seed, n, batch_global, updates):
    """Yields the sample indices of updates 1..updates; a batch never spans two epochs."""
    made, epoch = 0, 0
    while made < updates:
        order = epoch_order(seed, epoch, n)
        for begin in range(0, n, batch_global):
            if made == updates:
                return
            yield order[begin : begin + batch_global]
            made += 1
        epoch += 1


def dropout_mask(seed, module, probability, update, sample, n_tokens, n_in):
    """bool [n_tokens, n_in]: the elements of A's input that are kept."""
    h = np.uint64(splitmix64(((update << 32) | sample) & MASK))
    i = h + np.arange(n_tokens * n_in, dtype=np.uint64)
    return (unit(draw(seed, "dropout." + module, i)) >= probability).reshape(n_tokens, n_in)
