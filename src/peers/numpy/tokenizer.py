"""Byte-level BPE as tokenizer.json describes it (SPEC.md, "Ids")."""

import json
import re
import unicodedata

import numpy as np
from keys import Refused


def byte_letters():
    """The byte-level alphabet: printable bytes stand for themselves, the others for 256, 257, ..."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in own]
    return {**{b: chr(b) for b in own}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def touches(span, others):
    return any(span[0] < end and begin < span[1] for begin, end in others)


class Tokenizer:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        model = stored["model"]
        normalizer = (stored.get("normalizer") or {}).get("type")
        if model["type"] != "BPE" or normalizer not in (None, "NFC"):
            raise Refused("tokenizer: byte-level BPE with NFC or no normaliser expected")
        self.nfc = normalizer == "NFC"
        self.vocab = model["vocab"]
        pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
        self.rank = {pair: i for i, pair in enumerate(pairs)}
        self.whole_words = bool(model.get("ignore_merges"))
        self.letters = byte_letters()
        if model.get("unk_token") and any(letter not in self.vocab for letter in self.letters.values()):
            raise Refused("tokenizer: unk_token and bytes without a token")
        self.cache = {}
        self._read_added(stored.get("added_tokens") or [])
        self.split = splitter(stored["pre_tokenizer"])

    def _read_added(self, tokens):
        for token in tokens:
            off = not any(token.get(key) for key in ("lstrip", "rstrip", "single_word"))
            if not off or token.get("normalized", not token.get("special", False)):
                raise Refused(f"added token {token['content']}: only as it stands, before normalisation")
        self.added = {token["content"]: token["id"] for token in tokens}
        longest_first = sorted(self.added, key=len, reverse=True)
        self.added_pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def control_tokens(self, text, supplied):
        """Added tokens that touch what the row supplied."""
        found = self.added_pattern.finditer(text)
        return [m.group() for m in found if touches(m.span(), supplied)]

    def _cuts(self, text, plain):
        at = 0
        while match := self.added_pattern.search(text, at):
            if touches(match.span(), plain):
                at = match.start() + 1
            else:
                yield match
                at = match.end()

    def _merge(self, word):
        """Ids and first bytes of one piece, spelled in the byte-level alphabet."""
        if word not in self.cache:
            parts = [(letter, i) for i, letter in enumerate(word) if letter in self.vocab]
            if self.whole_words and word in self.vocab:
                parts = [(word, 0)]
            while True:
                ranks = [self.rank.get((a, b)) for (a, _), (b, _) in zip(parts, parts[1:])]
                known = [rank for rank in ranks if rank is not None]
                if not known:
                    break
                i = ranks.index(min(known))
                parts[i:i + 2] = [(parts[i][0] + parts[i + 1][0], parts[i][1])]
            self.cache[word] = [(self.vocab[part], begin) for part, begin in parts]
        return self.cache[word]

    def encode(self, text, spans, plain):
        """ids and target marks; in the spans `plain` no added token is cut out."""
        ids, marks, at = [], [], 0
        for match in [*self._cuts(text, plain), None]:
            end = match.start() if match else len(text)
            if end > at:
                self._encode_stretch(text, at, end, spans, ids, marks)
            if match:
                ids.append(self.added[match.group()])
                marks.append(touches((match.start(), match.start() + 1), spans))
                at = match.end()
        return np.array(ids, np.int32), np.array(marks, np.uint8)

    def _encode_stretch(self, text, at, end, spans, ids, marks):
        # Edges of spans stand behind a newline or an added token: what is between is normalised apart.
        edges = sorted({edge for span in spans for edge in span if at < edge < end})
        points = [at, *edges, end]
        parts = [text[a:b] for a, b in zip(points, points[1:])]
        if self.nfc:
            parts = [unicodedata.normalize("NFC", part) for part in parts]
            if "".join(parts) != unicodedata.normalize("NFC", text[at:end]):
                raise Refused("a target's edge composes with what stands before it")
        mark = [touches((a, a + 1), spans) for a, part in zip(points, parts) for _ in part.encode()]
        first = 0
        for word in self.split("".join(parts)):
            spelled = "".join(self.letters[byte] for byte in word.encode())
            for token, begin in self._merge(spelled):
                ids.append(token)
                marks.append(mark[first + begin])
            first += len(spelled)


def splitter(pre_tokenizer):
    """text -> pieces."""
    steps = pre_tokenizer["pretokenizers"] if pre_tokenizer["type"] == "Sequence" else [pre_tokenizer]
    patterns = []
    for step in steps:
        if step["type"] == "Split" and step["behavior"] == "Isolated" and not step["invert"]:
            patterns.append(step["pattern"]["Regex"])
        elif step["type"] != "ByteLevel" or step.get("add_prefix_space", True) or step.get("use_regex", True):
            raise Refused(f"pre-tokenizer {step}")
    if not patterns:
        return lambda text: [text]
    try:
        import regex  # Python's own knows no \p{L}
    except ImportError:
        raise Refused("this tokenizer cuts by a regular expression: install the module regex") from None
    compiled = [regex.compile(pattern) for pattern in patterns]

    def split(text):
        pieces = [text]
        for cut in compiled:
            pieces = [piece for whole in pieces for piece in _cut(cut, whole)]
        return pieces

    return split


def _cut(cut, text):
    pieces, at = [], 0
    for match in cut.finditer(text):
        pieces += [text[at:match.start()], match.group()]
        at = match.end()
    return [piece for piece in [*pieces, text[at:]] if piece]
