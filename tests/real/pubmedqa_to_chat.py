#!/usr/bin/env python3
"""PubMedQA's labelled rows (ori_pqal.json) as chat JSONL: question and abstract in, the written conclusion out.

    pubmedqa_to_chat.py ori_pqal.json train.jsonl --rows 200
    pubmedqa_to_chat.py ori_pqal.json held_out.jsonl --rows 40 --skip 200
    pubmedqa_to_chat.py ori_pqal.json short.jsonl --question-only       rows of about 100 tokens

The order is that of SHA-256("seed:PMID"), so it is the same on every machine and Python, and two calls with the
same seed and different --skip give disjoint rows. Every input row is accounted for.
"""

import argparse
import hashlib
import json
import os
import sys

PROMPT = "Answer the question from the abstract.\n\n{abstract}\n\nQuestion: {question}"


def abstract_of(row):
    """The abstract's parts, each under its own heading where it has one."""
    parts = []
    labels = row.get("LABELS") or []
    for i, context in enumerate(row["CONTEXTS"]):
        label = labels[i].strip() if i < len(labels) else ""
        parts.append(f"{label}: {context.strip()}" if label else context.strip())
    return "\n".join(parts)


def convert(pmid, row, question_only):
    """(row as chat, None) or (None, why not)."""
    question, answer, abstract = row["QUESTION"].strip(), row["LONG_ANSWER"].strip(), abstract_of(row)
    for name, text in (("question", question), ("abstract", abstract), ("answer", answer)):
        if not text:
            return None, f"no {name}"
    prompt = question if question_only else PROMPT.format(abstract=abstract, question=question)
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    return {"id": pmid, "messages": messages}, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--rows", type=int, help="rows to write (default: all)")
    parser.add_argument("--skip", type=int, default=0, help="converted rows to leave out first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--question-only", action="store_true", help="leave the abstract out of the prompt")
    options = parser.parse_args()
    if options.skip < 0 or (options.rows is not None and options.rows < 0):
        parser.error("--rows and --skip must not be negative")

    with open(options.input, encoding="utf-8") as file:
        rows = json.load(file)
    order = sorted(rows, key=lambda pmid: hashlib.sha256(f"{options.seed}:{pmid}".encode()).digest())
    converted, rejected, seen = [], {}, set()
    for pmid in order:
        chat, reason = convert(pmid, rows[pmid], options.question_only)
        if chat and chat["messages"][0]["content"] in seen:
            chat, reason = None, "duplicate"
        if chat is None:
            rejected[reason] = rejected.get(reason, 0) + 1
            continue
        seen.add(chat["messages"][0]["content"])
        converted.append(chat)
    chosen = converted[options.skip:]
    if options.rows is not None:
        if options.rows > len(chosen):
            sys.exit(f"{options.input}: {options.rows} rows asked for behind {options.skip}, {len(chosen)} there")
        chosen = chosen[:options.rows]

    partial = options.output + ".partial"
    with open(partial, "w", encoding="utf-8", newline="\n") as file:
        for chat in chosen:
            file.write(json.dumps(chat, ensure_ascii=False) + "\n")
    os.replace(partial, options.output)
    account = [("written", len(chosen)), ("not asked for", len(converted) - len(chosen))]
    account += sorted(rejected.items())
    assert sum(count for _, count in account) == len(rows)
    print(f"{len(rows)} rows = " + " + ".join(f"{count} {what}" for what, count in account))


if __name__ == "__main__":
    main()
