#!/usr/bin/env python3
"""Writes nfc_unknown.hpp: code points that matter to NFC today and that Hugging Face tokenizers' NFC does not know.

    python3 -m venv VENV && VENV/bin/pip install tokenizers unicodedata2
    VENV/bin/python io/text/make_nfc_unknown.py [--check]

The library's tables are those of an older Unicode version; a code point assigned since then is to it a starter (class 0)
that decomposes into nothing and composes with nothing. Which ones is found by asking the library itself: every code point
that the newest Unicode (unicodedata2) gives a combining class or a canonical decomposition is put where knowing it would
change the text; the halves of such a decomposition belong to it. --check compares with the file instead of writing it.
"""

import argparse
import pathlib
import sys

import tokenizers
import unicodedata2 as unicode
from tokenizers import normalizers

FILE = pathlib.Path(__file__).with_name("nfc_unknown.hpp")
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str


def canonical(c):
    """The code points that c is made of; none where it is not made of others."""
    parts = unicode.decomposition(chr(c)).split()
    return [] if not parts or parts[0].startswith("<") else [int(part, 16) for part in parts]


def is_known(c):
    # One mark of every order class around it: a known class moves behind the smaller and before the larger one.
    mark = chr(c)
    if unicode.combining(mark):
        low, high = "\u0334", "\u0345"  # classes 1 and 240
        probe = f"a{high}{mark}{low}"
        return NFD(probe) == unicode.normalize("NFD", probe)
    parts = canonical(c)
    return not parts or NFD(mark) == unicode.normalize("NFD", mark)


def unknown():
    found = {c for c in CODE_POINTS if not is_known(c)}
    # The halves of an unknown composite join today and do not there; one of them is new itself.
    pairs = [(c, canonical(c)) for c in CODE_POINTS if len(canonical(c)) == 2]
    halves = {half for c, pair in pairs if c in found for half in pair if not unicode.combining(chr(half))}
    halves -= {half for c, pair in pairs if c not in found for half in pair}
    assert all(set(pair) & (found | halves) for c, pair in pairs if c in found)
    return sorted(found | halves)


def ranges(points):
    list_ = []
    for c in points:
        if list_ and list_[-1][1] == c - 1:
            list_[-1][1] = c
        else:
            list_.append([c, c])
    return list_


def header(points):
    rows = [f"{{0x{first:04X}, 0x{last:04X}}}" for first, last in ranges(points)]
    lines, line = [], "   "
    for row in rows:
        if len(line) + len(row) + 2 > 108:
            lines.append(line)
            line = "   "
        line += f" {row},"
    lines.append(line)
    table = "\n".join(lines)
    return f"""// Code points that Unicode's newest tables give a part in NFC and the tokenizers library's do not: to it they are
// starters that neither decompose nor compose, and models are trained on what it makes of them. Written by
// make_nfc_unknown.py (tokenizers {tokenizers.__version__}, Unicode {unicode.unidata_version}); {len(points)} code points.
#pragma once

#include <array>

namespace tandem {{

struct CodePointRange {{
  char32_t first, last;
}};

inline constexpr std::array<CodePointRange, {len(rows)}> kNfcUnknown = {{{{
{table}
}}}};

}}  // namespace tandem
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    points = unknown()
    text = header(points)
    print(f"{len(points)} code points in {len(ranges(points))} ranges, from U+{points[0]:04X}")
    if not options.check:
        FILE.write_text(text, encoding="utf-8")
        return 0
    # The versions named in the comment may differ; the table may not.
    good = text.split("#pragma once")[1] == FILE.read_text(encoding="utf-8").split("#pragma once")[1]
    print("as in the file" if good else "not as in the file")
    return not good


if __name__ == "__main__":
    sys.exit(main())
