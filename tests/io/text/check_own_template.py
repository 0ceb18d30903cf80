#!/usr/bin/env python3
"""Tandem's own chat template against Qwen3's published one, both run by Jinja2.

The 14 published conversations and random ones; exit code 77 (skipped) without Jinja2 or the published template.
"""

import json
import os
import pathlib
import random
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
DATA = pathlib.Path(os.environ.get("TANDEM_DATA", ROOT.parent / "shared" / "data"))
RANDOM_CONVERSATIONS = 3000


def own_template():
    header = (ROOT / "io/text/own_template.hpp").read_text(encoding="utf-8")
    return re.search(r'R"JINJA\((.*)\)JINJA"', header, re.DOTALL).group(1)


def random_conversation(rng):
    pieces = ["<think>", "</think>", "\n", "\n\n", "a", " ", "x y", "<tool_response>", "</tool_response>"]
    messages = []
    for _ in range(rng.randint(1, 6)):
        role = rng.choice(["user", "assistant", "assistant", "system"])
        message = {"role": role, "content": "".join(rng.choice(pieces) for _ in range(rng.randint(0, 6)))}
        if role == "assistant" and rng.random() < 0.3:
            message["reasoning_content"] = rng.choice(["", "\n", "why", "\nwhy\n\n", None])
        messages.append(message)
    prompts = [{}, {"add_generation_prompt": True}, {"add_generation_prompt": True, "enable_thinking": False}]
    return messages, rng.choice(prompts)


def main():
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        print("skipped: no Jinja2")
        return 77
    if not (DATA / "qwen3/tokenizer_config.json").exists():
        print("skipped: the folder of real inputs is not here (TANDEM_DATA)")
        return 77
    published = json.loads((DATA / "qwen3/tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    vectors = json.loads((DATA / "vectors/chat_template_rendered_jinja2.json").read_text(encoding="utf-8"))
    wrong = 0
    # The second environment is the one of the transformers library.
    for settings in ({}, {"trim_blocks": True, "lstrip_blocks": True}):
        environment = ImmutableSandboxedEnvironment(**settings)
        own, qwen3 = environment.from_string(own_template()), environment.from_string(published)
        for vector in vectors:
            if own.render(messages=vector["messages"], **vector["kwargs"]) != vector["qwen3_old"]:
                print("differs:", vector["name"])
                wrong += 1
        rng = random.Random(1)
        for _ in range(RANDOM_CONVERSATIONS):
            messages, prompt = random_conversation(rng)
            if own.render(messages=messages, **prompt) != qwen3.render(messages=messages, **prompt):
                print("differs:", json.dumps(messages), prompt)
                wrong += 1
    print(f"{len(vectors)} published and {RANDOM_CONVERSATIONS} random conversations, {wrong} differences")
    return wrong > 0 or not vectors


if __name__ == "__main__":
    sys.exit(main())
