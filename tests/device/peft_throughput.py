#!/usr/bin/python3
"""The work of tests/device/throughput.cpp by PyTorch, transformers and PEFT: tokens a second of whole LoRA updates.

    python3 tests/device/peft_throughput.py [--updates N] [--can-run]

Qwen3-0.6B's shape with random weights (nothing is downloaded), bf16, rank 16 on all seven projections, micro-batches
of 2 x 2,048 tokens, all scored, 4 of them an update, fused AdamW in float32 on the adapter. Attention: flash-attn
where it is installed, else PyTorch's scaled dot product. --can-run: ends with 0 where it can run here, else says why
not; without PEFT nothing is measured, for an adapter of our own would compare us with ourselves.
"""
import argparse
import sys
import time

SAMPLES, LENGTH, MICRO_BATCHES, RANK = 2, 2048, 4, 16


def missing():
    """Why this cannot run here, or None."""
    try:
        import torch
    except Exception as error:
        return f"no PyTorch ({error})"
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no GPU"
    try:
        from transformers import Qwen3Config  # noqa: F401
    except Exception as error:
        return f"no transformers that know Qwen3 ({error})"
    try:
        import peft  # noqa: F401
    except Exception as error:
        return f"no PEFT ({error})"
    return None


def make_model(attention):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rope_theta=1e6, tie_word_embeddings=True,
        use_cache=False, attn_implementation=attention)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, lora_dropout=0.0, target_modules=targets,
                                             task_type="CAUSAL_LM"))
    for parameter in model.parameters():  # as PEFT's trainers hold an adapter: the products are bf16's by autocast
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return model.train()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--updates", type=int, default=4)
    options.add_argument("--can-run", action="store_true")
    options = options.parse_args()
    why = missing()
    if why or options.can_run:
        print(why or "can run")
        return 1 if why else 0

    import importlib.util

    import peft
    import torch
    import transformers

    attention = "flash_attention_2" if importlib.util.find_spec("flash_attn") else "sdpa"
    model = make_model(attention)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0.0, fused=True)
    generator = torch.Generator(device="cuda").manual_seed(2)
    batches = [torch.randint(151936, (SAMPLES, LENGTH), generator=generator, device="cuda") for _ in range(MICRO_BATCHES)]
    scored = MICRO_BATCHES * SAMPLES * (LENGTH - 1)

    def update():
        total = torch.zeros((), device="cuda")
        for ids in batches:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(input_ids=ids).logits
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten(),
                                                     reduction="sum") / scored
            loss.backward()
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(total), float(norm)

    times = []
    for k in range(options.updates + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss, norm = update()
        torch.cuda.synchronize()
        if k >= 2:
            times.append(time.perf_counter() - start)
        else:
            print(f"update {k + 1}: loss {loss:.4f}, gradient's norm {norm:.4g}")
    seconds = sorted(times)[len(times) // 2]
    tokens = MICRO_BATCHES * SAMPLES * LENGTH
    gib = torch.cuda.max_memory_allocated() / 2**30
    name = f"PyTorch {torch.__version__}, transformers {transformers.__version__}, PEFT {peft.__version__}, bf16, {attention}"
    print(f"row: | {name} | {tokens / seconds:.0f} | {1e3 * seconds:.1f} | {gib:.1f} | - |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
