#!/usr/bin/env python3
"""Tandem's token ids, rendered texts and target marks against Hugging Face tokenizers and Jinja2.

    python3 -m venv VENV && VENV/bin/pip install tokenizers jinja2
    VENV/bin/python tests/real/check_text.py build/release/tandem DATA [--strings 20000] [--conversations 5000] [--seed 1]

DATA is the folder of real inputs (qwen3/, smollm2/, pubmedqa/). Strings are made of code points assigned in the
Unicode version of this Python. Differences are printed; any makes the exit code 1. Code points that the tokenizers
library's NFC does not know yet (it treats newer combining marks as plain characters) are counted apart.
"""

import argparse
import bisect
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unicodedata

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer, normalizers

FRAGMENTS = ["<|im_end|>", "<|im_start|>", "<|im_", "end|>", "<think>", "</think>", "<|endoftext|>", "\n", "\n\n", " \n",
             "   ", "\r\n", "\t", "'s", "'LL", "'\u017f", "a", "12", "\u180e", "\u3000", "\u00a0", "\x85", "\u2028",
             "\u0301", "e\u0301", "\u1100", "\u1161", "\u11a8", "\x00", "\ufeff"]
RANGES = [(0x00, 0x7F), (0x20, 0x7E), (0x20, 0x7E), (0x30, 0x39), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF),
          (0x900, 0xDFF), (0xF40, 0x109F), (0x1100, 0x11FF), (0x1E00, 0x206F), (0x3000, 0xD7A3), (0x10000, 0x1FAFF)]
ASSIGNED = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
# An empty think block is Qwen3's template's own; SmolLM2's writes none, so there it is the answer's.
ANSWER = {
    "qwen3": re.compile(r"<\|im_start\|>assistant\n(?:<think>\n\n</think>\n\n)?(.*?<\|im_end\|>)\n", re.DOTALL),
    "smollm2": re.compile(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)\n", re.DOTALL),
}


def random_text(rng, most=30):
    parts = []
    for _ in range(rng.randrange(most)):
        kind = rng.randrange(4)
        if kind == 0:
            parts.append(rng.choice(FRAGMENTS))
        elif kind == 1:
            parts.append(chr(rng.choice(ASSIGNED)))
        else:
            c = chr(rng.randint(*rng.choice(RANGES)))
            parts.append(c if unicodedata.category(c) != "Cn" else " ")
    return "".join(parts)


def nfc_differs(text):
    """True where the library's own NFC is not that of this Python's Unicode version."""
    return normalizers.NFC().normalize_str(text) != unicodedata.normalize("NFC", text)


class Account:
    def __init__(self):
        self.wrong = 0

    def report(self, name, differences, total, unknown):
        known = [d for d in differences if not unknown(d[0])]
        print(f"{name}: {total} compared, {len(known)} differ, {len(differences) - len(known)} in marks unknown to the library")
        for text, ours, theirs in known[:5]:
            print("   ", json.dumps(text), "\n      ours  ", ours, "\n      theirs", theirs)
        self.wrong += len(known)


def check_strings(account, program, data, model, texts):
    reference = Tokenizer.from_file(str(data / model / "tokenizer.json"))
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    answer = subprocess.run([program, "tokenize", "--model", data / model], input=lines, capture_output=True, text=True, check=True)
    ours = [json.loads(line) for line in answer.stdout.splitlines()]
    theirs = [encoding.ids for encoding in reference.encode_batch(texts, add_special_tokens=False)]
    assert len(ours) == len(theirs)
    differences = [d for d in zip(texts, ours, theirs) if d[1] != d[2]]
    account.report(f"{model} ids", differences, len(texts), nfc_differs)


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
    account.report(f"{model} texts", texts, len(ours), lambda text: False)
    account.report(f"{model} conversations' ids", ids, len(ours), nfc_differs)
    if with_marks:
        account.report(f"{model} target marks", marks, len(ours), lambda text: False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--strings", type=int, default=20000)
    parser.add_argument("--conversations", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    rows = json.loads((options.data / "pubmedqa/ori_pqal.json").read_text(encoding="utf-8")).values()
    texts = [random_text(rng) for _ in range(options.strings)]
    texts += [f"a{chr(c)}b {chr(c)}{chr(c)}. 1{chr(c)}\u0301" for c in ASSIGNED]
    for row in rows:
        texts += [row["QUESTION"], "\n".join(row["CONTEXTS"]), row["LONG_ANSWER"]]
    questions = [[{"role": "user", "content": row["QUESTION"]}, {"role": "assistant", "content": row["LONG_ANSWER"]}] for row in rows]
    account = Account()
    print(f"seed {options.seed}, Unicode {unicodedata.unidata_version}, {len(ASSIGNED)} code points")
    for model in ("qwen3", "smollm2"):
        check_strings(account, options.program, options.data, model, texts)
        plain = [random_conversation(rng, control=False) for _ in range(options.conversations)] + questions
        check_conversations(account, options.program, options.data, model, plain, with_marks=True)
        control = [random_conversation(rng, control=True) for _ in range(options.conversations)]
        check_conversations(account, options.program, options.data, model, control, with_marks=False)
    return account.wrong > 0


if __name__ == "__main__":
    sys.exit(main())
