#!/usr/bin/env python3
"""Compares the Unicode tables of core/text with Python's data, and the table file with its generator's output.

usage: check_unicode.py BUILD

Python's own Unicode data may be older than the table's. The script compares the code points that both have assigned. It
compares the file byte for byte if data of its version are installed. Ends `N passed, N failed`.
"""
import os
import random
import struct
import subprocess
import sys
import unicodedata

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
FOLDER = os.path.join(os.environ.get("DAVY_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")), "core/text")
TOOL = os.path.join(BUILD, "text_tool")
LETTER, NUMBER, SPACE, NOT_NFC = 1, 2, 4, 16
counts = {True: 0, False: 0}
skipped = 0


def check(holds, what):
    counts[bool(holds)] += 1
    if not holds:
        print("FAIL", what)


def check_none(wrong, what):
    check(not wrong, f"{what}: {len(wrong)} wrong, as {wrong[:5]}")


def forms(texts):
    """Form C of each text, by text_tool. It needs a tokenizer; any one is suitable."""
    seed = os.path.join(FOLDER, "../../tests/fuzz/corpus/tokenizer/gpt2.json")
    data = b"".join(b"n" + struct.pack("<I", len(t.encode())) + t.encode() for t in texts)
    out = subprocess.run([TOOL, "serve", seed], input=data, capture_output=True, check=True).stdout
    at = 0
    for _ in texts:
        n = struct.unpack_from("<i", out, at)[0]
        yield out[at + 4:at + 4 + n].decode()
        at += 4 + n


def main():
    global skipped
    run = subprocess.run([sys.executable, "-B", os.path.join(FOLDER, "make_unicode.py"), "--check", os.path.join(FOLDER, "unicode_data.c")],
                         capture_output=True, check=False)
    if run.returncode == 77:
        skipped += 1
        print("skipped: no Unicode data of the table's version are installed")
    else:
        check(run.returncode == 0, "unicode_data.c equals the output of make_unicode.py")

    classes = subprocess.run([TOOL, "classes"], capture_output=True, check=True).stdout
    check(len(classes) == 0x110000, "one class for each code point")
    assigned = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    wrong = []
    for c in assigned:
        kind = unicodedata.category(chr(c))[0]
        space = chr(c).isspace() and not 0x1C <= c <= 0x1F  # Python counts four separators of its own
        want = LETTER if kind == "L" else NUMBER if kind == "N" else SPACE if space else 0
        if classes[c] & 7 != want:
            wrong.append(f"U+{c:04X} is {kind}")
    check_none(wrong, "classes")

    rng = random.Random(1)
    marked = [chr(c) for c in assigned if classes[c] & NOT_NFC]
    starters = [chr(c) for c in assigned if not classes[c] & NOT_NFC]
    texts = [chr(c) for c in assigned] + [unicodedata.normalize("NFD", chr(c)) for c in assigned if unicodedata.decomposition(chr(c)) or 0xAC00 <= c < 0xD7A4]
    for _ in range(30000):
        texts.append("".join(rng.choice(marked if rng.random() < 0.6 else starters) for _ in range(rng.choice((2, 3, 5, 9)))))
    check_none([(t, got) for t, got in zip(texts, forms(texts)) if got != unicodedata.normalize("NFC", t)], "form C")
    print(f"Unicode {unicodedata.unidata_version}: {len(assigned)} code points, {len(texts)} texts")
    print(f"{counts[True]} passed, {counts[False]} failed" + (f", {skipped} skipped" if skipped else ""))
    return counts[False] != 0


sys.exit(main())
