#!/usr/bin/env python3
"""Checks a folder of `tandem prepare` with folding, splitting and counting of its own.

    check_prepared.py DIR [--rows N]

- train and held-out rows are conversations of a user and an assistant turn, and the report's numbers are those of
  the files; rows in = converted + duplicates + rejected for every source, N rows in all where --rows says so;
- no question, no explanation and no abstract of a held-out row is in train, whatever case, white space, punctuation,
  signs and accents;
- a row is held out where the first 53 bits of SHA-256 of its folded question, as a fraction, lie below the share;
- no conversation occurs twice, and no target is an option's letter.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import unicodedata


def fold(text):
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(c for c in folded if unicodedata.category(c)[0] in "LN")


def parts_of(row):
    """Question, abstract ("" where there is none) and target, read back from the built-in wording."""
    user, assistant = row["messages"]
    assert (user["role"], assistant["role"]) == ("user", "assistant"), row
    text = user["content"]
    if row["source"] == "pubmedqa":
        match = re.fullmatch(r"Answer this question from the abstract\.\n\nAbstract:\n(.*)\n\nQuestion: (.*)", text, re.S)
        return match[2], match[1], assistant["content"]
    match = re.fullmatch(r"Answer this medical question in words\.\n\nQuestion: (.*)\n\nOptions:\n(A\. .*)", text, re.S)
    return match[1], "", assistant["content"]


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    return [json.loads(line) for line in data.decode("utf-8").splitlines()] if data else [], hashlib.sha256(data).hexdigest()


def sum_of(value):
    if isinstance(value, int):
        return value
    return value["rows"] if set(value) == {"rows", "first_line"} else sum(sum_of(v) for v in value.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rows", type=int)
    options = parser.parse_args()
    with open(os.path.join(options.folder, "prepare.json"), encoding="utf-8") as file:
        report = json.load(file)

    faults = []

    def check(good, what):
        if not good:
            faults.append(what)

    texts = {}
    seen = set()
    for side, name in (("train", "train.jsonl"), ("held_out", "held_out.jsonl")):
        rows, digest = read(os.path.join(options.folder, name))
        output = next(o for o in report["outputs"] if o["file"] == name)
        check(output == {"file": name, "rows": len(rows), "sha256": digest}, f"{name}: the report says {output}")
        check(sum_of(report["all"][side]) == len(rows), f"{name}: the account has {report['all'][side]}")
        questions, long_texts = set(), set()
        for row in rows:
            question, abstract, target = parts_of(row)
            where = f"{name}: {row['source']} line {row['line']}"
            key = json.dumps(row["messages"])
            check(key not in seen, f"{where}: stands twice")
            seen.add(key)
            check(not re.fullmatch(r"\W*[A-Ja-j]\W*", target), f"{where}: the target is a letter")
            folded = fold(question)
            point = (int(hashlib.sha256(folded.encode()).hexdigest()[:16], 16) >> 11) * 2.0**-53
            check((point < report["held_out_share"]) == (side == "held_out"), f"{where}: on the wrong side")
            questions.add(folded)
            if row["target"] == "explanation":
                long_texts.add(fold(target))
            if abstract:
                long_texts.add(fold(abstract))
        texts[side] = questions, long_texts
    for i, what in enumerate(("questions", "explanations or abstracts")):
        common = texts["train"][i] & texts["held_out"][i]
        check(not common, f"{len(common)} {what} on both sides, such as {next(iter(common), '')[:80]!r}")
    for source in report["sources"]:
        accounted = sum(sum_of(source[part]) for part in ("train", "held_out", "duplicates", "rejected"))
        check(accounted == source["rows"], f"{source['file']}: {source['rows']} rows, {accounted} accounted for")
    rows = report["all"]["rows"]
    check(sum(source["rows"] for source in report["sources"]) == rows, "the sources do not add up")
    check(options.rows in (None, rows), f"{rows} rows read, {options.rows} expected")
    for fault in faults[:20]:
        print("FAULT:", fault)
    print(f"{rows} rows, {sum_of(report['all']['train'])} in train, {sum_of(report['all']['held_out'])} held out: "
          f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
