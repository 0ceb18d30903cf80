#!/usr/bin/env python3
"""MedMCQA's rows as questions for `tandem eval --choices`.

    medmcqa_to_choices.py dev.json choices.jsonl --rows 400
    medmcqa_to_choices.py dev.json choices.jsonl --prompts configs/prompts

Without --prompts the question's own text is asked and the options are their own texts; with it, question and
answers are worded as `tandem prepare` words the rows that a model is trained on. `cop` counts from 1 in the
authors' files and from 0 in some copies: a 4 shows the first, a 0 the second, and a file with neither, or both, is
refused. The order is that of SHA-256("seed:id"), the same on every machine. Rows with two equal options or an
empty one are left out; every input row is accounted for.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

OPTIONS = ("opa", "opb", "opc", "opd")


def cop_base(rows, path):
    marks = {row["cop"] for row in rows}
    if (0 in marks) == (4 in marks):
        sys.exit(f"{path}: cop is one of {sorted(marks)}, which does not tell whether it counts from 0 or from 1")
    return 1 if 4 in marks else 0


def worded(text, answer):
    """The answer in the file's sentence; a full stop stands once."""
    return text.replace("{answer}.", answer if answer.endswith((".", "!", "?")) else answer + ".")


def convert(row, base, prompts):
    """(row for eval, None) or (None, why not)."""
    question = row["question"].strip()
    options = [str(row[name]).strip() if row[name] is not None else "" for name in OPTIONS]
    if not question:
        return None, "no question"
    if not all(options):
        return None, "an empty option"
    if len(set(options)) < len(options):
        return None, "two equal options"
    if prompts:
        choice, answer = ((prompts / name).read_text(encoding="utf-8").rstrip("\n") for name in ("choice.txt", "answer.txt"))
        listed = "\n".join(f"{letter}. {option}" for letter, option in zip("ABCD", options))
        question = choice.replace("{question}", question).replace("{options}", listed)
        options = [worded(answer, option) for option in options]
    return {"id": row["id"], "question": question, "choices": options, "answer": row["cop"] - base}, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--rows", type=int, help="rows to write (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prompts", type=Path, help="folder with choice.txt and answer.txt")
    options = parser.parse_args()

    with open(options.input, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    base = cop_base(rows, options.input)
    rows.sort(key=lambda row: hashlib.sha256(f"{options.seed}:{row['id']}".encode()).digest())
    converted, account = [], {}
    for row in rows:
        question, reason = convert(row, base, options.prompts)
        if question is None:
            account[reason] = account.get(reason, 0) + 1
        else:
            converted.append(question)
    chosen = converted if options.rows is None else converted[: options.rows]
    partial = options.output + ".partial"
    with open(partial, "w", encoding="utf-8", newline="\n") as file:
        for question in chosen:
            file.write(json.dumps(question, ensure_ascii=False) + "\n")
    os.replace(partial, options.output)
    account = {"written": len(chosen), "not asked for": len(converted) - len(chosen), **account}
    assert sum(account.values()) == len(rows)
    print(f"{len(rows)} rows = " + " + ".join(f"{count} {what}" for what, count in account.items()))


if __name__ == "__main__":
    main()
