#!/usr/bin/env python3
"""Clinical source files of any size: the real rows repeated, each copy with a few words of its own.

    many_clinical_rows.py DATA_FOLDER OUT_FOLDER [--medmcqa 157396] [--medqa 10178] [--pubmedqa 1000]

writes medmcqa.json, medqa.jsonl and pubmedqa.json of just so many rows (168,574 by default; 182822, 10178 and 1000 are
the study's 194,000). Question and explanation of copy n name case n, so few are duplicates.
"""

import argparse
import itertools
import json
import os


def copies(rows, n):
    return itertools.islice(((i // len(rows), rows[i % len(rows)]) for i in itertools.count()), n)


def edited(text, copy):
    return f"{text} (Case {copy}.)" if text and copy > 0 else text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("out")
    parser.add_argument("--medmcqa", type=int, default=157396)
    parser.add_argument("--medqa", type=int, default=10178)
    parser.add_argument("--pubmedqa", type=int, default=1000)
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)

    def load_lines(*path):
        with open(os.path.join(options.data, *path), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def write_lines(name, rows):
        with open(os.path.join(options.out, name), "w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row) + "\n")

    write_lines("medmcqa.json", (dict(row, question=edited(row["question"], n), exp=edited(row["exp"], n))
                                 for n, row in copies(load_lines("medmcqa", "dev.json"), options.medmcqa)))
    write_lines("medqa.jsonl", (dict(row, question=edited(row["question"], n))
                                for n, row in copies(load_lines("medqa", "medagents_test.jsonl"), options.medqa)))
    with open(os.path.join(options.data, "pubmedqa", "ori_pqal.json"), encoding="utf-8") as file:
        rows = list(json.load(file).items())
    many = {f"{pmid}{'' if n == 0 else f'-{n}'}": dict(row, QUESTION=edited(row["QUESTION"], n),
                                                        LONG_ANSWER=edited(row["LONG_ANSWER"], n),
                                                        CONTEXTS=[edited(part, n) for part in row["CONTEXTS"]])
            for n, (pmid, row) in copies(rows, options.pubmedqa)}
    with open(os.path.join(options.out, "pubmedqa.json"), "w", encoding="utf-8") as file:
        json.dump(many, file, indent=4)


if __name__ == "__main__":
    main()
