"""Files of rows as samples: token ids and target marks."""

from dataclasses import dataclass

import numpy as np
from chat_template import render
from keys import Refused, sha256
from rows import read_row


@dataclass
class Sample:
    ids: np.ndarray  # int32
    targets: np.ndarray  # uint8, one mark a token

    @property
    def digest(self):
        return sha256(self.ids.astype("<i4").tobytes() + self.targets.astype("u1").tobytes())

    @property
    def scored(self):
        """Positions p >= 1 with a mark."""
        p = np.flatnonzero(self.targets)
        return p[p >= 1]


def _encode(line, tokenizer, keys):
    """(ids, marks, control tokens in the row's texts)."""
    turns, tokenised = read_row(line)
    if tokenised:
        return np.array(tokenised[0], np.int32), np.array(tokenised[1], np.uint8), []
    text, spans, supplied = render(turns, keys["data.targets"])
    control = tokenizer.control_tokens(text, supplied)
    if control and keys["data.special_in_text"] == "refuse":
        raise Refused(f"control tokens in the text: {control}")
    plain = supplied if keys["data.special_in_text"] == "plain" else ()
    return *tokenizer.encode(text, spans, plain), control


def read_samples(path, tokenizer, keys, vocab_size):
    """(samples, counts of what was left out or looked at)."""
    samples, counts = [], {"truncated": 0, "dropped": 0, "with control tokens": 0}
    most = keys["data.max_tokens"]
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if not line.strip(" \t\r\n"):
                continue
            try:
                ids, marks, control = _encode(line, tokenizer, keys)
            except (Refused, ValueError, KeyError, TypeError) as error:
                raise Refused(f"{path}:{number}: {error}") from error
            counts["with control tokens"] += bool(control)
            if ids.size and ids.max() >= vocab_size:
                raise Refused(f"{path}:{number}: token id beyond the vocabulary")
            if len(ids) > most:
                counts["dropped" if keys["data.truncate"] == "drop" else "truncated"] += 1
                if keys["data.truncate"] == "drop":
                    continue
            samples.append(Sample(ids[:most], marks[:most]))
    if not any(len(sample.scored) for sample in samples):
        raise Refused(f"{path}: no token is scored")
    return samples, counts
