#!/usr/bin/env python3
"""`tandem render --against` the peer's render.py: equal samples, and differences that were planted.

    render_test.py TANDEM [--model DIR ...] [--data FILE ...] [--rows 400] [--seed 1]

Rows: random conversations of all shapes, pairs and tokenised rows, and those of FILE. Models: those given, else one made
by `tandem init-model` with bytes as tokens. Exit code 77 (skipped) without tokenizers, jinja2, h5py, numpy.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PIECES = ["<think>", "</think>", "<think>\n\n</think>\n\n", "<|im_end|>", "<|im_start|>", "<|im_start|>assistant\n", "<|endoftext|>", "\n",
          "\n\n", " ", "   ", "\t", "x", "Yes.", "12", "é", "e\u0301", "中文", "\U0001f9ea", "\u1df6\u0301", "\u212b", "'s", "\x00",
          "<tool_response>", "</tool_response>", "None", "{{", "{% if %}", "\r\n", "\u2028", "a\u0334\u0301\u0334"]
failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print("FAILED:", what)


def random_text(rng):
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(8)))


def random_row(rng):
    kind = rng.randrange(10)
    if kind == 8:
        row = {"instruction": random_text(rng), "output": random_text(rng)}
        return row | rng.choice([{}, {"input": ""}, {"input": random_text(rng)}, {"system": random_text(rng), "input": None}])
    if kind == 9:
        turns = [{"from": rng.choice(["human", "gpt", "user", "assistant"]), "value": random_text(rng)} for _ in range(rng.randint(1, 4))]
        return {"conversations": turns} | rng.choice([{}, {"system": random_text(rng)}])
    if kind == 0:
        ids = [rng.randrange(200) for _ in range(rng.randint(1, 80))]
        return {"ids": ids, "targets": [rng.randrange(2) for _ in ids]}
    if kind == 1:
        return {"prompt": random_text(rng), "completion": random_text(rng)}
    messages = []
    for _ in range(rng.randint(1, 6)):
        role = rng.choice(["user", "assistant", "assistant", "system"])
        message = {"role": role, "content": random_text(rng)}
        if role == "assistant" and rng.random() < 0.4:
            message["content"] = f"<think>{random_text(rng)}</think>\n\n{message['content']}"
        if role == "assistant" and rng.random() < 0.3:
            message["reasoning_content"] = rng.choice(["", "\n", None, random_text(rng)])
        messages.append(message)
    return {"messages": messages}


def run(command, code=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    check(done.returncode == code, f"{' '.join(map(str, command))}: exit code {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def peer(arguments, out, *more):
    return run([sys.executable, ROOT / "src/peers/pytorch/render.py", *arguments, "--out", out, *more])


def check_equal(tandem, model, file, folder, shorter):
    """All settings that change the samples; `shorter` is a length that some of them exceed and some do not."""
    held_out = folder / "held_out.jsonl"
    held_out.write_text(json.dumps({"prompt": "held", "completion": "out"}) + "\n", encoding="utf-8")
    settings = [([], []),
                (["--data.targets", "last", "--data.max_tokens", shorter], ["--targets", "last", "--max-tokens", shorter]),
                (["--data.truncate", "drop", "--data.max_tokens", shorter], ["--truncate", "drop", "--max-tokens", shorter]),
                (["--held-out", held_out], ["--held-out", held_out])]
    for ours, theirs in settings:
        made = peer([file, "--model", model], folder / "peer.h5", *theirs)
        said = run([tandem, "render", "--model", model, "--against", folder / "peer.h5", *ours, file])
        check("(pytorch): equal; " in said, said)
        # Both print the digest of all samples.
        check(said.split("digest of all ")[-1].startswith(made.split()[-1]), made + said)


def check_planted(tandem, model, folder):
    """One changed token, one changed mark, one sample too few; with and without ids; other data."""
    import h5py
    import numpy as np

    file = folder / "planted.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"q{i}", "completion": f"r{i}"}) + "\n" for i in range(3)), encoding="utf-8")
    against = [tandem, "render", "--model", model, "--against", folder / "planted.h5", file]

    def plant(change, *more):
        peer([file, "--model", model], folder / "planted.h5", *more)
        with h5py.File(folder / "planted.h5", "r+") as h5:
            change(h5["render"])

    def other_digest(render):
        render["digest"][1] = b"0" * 64

    def other_id(render):
        other_digest(render)
        render["ids"][render["begin"][1] + 3] = 5

    def other_mark(render):
        other_digest(render)
        render["targets"][render["begin"][2] - 2] = 0
        render["n_targets"][1] -= 1

    def fewer(render):
        for name in ("digest", "n_ids", "n_targets", "last_target_id"):
            values = render[name][:2]
            del render[name]
            render[name] = values
        render.attrs["n_train"] = np.int64(2)

    plant(other_id)
    said = run(against, 5)
    check(f"training sample 1 ({file} line 2) differs" in said and "first difference is at token 3" in said, said)
    check("\n>      3  " in said and "\n       2  " in said and "\n       7  " in said, said)
    check("1 of 3 samples differ" in said, said)
    plant(other_mark)
    said = run(against, 5)
    check("first difference is at token" in said and 'scored' in said, said)
    plant(other_digest, "--no-ids")
    said = run(against, 5)
    check("holds no token ids" in said and "q1<|im_end|>" in said, said)
    plant(fewer)
    said = run(against, 5)
    check("training samples: here 3, there 2" in said and "and the numbers of samples" in said, said)
    peer([file, "--model", model], folder / "planted.h5")
    said = run([*against[:-1], "--data.targets", "last", file], 3)
    check("data.targets = all, here it is last" in said, said)
    other = folder / "other.jsonl"
    other.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    said = run([*against[:-1], other], 3)
    check("data.train = " in said, said)


def main():
    try:
        import h5py, jinja2, numpy, tokenizers  # noqa: E401,F401
    except ImportError as error:
        print(f"skipped: {error} (TANDEM_PEER_PYTHON names a Python that has what the peers need)")
        return 77
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tandem")
    parser.add_argument("--model", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--data", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = options.model
        if not models:
            models = [folder / "model"]
            run([options.tandem, "init-model", "--preset", "tiny", "--out", models[0]])
        file = folder / "rows.jsonl"
        with open(file, "w", encoding="utf-8") as out:
            for _ in range(options.rows):
                out.write(json.dumps(random_row(rng), ensure_ascii=rng.random() < 0.5) + "\n")
        for model in models:
            for data in [file, *options.data]:
                check_equal(options.tandem, model, data, folder, 60 if data == file else 450)
                print(f"{model.name}: {sum(1 for _ in open(data, encoding='utf-8'))} rows of {data.name} compared")
            check_planted(options.tandem, model, folder)
    print(f"seed {options.seed}, {len(failures)} failures")
    return len(failures) > 0


if __name__ == "__main__":
    sys.exit(main())
