#!/usr/bin/env python3
"""Renders real rows with `tandem render` and with the mirror, and says where their token ids or target marks differ.

Needs both programs and the folder of real inputs (TANDEM_DATA): tokenizers and templates of Qwen3 and SmolLM2, rows of
PubMedQA, MedMCQA and MedQA. Every row is rendered in every form that rows can have, under every value of the data keys
that changes ids. Usage: mirror_render.py TANDEM MIRROR_TOOL [ROWS_PER_SOURCE]; without a number, all rows.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile


def rows(data, most):
    """(question, context, answer) of the three sources; awkward texts are in them as published."""
    found = []
    pubmed = json.loads((data / "pubmedqa/ori_pqal.json").read_text())
    for row in list(pubmed.values())[:most]:
        found.append((row["QUESTION"], "\n".join(row["CONTEXTS"]), row["LONG_ANSWER"]))
    with open(data / "medmcqa/dev.json", encoding="utf-8") as lines:
        for row in [json.loads(line) for line in lines][:most]:
            found.append((row["question"], "; ".join([row["opa"], row["opb"], row["opc"], row["opd"]]), row["exp"] or "None."))
    with open(data / "medqa/medagents_test.jsonl", encoding="utf-8") as lines:
        for row in [json.loads(line) for line in lines][:most]:
            found.append((row["question"], "\n".join(row["options"].values()), row["answer"]))
    return found


def in_some_form(rng, question, context, answer):
    asked = f"{question}\n\n{context}"
    thought = rng.choice([answer[:40], "", "\n" + question + "\n"])
    turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    more = [{"role": "user", "content": question}, {"role": "assistant", "content": f"<think>\n{thought}\n</think>\n\n{answer}"}]
    return rng.choice([
        {"messages": turns},
        {"messages": [{"role": "system", "content": "You are a clinician."}] + turns},
        {"messages": turns + more},
        {"messages": more + turns},
        {"messages": turns + more + [{"role": "user", "content": context}]},
        {"messages": [turns[0], {"role": "assistant", "content": answer, "reasoning_content": thought}]},
        {"prompt": asked, "completion": answer},
        {"instruction": question, "input": context, "output": answer},
        {"instruction": question, "input": "", "output": answer, "system": "Be brief."},
        {"conversations": [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]},
        {"messages": [{"role": "user", "content": f"<|im_end|> {question} <think>"}, turns[1]]},
    ])


def samples(command, cwd):
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip()}")
    found = [json.loads(line) for line in done.stdout.split("\n") if line]
    return [(row["line"], row["ids"], row["targets"], row["digest"]) for row in found]


def main():
    tandem, mirror = (str(pathlib.Path(program).resolve()) for program in sys.argv[1:3])
    most = int(sys.argv[3]) if len(sys.argv) > 3 else None
    root = pathlib.Path(__file__).resolve().parents[2]
    data = pathlib.Path(os.environ.get("TANDEM_DATA", root / "../shared/data"))
    if not data.is_dir():
        print("the folder of real inputs is not here (TANDEM_DATA)")
        sys.exit(77)
    rng = random.Random(11)
    n_compared, n_different = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with open(folder / "rows.jsonl", "w", encoding="utf-8") as out:
            for row in rows(data, most):
                out.write(json.dumps(in_some_form(rng, *row), ensure_ascii=rng.random() < 0.5) + "\n")
        subprocess.run([tandem, "init-model", "--preset", "tiny", "--out", "tiny"], cwd=folder, check=True,
                       capture_output=True)
        for name in ("qwen3", "smollm2"):
            shutil.copytree(data / name, folder / name)
        settings = [("tiny", {}), ("qwen3", {}), ("smollm2", {}), ("qwen3", {"targets": "last", "special_in_text": "plain"}),
                    ("qwen3", {"max_tokens": "200"}), ("smollm2", {"max_tokens": "200", "truncate": "drop"}),
                    ("qwen3", {"template": "chatml"}), ("smollm2", {"template": "chatml", "special_in_text": "plain"})]
        for model, keys in settings:
            options = [part for key, value in keys.items() for part in (f"--data.{key}", value)]
            if "max_tokens" not in keys:
                options += ["--data.max_tokens", "4096"]
            spec = subprocess.run([tandem, "spec", "--model", "tiny", "--data", "rows.jsonl", "--train.updates", "1",
                                   *options], cwd=folder, check=True, capture_output=True, text=True).stdout
            (folder / "spec.txt").write_text(spec)
            native = samples([tandem, "render", "--model", model, *options, "rows.jsonl"], folder)
            ours = samples([mirror, "render", "spec.txt", model, "rows.jsonl"], folder)
            differ = [a[0] for a, b in zip(native, ours) if a != b]
            n_compared += len(native)
            n_different += len(differ) + abs(len(native) - len(ours))
            print(f"{model} {keys}: {len(native)} samples, {len(ours)} of the mirror, {len(differ)} differ",
                  *([f"(first in line {differ[0]})"] if differ else []))
    print(f"{n_compared} samples compared, {n_different} different")
    sys.exit(n_different > 0)


if __name__ == "__main__":
    main()
