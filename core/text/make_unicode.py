#!/usr/bin/env python3
"""Writes unicode_data.c: character classes and the tables of normalisation form C, from Python's Unicode data.

usage: make_unicode.py [OUT]          (re)writes the table, default: unicode_data.c beside this script
       make_unicode.py --check FILE   exit 0: FILE equals this script's output; 1: it differs; 77: no Unicode 16.0 data

The table is made from Unicode 16.0: Python 3.14's unicodedata, or the package unicodedata2 of that version. The
`tokenizers` library (0.23) uses the letters and numbers of that version.
"""
import os
import sys

VERSION = "16.0.0"
BLOCK = 128
LETTER, NUMBER, SPACE, WORD, NOT_NFC = 1, 2, 4, 8, 16

WHITE_SPACE = [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
# Alphabetic symbols (Other_Alphabetic outside of marks) and Join_Control: the characters of \w that no category covers.
OTHER_WORD = [*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A), *range(0x1F170, 0x1F18A), 0x200C, 0x200D]


def unicode_data():
    import unicodedata
    if unicodedata.unidata_version == VERSION:
        return unicodedata
    try:
        import unicodedata2
    except ImportError:
        return None
    return unicodedata2 if unicodedata2.unidata_version == VERSION else None


def points():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def is_hangul(c):
    return 0xAC00 <= c < 0xAC00 + 11172


def canonical(ucd, c):
    """The one or two code points of the canonical decomposition (one step), or None."""
    text = ucd.decomposition(chr(c))
    return None if not text or text.startswith("<") else [int(x, 16) for x in text.split()]


def compositions(ucd):
    """{(first, second): composed}: decompositions that NFC composes again."""
    out = {}
    for c in points():
        parts = canonical(ucd, c)
        if parts and len(parts) == 2 and ucd.normalize("NFC", chr(c)) == chr(c):
            out[tuple(parts)] = c
    return out


def classes(ucd, pairs):
    """One byte for each code point. NOT_NFC: NFC may change it or its neighbours (quick check not Yes, or a mark)."""
    table = bytearray(0x110000)
    spaces, words = set(WHITE_SPACE), set(OTHER_WORD)
    seconds = {b for _, b in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for c in points():
        kind = ucd.category(chr(c))
        v = LETTER if kind[0] == "L" else NUMBER if kind[0] == "N" else SPACE if c in spaces else 0
        if kind[0] in "LM" or kind in ("Nd", "Nl", "Pc") or c in words:
            v |= WORD
        if c in seconds or ucd.combining(chr(c)) or ucd.normalize("NFC", chr(c)) != chr(c):
            v |= NOT_NFC
        table[c] = v
    return table


def two_levels(flat):
    """(index of each block of BLOCK entries, the distinct blocks one after another)"""
    index, blocks, seen = [], [], {}
    for at in range(0, len(flat), BLOCK):
        block = tuple(flat[at:at + BLOCK])
        if block not in seen:
            seen[block] = len(seen)
            blocks += block
        index.append(seen[block])
    return index, blocks


def mark_ranges(ucd):
    out = []
    for c in points():
        ccc = ucd.combining(chr(c))
        if ccc and out and out[-1][1] == c - 1 and out[-1][2] == ccc:
            out[-1][1] = c
        elif ccc:
            out.append([c, c, ccc])
    return [x for r in out for x in r]


def full(ucd, c):
    parts = canonical(ucd, c)
    if not parts:
        return [c]
    return [x for p in parts for x in full(ucd, p)]


def array(kind, name, values, fmt="{}"):
    lines, line = [], "   "
    for v in values:
        word = " " + fmt.format(v) + ","
        if len(line) + len(word) > 120:
            lines.append(line)
            line = "   "
        line += word
    return f"const {kind} {name}[{len(values)}] = {{\n" + "\n".join(lines + [line]) + "\n};\n"


def generate(ucd):
    pairs = compositions(ucd)
    class_index, class_blocks = two_levels(classes(ucd, pairs))
    marks = mark_ranges(ucd)
    keys, starts, parts = [], [0], []
    for c in points():
        if canonical(ucd, c) and not is_hangul(c):
            keys.append(c)
            parts += full(ucd, c)
            starts.append(len(parts))
    flat = [x for (a, b), c in sorted(pairs.items()) if not is_hangul(c) for x in (a, b, c)]
    assert max(class_index) < 256
    return "\n".join([
        f"/* unicode_data.c - written by make_unicode.py from Unicode {VERSION}; not to be edited. The data come from\n"
        " * the Unicode Character Database, Copyright (C) 2016-2024 Unicode, Inc.; unicode-license.txt. */",
        '#include "core/text/unicode_data.h"\n',
        "/* clang-format off */",
        array("uint8_t", "dv_uc_class_index", class_index),
        array("uint8_t", "dv_uc_class_blocks", class_blocks),
        "/* first, last, canonical combining class; sorted. Class 0 is left out. */",
        f"const uint32_t dv_uc_mark_ranges = {len(marks) // 3};",
        array("uint32_t", "dv_uc_marks", marks, "0x{:x}"),
        "/* Sorted code points; parts [start[i], start[i + 1]) are the full canonical decomposition of the i-th. */",
        f"const uint32_t dv_uc_decompositions = {len(keys)};",
        array("uint32_t", "dv_uc_decomposed", keys, "0x{:x}"),
        array("uint16_t", "dv_uc_part_start", starts),
        array("uint32_t", "dv_uc_parts", parts, "0x{:x}"),
        "/* first, second, composed; sorted. */",
        f"const uint32_t dv_uc_compositions = {len(flat) // 3};",
        array("uint32_t", "dv_uc_composed", flat, "0x{:x}"),
        "/* clang-format on */\n"])


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    check = len(sys.argv) > 2 and sys.argv[1] == "--check"
    path = sys.argv[-1] if len(sys.argv) > 1 else os.path.join(here, "unicode_data.c")
    ucd = unicode_data()
    if ucd is None:
        print(f"needs Unicode {VERSION}: Python 3.14, or pip install unicodedata2=={VERSION}", file=sys.stderr)
        return 77
    text = generate(ucd)
    if check:
        with open(path, encoding="ascii") as f:
            return 0 if f.read() == text else 1
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
