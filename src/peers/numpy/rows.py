"""One row of a JSON Lines file: a conversation, or ids and marks (SPEC.md, "Rendering")."""

import json

from keys import Refused

FORMS = [("messages",), ("prompt", "completion"), ("instruction",), ("conversations",), ("ids", "targets")]
ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


def _unique(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise Refused(f"a key stands twice: {keys}")
    return dict(pairs)


def read_row(text):
    """(turns, None), each turn {role, content[, reasoning_content]}, or (None, (ids, marks))."""
    row = json.loads(text, object_pairs_hook=_unique)
    forms = [form for form in FORMS if isinstance(row, dict) and any(key in row for key in form)]
    if len(forms) != 1:
        raise Refused("exactly one form of row expected")
    if row.get("tools"):
        raise Refused("tools are not supported")
    form = forms[0][0]
    if form == "ids":
        return None, _tokenised(row)
    if form == "messages":
        turns = [_message(one) for one in row["messages"]]
    elif form == "prompt":
        turns = [_turn("user", row["prompt"]), _turn("assistant", row["completion"])]
    elif form == "instruction":
        turns = _system(row) + _alpaca(row)
    else:
        turns = _system(row)
        turns += [_shared(one) if "from" in one else _message(one) for one in row["conversations"]]
        if row.get("system") and any(turn["role"] == "system" for turn in turns[1:]):
            raise Refused("a system turn beside `system`")
    if not turns:
        raise Refused("a conversation without turns")
    return turns, None


def _turn(role, content):
    if role not in ("system", "user", "assistant") or not isinstance(content, str):
        raise Refused("turns of system, user, assistant with a text as content expected")
    return {"role": role, "content": content}


def _only(one, known):
    for key, value in one.items():
        if key not in known and not (key == "tool_calls" and value in (None, [])):
            raise Refused(f"a turn's key {key} is not supported")


def _message(one):
    _only(one, ("role", "content", "reasoning_content"))
    turn = _turn(one.get("role"), one.get("content"))
    reasoning = one.get("reasoning_content")
    if reasoning is not None:
        if turn["role"] != "assistant" or not isinstance(reasoning, str):
            raise Refused("reasoning_content is a text of the assistant's")
        turn["reasoning_content"] = reasoning
    return turn


def _shared(one):
    _only(one, ("from", "value"))
    return _turn(ROLES.get(one["from"]), one.get("value"))


def _system(row):
    return [_turn("system", row["system"])] if row.get("system") else []


def _alpaca(row):
    if row.get("history"):
        raise Refused("history is not supported")
    asked = [_turn("user", text)["content"] for text in (row["instruction"], row.get("input") or "")]
    return [_turn("user", "\n\n".join(text for text in asked if text)), _turn("assistant", row.get("output"))]


def _tokenised(row):
    ids, marks = row.get("ids"), row.get("targets")
    good = isinstance(ids, list) and isinstance(marks, list) and len(ids) == len(marks) > 0
    if not good or any(type(i) is not int or i < 0 for i in ids) or any(m not in (0, 1) for m in marks):
        raise Refused("ids and as many targets, 0 or 1, expected")
    return ids, marks
