"""Random numbers that depend on a seed, a name and a counter: first adapter, dropout, order (SPEC.md)."""

import math

import numpy as np

MASK = (1 << 64) - 1


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def splitmix64_array(x):
    u = np.uint64
    x = x + u(0x9E3779B97F4A7C15)
    x = (x ^ x >> u(30)) * u(0xBF58476D1CE4E5B9)
    x = (x ^ x >> u(27)) * u(0x94D049BB133111EB)
    return x ^ x >> u(31)


def fnv1a64(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


assert splitmix64(0) == 0xE220A8397B1DCDAF and fnv1a64("a") == 0xAF63DC4C8601EC8C


def draw(seed, name, i):
    return splitmix64((splitmix64(seed ^ fnv1a64(name)) + i) & MASK)


def units(seed, name, i):
    """unit(draw(seed, name, i)) of an array i of uint64."""
    start = np.uint64(splitmix64(seed ^ fnv1a64(name)))
    return (splitmix64_array(i + start) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def initial_a(seed, module, rank, width):
    """[rank, width], float32 values held in double."""
    u = units(seed, module, np.arange(rank * width, dtype=np.uint64))
    return ((2 * u - 1) * math.sqrt(1.0 / width)).astype(np.float32).astype(np.float64).reshape(rank, width)


def dropout_factor(seed, p, module, t, sample, length, width):
    """[length, width]: 1/(1-p) where an element is kept in update t, else 0."""
    first = np.uint64(splitmix64(t << 32 | sample))
    keep = units(seed, "dropout." + module, first + np.arange(length * width, dtype=np.uint64)) >= p
    return np.where(keep, 1 / (1 - p), 0.0).reshape(length, width)


def epoch_order(seed, epoch, n):
    return sorted(range(n), key=lambda i: (draw(seed, "order", epoch << 32 | i), i))


def batches(seed, n, size, updates):
    """The global batches of a run; none spans epochs."""
    made, epoch = 0, 0
    while made < updates:
        order = epoch_order(seed, epoch, n)
        for begin in range(0, n, size):
            if made == updates:
                return
            yield order[begin:begin + size]
            made += 1
        epoch += 1
