#!/usr/bin/python3
"""What an update at Qwen3-0.6B costs an H200 at least: operations, bytes of its memory, floor time per kernel.

    python3 tests/bench/napkin.py [--chunk ROWS]

Rank 16 on all seven projections, 8 sequences of 2,048 tokens as 4 micro-batches of 2, all tokens scored, nothing
computed again for want of memory. What is called how often: src/model/transformer_impl.hpp,
src/train/cuda/cuda_engine.cpp. Bytes are those that each kernel has to move, as kernels/cuda has them: every operand
once, what is read again counted again where it cannot still be in a cache. The floor of a kernel is the longer of its
operations at the device's rate and its bytes at its memory's; nothing overlaps, launches cost nothing. A floor, not a
forecast: no kernel reaches both rates.
"""
import argparse

# H200 (SXM): dense rates, and the memory's as copies reach it.
BF16, F32, TF32, BANDWIDTH = 790e12, 67e12, 400e12, 4.3e12

LAYERS, C, I, H, K, D, V, R = 28, 1024, 3072, 16, 8, 128, 151936, 16
LENGTH, SAMPLES, MICRO_BATCHES = 2048, 2, 4
T = LENGTH * SAMPLES
N = T  # scored
Q, KV = H * D, K * D
# A fused projection: input, members' outputs, whether its result goes to the float32 residual stream.
GROUPS = {"qkv": (C, (Q, KV, KV), False), "out": (Q, (C,), True), "gate_up": (C, (I, I), False), "down": (I, (C,), True)}
ADAPTER = LAYERS * sum(R * (into + out) for into, outs, _ in GROUPS.values() for out in outs)
# Logits of a row that cross_entropy keeps in shared memory (227 KiB a block) and so reads once.
KEPT = (227 * 1024 - 256) // 16 * 4


class Costs:
    """Rows of the table for one storage format of e bytes."""

    def __init__(self, e, chunk):
        self.e, self.rows = e, {}
        self.frozen()
        self.adapters()
        self.head(chunk)
        self.attention()
        self.row_kernels()
        self.state()

    def add(self, name, launches, operations, moved, product=False):
        """Per update: so many launches, each of so many operations and bytes."""
        self.rows.setdefault(name, []).append((launches, operations, moved, product))

    def totals(self, name):
        """launches, operations, bytes"""
        kinds = self.rows.get(name, [])
        return sum(n for n, *_ in kinds), sum(n * o for n, o, *_ in kinds), sum(n * b for n, _, b, _ in kinds)

    def floor_s(self, name, rate):
        return sum(n * max(operations / (rate if product else F32), moved / BANDWIDTH)
                   for n, operations, moved, product in self.rows.get(name, []))

    def frozen(self):
        e, per_update = self.e, LAYERS * MICRO_BATCHES
        for group, (into, outs, residual) in GROUPS.items():
            out = sum(outs)
            operations = 2 * T * into * out
            operands = e * (T * into + into * out)
            self.add("products with W, forward", per_update, operations,
                     operands + (8 if residual else e) * T * out, True)
            # Below the lowest adapter nothing needs a gradient.
            times = per_update - (MICRO_BATCHES if group == "qkv" else 0)
            self.add("products with W, backward", times, operations, e * (T * (into + out) + into * out), True)

    def adapters(self):
        e, per_update = self.e, LAYERS * MICRO_BATCHES
        for group, (into, outs, residual) in GROUPS.items():
            r = R * len(outs)
            thin = 2 * T * into * r
            self.add("adapters, u = x A^T", per_update, thin, e * (T * into + r * into + T * r), True)
            self.add("adapters, dA = du^T x", per_update, thin, e * (T * into + T * r) + 4 * r * into, True)
            times = per_update - (MICRO_BATCHES if group == "qkv" else 0)
            self.add("adapters, dx += du A", times, thin, e * (T * r + r * into + 2 * T * into), True)
            for out in outs:
                thin = 2 * T * out * R
                result = (8 if residual else 2 * e) * T * out
                self.add("adapters, y += s u B^T", per_update, thin, e * (T * R + R * out) + result, True)
                self.add("adapters, du = s dy B", per_update, thin, e * (T * out + R * out + T * R), True)
                self.add("adapters, dB = s dy^T u", per_update, thin, e * (T * out + T * R) + 4 * R * out, True)

    def head(self, chunk):
        e = self.e
        times = MICRO_BATCHES * -(-N // chunk)
        rows = min(N, chunk)
        operations = 2 * rows * C * V
        self.add("head, logits", times, operations, e * (V * C + rows * C) + 4 * rows * V, True)
        self.add("head, dx", times, operations, e * (V * C + rows * C + rows * V), True)
        # exp of every logit for the loss and for the gradient, as about ten operations.
        self.add("cross_entropy", times, 2 * 10 * rows * V, rows * (4 * V + 4 * (V - KEPT) + e * V))

    def attention(self):
        e, per_update = self.e, LAYERS * MICRO_BATCHES
        product = SAMPLES * H * 2 * LENGTH * LENGTH / 2 * D  # of one, below the diagonal
        q, kv, row = e * T * Q, e * T * KV, 4 * H * T
        self.add("attention_forward", per_update, 2 * product, q + 2 * kv + q + row, True)
        # Two kernels without float atomics, each with S and dP: dk and dv (4 products), dq (3).
        self.add("attention_backward, rows' sums", per_update, 2 * T * Q, 2 * q + row)
        self.add("attention_backward, dk and dv", per_update, 4 * product, 2 * q + 2 * kv + 2 * row + 2 * kv, True)
        self.add("attention_backward, dq", per_update, 3 * product, 2 * q + 2 * kv + 2 * row + q, True)

    def row_kernels(self):
        e, layers, micro = self.e, LAYERS * MICRO_BATCHES, MICRO_BATCHES
        turned = e * T * (Q + KV)
        self.add("rms_norm_forward", 4 * layers, 4 * T * C, (4 + e) * T * C)  # twice forward, twice again
        self.add("rms_norm_forward", micro, 4 * N * C, (4 + e) * N * C)
        self.add("rms_norm_backward", 2 * layers - micro, 10 * T * C, (e + 12) * T * C)
        self.add("rms_norm_backward", micro, 10 * N * C, (e + 8) * N * C)
        self.add("rope_forward", 2 * layers, 8 * T * (Q + KV), 2 * turned)  # forward, and again
        self.add("rope_backward", layers, 16 * T * (Q + KV), 3 * turned)
        self.add("swiglu_forward", 2 * layers, 14 * T * I, 3 * e * T * I)  # forward, and again
        self.add("swiglu_backward", layers, 20 * T * I, 5 * e * T * I)
        if e == 2:
            self.add("to_bf16, residual gradient", 2 * layers, 0, 6 * T * C)
        self.add("gather_rows, scatter_rows", micro, 0, (e + 4) * T * C)  # the embedding
        self.add("gather_rows, scatter_rows", micro, 0, 8 * N * C)  # what is scored
        self.add("gather_rows, scatter_rows", micro, 0, 4 * T * C)  # its gradient back: zeros first
        self.add("gather_rows, scatter_rows", micro, 0, 8 * N * C)

    def state(self):
        self.add("exact_sum_add", MICRO_BATCHES, 8 * ADAPTER, 36 * ADAPTER)
        self.add("exact_sum_carry", 2, 30 * ADAPTER, 32 * ADAPTER)  # before the all-reduce, after it
        self.add("exact_sum_clear, exact_sum_mean", 2, 2 * ADAPTER, (16 + 20) / 2 * ADAPTER)
        self.add("adamw", 1, 20 * ADAPTER, 28 * ADAPTER)
        self.add("tensor_squares, adapter_checksum", 2, 6 * ADAPTER, 4 * ADAPTER)
        if self.e == 2:
            self.add("to_bf16, adapter", 1, 0, 6 * ADAPTER)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--chunk", type=int, default=1024, help="rows of logits at a time (default: 1024)")
    chunk = options.parse_args().chunk
    half, single = Costs(2, chunk), Costs(4, chunk)
    names = list(half.rows)
    columns = [(half, BF16), (single, F32), (single, TF32)]
    print(f"Qwen3-0.6B, rank {R} ({ADAPTER:,} elements), {MICRO_BATCHES} x {SAMPLES} x {LENGTH} tokens, logits of {chunk} "
          "rows at a time; H200.\n")
    print("| kernel | launches | TFLOP | bf16 GB | bf16 ms | f32 GB | f32 ms | tf32 ms |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    total = [0] * 7
    for name in names:
        launches, operations, moved = half.totals(name)
        # In float32, attention runs on CUDA cores in either mode.
        times = [1e3 * costs.floor_s(name, F32 if rate == TF32 and "attention" in name else rate)
                 for costs, rate in columns]
        cells = [launches, operations / 1e12, moved / 1e9, times[0], single.totals(name)[2] / 1e9, times[1], times[2]]
        total = [a + b for a, b in zip(total, cells)]
        print(line(name, cells))
    print(line("sum", total))
    tokens = MICRO_BATCHES * T
    print("\n" + ", ".join(f"{form}: {tokens / (ms / 1e3) / 1e3:,.0f}k tokens/s"
                           for form, ms in zip(("bf16", "f32", "tf32"), (total[3], total[5], total[6])))
          + " at the floor.")


def line(name, cells):
    launches, *numbers = cells
    return f"| {name} | {launches:,} | " + " | ".join(f"{number:.2f}" for number in numbers) + " |"


if __name__ == "__main__":
    main()
