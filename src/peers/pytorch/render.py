#!/usr/bin/env python3
"""Renders rows with Hugging Face tokenizers and Jinja2 on the model's own chat template, for comparison with Tandem.

    render.py FILE --model DIR --out OUT.h5 [--held-out FILE] [--max-tokens N] [--truncate right|drop]
                   [--targets all|last] [--no-ids]
    tandem render --against OUT.h5 --model DIR [--held-out FILE] FILE

Shares no code with Tandem: ids come from tokenizers, texts from the template in the model's folder, target marks from the
rules of SPEC.md ("Rendering"), found in the rendered text by rendering variants of a conversation. Needs tokenizers, jinja2,
h5py, numpy.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import sys

import h5py
import jinja2
import numpy as np
import tokenizers
from jinja2.sandbox import ImmutableSandboxedEnvironment

END = "<|im_end|>"
HEADER = "<|im_start|>assistant\n"
# Private characters that stand for "here" in a variant of a conversation; the second only has to differ from the first.
HERE, THERE = "\U0010fffd", "\U0010fffc"


class Template:
    """The model's own chat template, and where in its output the assistant's turns are."""

    def __init__(self, folder):
        source = read_template(folder)
        self.digest = hashlib.sha256(source.encode()).hexdigest() if source else ""
        # As the transformers library sets it up.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        self.template = environment.from_string(source) if source else None
        if self.template:
            prompt = {"messages": [{"role": "user", "content": "q"}], "add_generation_prompt": True}
            asked, spared = self.template.render(**prompt), self.template.render(**prompt, enable_thinking=False)
            # What the generation prompt supplies where no thinking is wanted: it is not a target.
            self.empty_block = spared[len(asked):] if spared.startswith(asked) else ""

    def render(self, messages):
        if not self.template:
            refuse("the model has no chat template")
        return self.template.render(messages=messages)

    def targets(self, messages, last_only):
        """Character spans of the rendered text that are trained on: SPEC.md, "Rendering"."""
        answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        return [self.target(messages, i) for i in (answers[-1:] if last_only else answers)]

    def target(self, messages, i):
        text = self.render(messages)
        end = self.end_of_turn(messages, i, text)
        begin = self.begin_of_turn(messages, i, text)
        if not text.startswith(END, end) or not begin <= end:
            refuse(f"message {i + 1}: its turn is not found in the rendered text")
        return begin, end + len(END)

    def end_of_turn(self, messages, i, text):
        """Where the content ends: there a character appended to it appears, and nothing else changes."""
        marked = self.render(changed(messages, i, content=messages[i]["content"] + HERE))
        end = marked.rfind(HERE)
        if end < 0 or marked[:end] + marked[end + 1:] != text:
            refuse(f"message {i + 1}: the template does more with its text than this script can follow")
        return end

    def begin_of_turn(self, messages, i, text):
        """Behind the header and, where the template puts one there by itself, the empty think block."""
        message = messages[i]
        # A template that takes nothing apart writes the content as it is.
        plain = self.common_prefix(messages, i, {"content": HERE}, {"content": THERE})
        if text[:plain].endswith(HEADER) and text.startswith(message["content"], plain):
            return plain
        # What the template shows behind the last </think>, as long as it is what takes the message apart.
        head, tag, _ = message["content"].rpartition("</think>")
        kept = head + tag if message.get("reasoning_content") is None else ""
        common = self.common_prefix(messages, i, {"content": kept + HERE}, {"content": kept + THERE})
        if text[:common].endswith(HEADER + self.empty_block):
            return common
        if text[:common].endswith(HEADER):
            return common
        # A block with reasoning is between header and content; it is the model's to write.
        common = self.common_prefix(messages, i, {"reasoning_content": HERE}, {"reasoning_content": THERE})
        begin = text.rfind(HEADER, 0, common) + len(HEADER)
        if begin < len(HEADER) or not text.startswith("<think>", begin):
            refuse(f"message {i + 1}: the begin of its turn is not found")
        return begin

    def common_prefix(self, messages, i, one, other):
        return len(os.path.commonprefix([self.render(changed(messages, i, **one)), self.render(changed(messages, i, **other))]))


def changed(messages, i, **values):
    return messages[:i] + [messages[i] | values] + messages[i + 1:]


def read_template(folder):
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_bytes().decode()
    file = folder / "tokenizer_config.json"
    if not file.exists():
        return None
    template = json.loads(file.read_bytes()).get("chat_template")
    if isinstance(template, list):
        template = next(one["template"] for one in template if one["name"] == "default")
    return template


def refuse(what):
    raise ValueError(what)


class Renderer:
    def __init__(self, folder, options):
        self.options = options
        self.template = Template(folder)
        file = folder / "tokenizer.json"
        self.tokenizer = None
        if file.exists():
            self.tokenizer = tokenizers.Tokenizer.from_file(str(file))
            self.tokenizer.no_truncation()
            self.tokenizer.no_padding()
            # Offsets then are those of whole tokens, their blanks included.
            self.tokenizer.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)

    def sample(self, row):
        """(ids, marks), or None for a row that is left out."""
        if "ids" in row:
            ids, marks = row["ids"], row["targets"]
        else:
            ids, marks = self.conversation(messages_of(row))
        most = self.options.max_tokens
        if len(ids) > most and self.options.truncate == "drop":
            return None
        return ids[:most], marks[:most]

    def conversation(self, messages):
        text = self.template.render(messages)
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        marks = np.zeros(len(text) + 1, dtype=np.uint8)
        for begin, end in self.template.targets(messages, self.options.targets == "last"):
            marks[begin:end] = 1
        # A token is a target if its first byte lies in a target span.
        return encoding.ids, [int(marks[begin]) for begin, _ in encoding.offsets]

    def file(self, path):
        samples = []
        with open(path, encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    sample = self.sample(json.loads(line))
                except Exception as error:
                    raise SystemExit(f"{path} line {number}: {error}") from error
                if sample:
                    samples.append(sample)
        if not samples:
            raise SystemExit(f"{path}: no sample left")
        return samples


def messages_of(row):
    if "messages" in row:
        return [{key: value for key, value in message.items() if value is not None} for message in row["messages"]]
    if "prompt" in row:
        return [turn("user", row["prompt"]), turn("assistant", row["completion"])]
    system = [turn("system", row["system"])] if row.get("system") else []
    if "conversations" in row:
        return system + [turn(ROLES[one["from"]], one["value"]) if "from" in one else one for one in row["conversations"]]
    parts = [row["instruction"], row.get("input")]
    return system + [turn("user", "\n\n".join(part for part in parts if part)), turn("assistant", row["output"])]


ROLES = {"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}


def turn(role, content):
    return {"role": role, "content": content}


def digest(ids, marks):
    return hashlib.sha256(np.asarray(ids, "<i4").tobytes() + np.asarray(marks, "u1").tobytes()).hexdigest()


def file_digest(path):
    if not path or not path.exists():
        return "none"
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scored(ids, marks):
    """Token 0 is never scored."""
    return [token for token, mark in zip(ids[1:], marks[1:]) if mark]


def dataset(group, name, data, unit, description, label):
    one = group.create_dataset(name, data=data)
    one.attrs["unit"], one.attrs["description"] = unit, description
    one.dims[0].label = label


def write(path, samples, n_train, facts, template_digest, with_ids):
    temporary = path.with_name(path.name + ".part")
    with h5py.File(temporary, "w") as file:
        file.attrs["format"], file.attrs["format_version"] = "tandem-trajectory", np.int64(1)
        file.attrs["stack"], file.attrs["complete"] = "pytorch", np.int64(1)
        file.attrs["written_at"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        provenance = file.create_group("provenance")
        for name, value in facts.items():
            provenance.attrs[name] = value
        group = file.create_group("render")
        group.attrs["n_train"] = np.int64(n_train)
        answers = [scored(*sample) for sample in samples]
        dataset(group, "digest", np.array([digest(*sample) for sample in samples], "S64"), "SHA-256", "of ids and marks", "sample")
        dataset(group, "n_ids", np.array([len(ids) for ids, _ in samples], "<i8"), "tokens", "length", "sample")
        dataset(group, "n_targets", np.array([len(answer) for answer in answers], "<i8"), "tokens", "scored tokens", "sample")
        dataset(group, "last_target_id", np.array([answer[-1] if answer else -1 for answer in answers], "<i8"), "1",
                "the last scored token, -1 = none", "sample")
        one = group.create_dataset("template_digest", data=template_digest)
        one.attrs["unit"], one.attrs["description"] = "SHA-256", "of the chat template, empty where none was used"
        if with_ids:
            begin = np.concatenate([[0], np.cumsum([len(ids) for ids, _ in samples])]).astype("<i8")
            dataset(group, "begin", begin, "tokens", "sample i is ids [begin[i], begin[i+1])", "sample")
            dataset(group, "ids", np.concatenate([np.asarray(ids, "<i4") for ids, _ in samples]), "1", "token ids", "token")
            dataset(group, "targets", np.concatenate([np.asarray(marks, "u1") for _, marks in samples]), "1", "marks", "token")
    os.replace(temporary, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--held-out", type=pathlib.Path)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--truncate", choices=["right", "drop"], default="right")
    parser.add_argument("--targets", choices=["all", "last"], default="all")
    parser.add_argument("--no-ids", action="store_true", help="digests only: a smaller file, but differences cannot be shown")
    options = parser.parse_args()
    renderer = Renderer(options.model, options)
    train = renderer.file(options.file)
    held_out = renderer.file(options.held_out) if options.held_out else []
    facts = {
        "data.train": file_digest(options.file),
        "data.held_out": file_digest(options.held_out),
        "data.template": "auto",
        "data.max_tokens": str(options.max_tokens),
        "data.truncate": options.truncate,
        "data.targets": options.targets,
        "data.special_in_text": "encode",
        "tokenizer": file_digest(options.model / "tokenizer.json"),
        "tokenizers": tokenizers.__version__,
        "jinja2": jinja2.__version__,
    }
    write(options.out, train + held_out, len(train), facts, renderer.template.digest, not options.no_ids)
    tokens = sum(len(ids) for ids, _ in train + held_out)
    everything = hashlib.sha256("".join(digest(*sample) for sample in train + held_out).encode()).hexdigest()
    print(f"{options.out}: {len(train) + len(held_out)} samples, {tokens} tokens, digest of all {everything}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
