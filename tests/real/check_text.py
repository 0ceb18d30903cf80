#!/usr/bin/env python3
"""Tandem's token ids, rendered texts and target marks against Hugging Face tokenizers and Jinja2.

    python3 -m venv VENV && VENV/bin/pip install tokenizers jinja2
    VENV/bin/python tests/real/check_text.py build/release/tandem DATA [--strings 100000] [--conversations 5000]
                                             [--seed 1] [--bench build/release/tests/bench/bench_tokenize]

DATA is the folder of real inputs (qwen3/, smollm2/, pubmedqa/). Compared are random strings over all planes with white
space and fragments of control tokens, every code point alone and between letters, real rows, and conversations of all
shapes. Differences on code points assigned in Unicode 14 (private use included) are printed, and any makes the exit code
1; texts that hold others are counted apart, and of those code points the differing ones are listed. --bench (built with
-DTANDEM_BENCH=ON) measures the throughput of both on one core, in turn.
"""

import argparse
import bisect
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import unicodedata

from jinja2.sandbox import ImmutableSandboxedEnvironment
import tokenizers
from tokenizers import Tokenizer

FRAGMENTS = ["<|im_end|>", "<|im_start|>", "<|im_", "end|>", "<think>", "</think>", "<|endoftext|>", "\n", "\n\n", " \n",
             "   ", "\r\n", "\t", "'s", "'LL", "'\u017f", "a", "12", "\u180e", "\u3000", "\u00a0", "\x85", "\u2028",
             "\u0301", "e\u0301", "\u1100", "\u1161", "\u11a8", "\x00", "\ufeff"]
RANGES = [(0x00, 0x7F), (0x20, 0x7E), (0x20, 0x7E), (0x30, 0x39), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF),
          (0x900, 0xDFF), (0xF40, 0x109F), (0x1100, 0x11FF), (0x1E00, 0x206F), (0x3000, 0xD7A3), (0x10000, 0x1FAFF)]
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ASSIGNED = [c for c in CODE_POINTS if unicodedata.category(chr(c)) != "Cn"]
OTHER = sorted(set(CODE_POINTS) - set(ASSIGNED))
# An empty think block is Qwen3's template's own; SmolLM2's writes none, so there it is the answer's.
ANSWER = {
    "qwen3": re.compile(r"<\|im_start\|>assistant\n(?:<think>\n\n</think>\n\n)?(.*?<\|im_end\|>)\n", re.DOTALL),
    "smollm2": re.compile(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)\n", re.DOTALL),
}


def random_text(rng, most=30, others=()):
    parts = []
    for _ in range(rng.randrange(most)):
        kind = rng.randrange(4)
        if kind == 0:
            parts.append(rng.choice(FRAGMENTS))
        elif kind == 1:
            parts.append(chr(rng.choice(others if others and rng.random() < 0.5 else ASSIGNED)))
        else:
            c = chr(rng.randint(*rng.choice(RANGES)))
            parts.append(c if unicodedata.category(c) != "Cn" else " ")
    return "".join(parts)


def ranges(points):
    found = []
    for c in sorted(points):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return " ".join(f"{first:04X}" if first == last else f"{first:04X}-{last:04X}" for first, last in found)


class Account:
    def __init__(self):
        self.wrong = 0

    def report(self, name, differences, total):
        print(f"{name}: {total} compared, {len(differences)} differ", flush=True)
        for text, ours, theirs in differences[:5]:
            print("   ", json.dumps(text), "\n      ours  ", ours, "\n      theirs", theirs)
        self.wrong += len(differences)


def encode_both(program, data, model, texts):
    reference = Tokenizer.from_file(str(data / model / "tokenizer.json"))
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    answer = subprocess.run([program, "tokenize", "--model", data / model], input=lines, capture_output=True, text=True, check=True)
    ours = [json.loads(line) for line in answer.stdout.splitlines()]
    theirs = [encoding.ids for encoding in reference.encode_batch(texts, add_special_tokens=False)]
    assert len(ours) == len(theirs) == len(texts)
    return [(text, one, other) for text, one, other in zip(texts, ours, theirs) if one != other]


def with_code_point(c):
    return [chr(c), f"a{chr(c)}b", f"a{chr(c)}b {chr(c)}{chr(c)}. 1{chr(c)}\u0301"]


def check_strings(account, program, data, model, rng, count, real):
    texts = [random_text(rng) for _ in range(count)]
    account.report(f"{model} random strings", encode_both(program, data, model, texts), count)
    texts = [text for c in ASSIGNED for text in with_code_point(c)]
    account.report(f"{model} each of {len(ASSIGNED)} assigned code points", encode_both(program, data, model, texts), len(texts))
    account.report(f"{model} real texts", encode_both(program, data, model, real), len(real))
    texts = [random_text(rng, others=OTHER) for _ in range(count // 4)]
    random_differ = encode_both(program, data, model, texts)
    texts += [text for c in OTHER for text in with_code_point(c)]
    differ = encode_both(program, data, model, texts[count // 4:])
    points = {ord(c) for text, _, _ in differ for c in text} & set(OTHER)
    # A random text holds many; those that differ in company only are looked for where no other one explains the text.
    for text, _, _ in random_differ:
        others = {ord(c) for c in text} & set(OTHER)
        points |= others if not others & points else set()
    print(f"{model} {len(OTHER)} code points not assigned in Unicode {unicodedata.unidata_version} (not counted as wrong): "
          f"{len(texts)} compared, {len(random_differ) + len(differ)} differ, in {len(points)} code points: {ranges(points)}", flush=True)


def measure(bench, data, model, texts):
    """MB/s of both on one core, in turn, so that a busy machine slows both."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    reference = Tokenizer.from_file(str(data / model / "tokenizer.json"))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps(text) + "\n" for text in texts)
        file.flush()
        for _ in range(3):
            answer = subprocess.run([bench, data / model, file.name, "3"], capture_output=True, text=True, check=True)
            start = time.perf_counter()
            tokens = sum(len(encoding.ids) for encoding in reference.encode_batch(texts, add_special_tokens=False))
            seconds = time.perf_counter() - start
            print(f"{model} one core: ours {answer.stdout.strip()}; theirs {tokens} tokens, {megabytes / seconds:.2f} MB/s", flush=True)


def random_conversation(rng, control):
    def text():
        some = random_text(rng, 12)
        return some if control else re.sub(r"<[|/a-z_]*>?", "", some)

    messages = []
    for _ in range(rng.randint(1, 5)):
        role = rng.choice(["user", "assistant", "assistant", "system"])
        message = {"role": role, "content": text()}
        if role == "assistant" and rng.random() < 0.3:
            message["content"] = f"<think>\n{text()}\n</think>\n\n{message['content']}"
        elif role == "assistant" and rng.random() < 0.2:
            message["reasoning_content"] = text()
        messages.append(message)
    return messages


def marks_by_search(model, encoding, text):
    """Marks without knowing where the renderer put what; for conversations without control tokens of their own."""
    spans = [match.span(1) for match in ANSWER[model].finditer(text)]
    begins = [begin for begin, _ in spans]
    marks = []
    for begin, _ in encoding.offsets:
        place = bisect.bisect_right(begins, begin) - 1
        marks.append(int(place >= 0 and begin < spans[place][1]))
    return marks


def check_conversations(account, program, data, model, conversations, with_marks):
    reference = Tokenizer.from_file(str(data / model / "tokenizer.json"))
    jinja = data / model / "chat_template.jinja"
    source = (jinja.read_text(encoding="utf-8") if jinja.exists()
              else json.loads((data / model / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"])
    template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(source)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for messages in conversations:
            file.write(json.dumps({"messages": messages}) + "\n")
        file.flush()
        answer = subprocess.run([program, "render", "--model", data / model, "--data.max_tokens", "1000000", file.name],
                                capture_output=True, text=True, check=True)
    ours = [json.loads(line) for line in answer.stdout.split("\n")[:-1]]
    assert len(ours) == len(conversations)
    texts, ids, marks = [], [], []
    for row, messages in zip(ours, conversations):
        text = template.render(messages=messages)
        if row["text"] != text:
            texts.append((text, row["text"], messages))
            continue
        encoding = reference.encode(text, add_special_tokens=False)
        if row["ids"] != encoding.ids:
            ids.append((text, row["ids"], encoding.ids))
        elif with_marks and row["targets"] != marks_by_search(model, encoding, text):
            marks.append((text, row["targets"], marks_by_search(model, encoding, text)))
    account.report(f"{model} texts", texts, len(ours))
    account.report(f"{model} conversations' ids", ids, len(ours))
    if with_marks:
        account.report(f"{model} target marks", marks, len(ours))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--strings", type=int, default=100000)
    parser.add_argument("--conversations", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bench", type=pathlib.Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    rows = json.loads((options.data / "pubmedqa/ori_pqal.json").read_text(encoding="utf-8")).values()
    real = [text for row in rows for text in (row["QUESTION"], "\n".join(row["CONTEXTS"]), row["LONG_ANSWER"])]
    questions = [[{"role": "user", "content": row["QUESTION"]}, {"role": "assistant", "content": row["LONG_ANSWER"]}] for row in rows]
    account = Account()
    print(f"tokenizers {tokenizers.__version__}, Unicode {unicodedata.unidata_version}, seed {options.seed}")
    if unicodedata.unidata_version != "14.0.0":
        print("note: the code points that must agree are those of Unicode 14; this Python (not 3.11) knows another version")
    for model in ("qwen3", "smollm2"):
        check_strings(account, options.program, options.data, model, rng, options.strings, real)
        plain = [random_conversation(rng, control=False) for _ in range(options.conversations)] + questions
        check_conversations(account, options.program, options.data, model, plain, with_marks=True)
        control = [random_conversation(rng, control=True) for _ in range(options.conversations)]
        check_conversations(account, options.program, options.data, model, control, with_marks=False)
    if options.bench:
        for model in ("qwen3", "smollm2"):
            measure(options.bench, options.data, model, real)
    print(f"{account.wrong} differences")
    return account.wrong > 0


if __name__ == "__main__":
    sys.exit(main())
