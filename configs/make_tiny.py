#!/usr/bin/env python3
"""Writes tiny.jsonl and tiny_held_out.jsonl beside itself: 120 and 24 invented questions about vital signs.

The answer follows from the number and the range in it, so that even a tiny model has something to learn; no row of one
file is in the other. The ranges are those of any first-aid book; nothing here is medical advice.
"""
import json
import pathlib
import random

# name, unit, lowest and highest usual value, spread outside of it, decimals
SIGNS = [
    ("resting heart rate", "beats per minute", 60, 100, 45, 0),
    ("breathing rate", "breaths per minute", 12, 20, 9, 0),
    ("body temperature", "degrees Celsius", 36.1, 37.2, 2.2, 1),
    ("systolic blood pressure", "mmHg", 90, 120, 50, 0),
    ("fasting blood glucose", "mmol/l", 3.9, 5.5, 3.0, 1),
    ("body mass index", "kg/m2", 18.5, 24.9, 9.0, 1),
]
PEOPLE = ["A nurse", "A student", "A general practitioner", "A midwife", "A paramedic"]
VERBS = ["measures", "notes", "reads"]


def row(rng):
    name, unit, low, high, spread, decimals = rng.choice(SIGNS)
    side = rng.choice(["below", "within", "above"])
    value = {
        "below": lambda: low - rng.uniform(0.1, 1) * spread * (low / high),
        "within": lambda: rng.uniform(low, high),
        "above": lambda: high + rng.uniform(0.1, 1) * spread,
    }[side]()
    value = round(value, decimals) if decimals else round(value)
    # Rounding may have moved it over the edge.
    side = "below" if value < low else "above" if value > high else "within"
    question = f"{rng.choice(PEOPLE)} {rng.choice(VERBS)} a {name} of {value} {unit} in an adult. Is it usual?"
    answer = f"{'Yes' if side == 'within' else 'No'}. It is {side} the usual {name} of {low} to {high} {unit}."
    return question, answer


def write(file, rows):
    with open(file, "w", encoding="utf-8", newline="\n") as out:
        for i, (question, answer) in enumerate(rows):
            if i % 3 == 2:
                data = {"prompt": question, "completion": answer}
            else:
                data = {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
            out.write(json.dumps(data, ensure_ascii=False) + "\n")


def main():
    rng = random.Random(7)
    rows = {}
    while len(rows) < 144:
        question, answer = row(rng)
        rows[question] = answer
    rows = list(rows.items())
    folder = pathlib.Path(__file__).parent
    write(folder / "tiny.jsonl", rows[:120])
    write(folder / "tiny_held_out.jsonl", rows[120:])


if __name__ == "__main__":
    main()
