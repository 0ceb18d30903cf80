"""Qwen3's chat template: a conversation's text, its targets, what of it the row supplied (SPEC.md)."""

import json
import os

from keys import Refused


def read_template(folder):
    """The model's own template."""
    path = os.path.join(folder, "chat_template.jinja")
    if os.path.exists(path):
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        template = json.load(file).get("chat_template")
    if isinstance(template, list):
        template = next((one["template"] for one in template if one["name"] == "default"), None)
    return template


def expect_qwen3(name, template):
    """`auto` needs a template that writes turns and think blocks; its digest goes into the file."""
    known = template is not None and "<|im_start|>" in template and "</think>" in template
    if name != "qwen3" and not (name == "auto" and known):
        raise Refused(f"data.template = {name}: only Qwen3's template is known here")


def _last_question(turns):
    question = len(turns) - 1
    for i, turn in enumerate(turns):
        content = turn["content"]
        answers_tool = content.startswith("<tool_response>") and content.endswith("</tool_response>")
        if turn["role"] == "user" and not answers_tool:
            question = i
    return question


def _take_apart(turn):
    """(reasoning, content) of an assistant's turn."""
    said = turn["content"]
    if "reasoning_content" in turn:
        return turn["reasoning_content"], said
    if "</think>" not in said:
        return "", said
    parts = said.split("</think>")
    return parts[0].rstrip("\n").split("<think>")[-1].lstrip("\n"), parts[-1].lstrip("\n")


def render(turns, targets):
    """(text, target spans, spans that the row supplied), all in characters."""
    question = _last_question(turns)
    text, spans, supplied = "", [], []
    for i, turn in enumerate(turns):
        reasoning, said, block = "", turn["content"], ""
        text += f"<|im_start|>{turn['role']}\n"
        if turn["role"] == "assistant":
            reasoning, said = _take_apart(turn)
            if i > question and (i == len(turns) - 1 or reasoning):
                reasoning, said = reasoning.strip("\n"), said.lstrip("\n")
                block = f"<think>\n{reasoning}\n</think>\n\n"
                supplied.append((len(text) + len("<think>\n"), len(text) + len("<think>\n" + reasoning)))
        begin = len(text) if block and reasoning else len(text) + len(block)
        text += block
        supplied.append((len(text), len(text) + len(said)))
        text += said + "<|im_end|>"
        if turn["role"] == "assistant":
            spans.append((begin, len(text)))
        text += "\n"
    return text, spans if targets == "all" else spans[-1:], [(a, b) for a, b in supplied if a < b]
