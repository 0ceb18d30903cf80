#!/usr/bin/python3
"""Speed of one LoRA micro-batch (forward and backward, f32) in PyTorch, beside this machine's best product.

    pytorch_step.py --layers 4 --threads 2 --head targets

Shapes default to Qwen3-0.6B's: hidden 1024, 2,048 tokens. The rate counts useful flops only (see
`useful_flops`): what LoRA training needs with frozen weights, so any program's time for the same
micro-batch divides the same number. Settings of the environment that pin a library's kernels are lifted
first (the program starts itself again): a BLAS held back by one would make a comparison unfair, and an
OpenBLAS that does not know the CPU and falls back to a kernel without AVX is given the one for the CPU's
instruction set. Which BLAS and kernel ran is printed. Debian's PyTorch takes whatever libblas.so.3 is
installed; with the reference BLAS, some 100 times slower, nothing is measured. An OpenBLAS that is not
the system's choice is put in front with LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-pthread.
"""

import argparse
import ctypes
import json
import os
import re
import sys
import time

PINS = re.compile(
    r"^(OPENBLAS_(CORETYPE|NUM_THREADS|VERBOSE)|GOTO_NUM_THREADS|BLIS_.*|MKL_.*|NVPL_.*|ATEN_CPU_CAPABILITY|"
    r"(DNNL|ONEDNN)_(MAX_CPU_ISA|CPU_ISA_HINTS|VERBOSE|DEFAULT_FPMATH_MODE)|OMP_.*|KMP_.*|GOMP_.*)$"
)
LIFTED = "PYTORCH_STEP_LIFTED"


def start_again(arguments, environment, lifted, coretype):
    environment = {**environment, LIFTED: lifted}
    environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] = str(arguments.threads)
    if coretype:
        environment["OPENBLAS_CORETYPE"] = coretype
    os.execve(sys.executable, [sys.executable] + sys.argv, environment)


def lift_pins(arguments):
    """Starts this program again without the pins, and with the threads and kernel that were asked for."""
    if LIFTED not in os.environ:
        pins = {k: v for k, v in os.environ.items() if PINS.match(k)}
        kept = {k: v for k, v in os.environ.items() if k not in pins}
        lifted = " ".join(f"{k}={v}" for k, v in sorted(pins.items())) or "none"
        start_again(arguments, kept, lifted, arguments.coretype)
    return os.environ[LIFTED]


def leave_fallback_kernel(arguments, blas):
    """An OpenBLAS older than the CPU takes Prescott's kernels (SSE3): starts again with better ones."""
    if "OPENBLAS_CORETYPE" in os.environ or not any(library.endswith(", Prescott") for library in blas):
        return
    with open("/proc/cpuinfo") as f:
        flags = f.read()
    coretype = "SkylakeX" if " avx512f" in flags else "Haswell" if " avx2" in flags else None
    if coretype:
        start_again(arguments, os.environ, os.environ[LIFTED], coretype)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--inter", type=int, default=3072)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("--samples", type=int, default=4, help="samples of equal length in the micro-batch")
    parser.add_argument("--tokens", type=int, default=2048, help="of the micro-batch, all samples together")
    parser.add_argument("--rank", type=int, default=16, help="of the adapters on all seven projections")
    parser.add_argument(
        "--head",
        choices=("targets", "all", "none"),
        default="targets",
        help="logits of the last fifth of each sample, of all, or no head at all",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--coretype", help="OPENBLAS_CORETYPE to set (SkylakeX, Haswell, ...)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def projections(a):
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    return {
        "q": (q, a.hidden),
        "k": (kv, a.hidden),
        "v": (kv, a.hidden),
        "o": (a.hidden, q),
        "gate": (a.inter, a.hidden),
        "up": (a.inter, a.hidden),
        "down": (a.hidden, a.inter),
    }


def n_scored(a):
    length = a.tokens // a.samples
    return {"targets": a.samples * (length - length * 4 // 5), "all": a.tokens - a.samples, "none": 0}[a.head]


def useful_flops(a):
    """Of products, 2 per multiply-add. Frozen W: forward and dx, no dW. A and B: forward, dx, dA, dB.
    Attention: the causal half of scores and mix, and its four backward products. Head: forward and dx of
    scored tokens. The first layer's dx of q, k and v is not needed, for the embedding is frozen.
    """
    t, length = a.tokens, a.tokens // a.samples
    base = adapters = 0
    for name, (n_out, n_in) in projections(a).items():
        first = 1 if name in ("q", "k", "v") else 0
        base += 2 * t * n_out * n_in * (2 * a.layers - first)
        adapters += 2 * t * a.rank * (a.layers * (3 * n_in + 3 * n_out) - first * n_in)
    pairs = a.samples * length * (length + 1) // 2
    attention = a.layers * 6 * 2 * pairs * a.heads * a.head_dim
    head = 2 * 2 * n_scored(a) * a.hidden * a.vocab
    return {"base": base, "adapters": adapters, "attention": attention, "head": head}


def blas_in_use():
    """Names of the BLAS libraries mapped into this process; for OpenBLAS its version and kernel."""
    with open("/proc/self/maps") as maps:
        libraries = sorted(
            {line.split()[-1] for line in maps if re.search(r"/lib(open)?blas|/libmkl|/libblis", line)}
        )
    found = []
    for path in libraries:
        text = os.path.realpath(path)
        library = ctypes.CDLL(path)
        for function in ("openblas_get_config", "openblas_get_corename"):
            if hasattr(library, function):
                getattr(library, function).restype = ctypes.c_char_p
                text += f", {getattr(library, function)().decode()}"
        found.append(text)
    return found


def build(a, torch):
    """Weights, adapters and the step, which returns the loss after its backward pass."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape, scale):
        return torch.randn(*shape, generator=generator) * scale

    sizes, length = projections(a), a.tokens // a.samples
    layers = []
    for _ in range(a.layers):
        layer = {}
        for name, (n_out, n_in) in sizes.items():
            layer[name] = (
                random(n_out, n_in, scale=n_in**-0.5),
                random(a.rank, n_in, scale=n_in**-0.5).requires_grad_(),
                random(n_out, a.rank, scale=0.01).requires_grad_(),
            )
        layers.append(layer)
    x0 = random(a.samples, length, a.hidden, scale=1.0)
    head = random(a.vocab, a.hidden, scale=a.hidden**-0.5) if a.head != "none" else None
    scored = torch.randperm(a.tokens, generator=generator)[: n_scored(a)]
    labels = torch.randint(0, a.vocab, (n_scored(a),), generator=generator)
    angle = torch.arange(length)[:, None] * 1e6 ** (-2.0 * torch.arange(a.head_dim // 2) / a.head_dim)
    cos, sin = angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]
    later = torch.ones(length, length, dtype=torch.bool).triu(1)

    def norm(x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def rope(x):
        p, q = x.chunk(2, -1)
        return torch.cat((p * cos - q * sin, q * cos + p * sin), -1)

    def project(x, weights):
        w, lora_a, lora_b = weights
        return torch.nn.functional.linear(x, w) + 2.0 * ((x @ lora_a.T) @ lora_b.T)

    def attention(x, layer):
        q, k, v = (project(x, layer[n]).view(a.samples, length, -1, a.head_dim) for n in "qkv")
        q, k = rope(norm(q)).transpose(1, 2), rope(norm(k)).transpose(1, 2)
        repeat = a.heads // a.kv_heads
        k, v = k.repeat_interleave(repeat, 1), v.transpose(1, 2).repeat_interleave(repeat, 1)
        scores = (q @ k.transpose(2, 3) * a.head_dim**-0.5).masked_fill(later, float("-inf"))
        mixed = torch.softmax(scores, -1) @ v
        return project(mixed.transpose(1, 2).reshape(a.samples, length, -1), layer["o"])

    def step():
        x = x0
        for layer in layers:
            x = x + attention(norm(x), layer)
            y = norm(x)
            x = x + project(
                torch.nn.functional.silu(project(y, layer["gate"])) * project(y, layer["up"]), layer["down"]
            )
        x = norm(x).view(a.tokens, a.hidden)
        loss = (
            torch.nn.functional.cross_entropy(x[scored] @ head.T, labels)
            if head is not None
            else x.pow(2).mean()
        )
        loss.backward()
        for layer in layers:
            for _, lora_a, lora_b in layer.values():
                lora_a.grad = lora_b.grad = None
        return loss.item()

    return step


def best_seconds(function, repeats):
    function()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def best_products(torch, repeats, n=4096):
    """GF/s of one large float32 product: PyTorch's own (BLAS), and its oneDNN, which a plain model does not
    use.
    """
    x, y, z = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    seconds = {"torch.mm": best_seconds(lambda: torch.mm(x, y, out=z), repeats)}
    if torch.backends.mkldnn.is_available():
        u, w = x.to_mkldnn(), y.to_mkldnn()
        seconds["oneDNN"] = best_seconds(lambda: torch.nn.functional.linear(u, w), repeats)
    return {name: 2 * n**3 / s / 1e9 for name, s in seconds.items()}


def main():
    arguments = parse_arguments()
    lifted = lift_pins(arguments)
    try:
        import torch
    except ImportError:
        print(f"SKIPPED: {sys.executable} lacks torch (Debian: python3-torch)")
        return 77
    if arguments.tokens % arguments.samples or arguments.heads % arguments.kv_heads:
        print("pytorch_step: --samples must divide --tokens, --kv-heads must divide --heads", file=sys.stderr)
        return 2
    torch.set_num_threads(arguments.threads)
    blas = blas_in_use()
    if blas and all(re.search(r"/blas/libblas", library) for library in blas):
        print(f"SKIPPED: PyTorch runs on the reference BLAS ({blas[0]}); install libopenblas0-pthread")
        return 77
    leave_fallback_kernel(arguments, blas)
    products = best_products(torch, arguments.repeats)
    product = max(products.values())
    flops = useful_flops(arguments)
    seconds = best_seconds(build(arguments, torch), arguments.repeats)
    rate = sum(flops.values()) / seconds / 1e9
    result = {
        "seconds": seconds,
        "tokens_per_s": arguments.tokens / seconds,
        "useful_gflop": sum(flops.values()) / 1e9,
        "useful_gflop_of": {k: v / 1e9 for k, v in flops.items()},
        "gflop_per_s": rate,
        "product_gflop_per_s": product,
        "share": rate / product,
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "products_gflop_per_s": products,
        "blas": blas,
        "pins_lifted": lifted,
        "load_average": os.getloadavg()[0],
    }
    if arguments.json:
        print(json.dumps(result))
        return 0
    for library in result["blas"]:
        print(f"BLAS: {library}")
    print(
        f"environment pins lifted: {lifted}; {result['threads']} threads, torch {result['torch']}, "
        f"load {result['load_average']:.1f}"
    )
    print("useful GF: " + ", ".join(f"{k} {v:.1f}" for k, v in result["useful_gflop_of"].items()))
    print("product of 4096 cubed, GF/s: " + ", ".join(f"{k} {v:.0f}" for k, v in products.items()))
    print(
        f"step: {seconds:.3f} s, {result['tokens_per_s']:.0f} tokens/s, {rate:.0f} GF/s, "
        f"{100 * rate / product:.0f} % of the best product"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
