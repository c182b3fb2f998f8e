#!/usr/bin/env python3
"""Compares core/text with stored results of the `tokenizers` library on 102,000 random strings of many scripts, through every
pre-tokeniser. fuzz_tokenizers.json has one hash for each thousand strings: of the library's ids and of its decoded texts.
The script needs neither the library nor its release. If a hash differs, compare_tokenizers.py (which needs it) shows where.

usage: fuzz_tokenizers.py BUILD          needs the tokenizer of DAVY_SHARED; ends `N passed, N failed`
       fuzz_tokenizers.py BUILD --make   writes the hashes, with the library
"""
import copy
import hashlib
import json
import os
import pathlib
import random
import struct
import sys
import tempfile

import many_scripts
from many_scripts import ADDED, PATTERNS, RANGES, ints

STORED = pathlib.Path(__file__).with_suffix(".json")
TOKENIZER = pathlib.Path(os.environ.get("DAVY_SHARED", "")) / "models" / "smollm2" / "tokenizer.json"
KINDS = ("gpt2", "gpt2-split", "smollm", "qwen2", "llama3", "nanochat")
BLOCK, BLOCKS = 1000, 17


def tokenizer(kind):
    """The 49,152 tokens and their merges with another pre-tokeniser, and with added tokens that are difficult to match."""
    data = copy.deepcopy(json.loads(TOKENIZER.read_text()))
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": kind in ("gpt2", "smollm")}
    first = [{"type": "Digits", "individual_digits": True}] if kind == "smollm" else \
        [] if kind == "gpt2" else [{"type": "Split", "pattern": {"Regex": PATTERNS[kind]}, "behavior": "Isolated", "invert": False}]
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": first + [level]} if first else level
    data["normalizer"] = {"type": "NFC"} if kind == "qwen2" else None
    data["model"]["ignore_merges"] = kind == "llama3"
    known = {t["content"] for t in data["added_tokens"]} | set(data["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for token in (t for t in ADDED if t["content"] not in known):
        at = max(len(data["model"]["vocab"]), 1 + max(t["id"] for t in data["added_tokens"]))
        data["added_tokens"].append({"id": at, **flags, **token})
    return data


def pool(stored):
    """Characters by script, except characters that the library's form C lacked when the hashes were made."""
    left_out = set(stored["left_out"])
    return [[chr(c) for c in range(a, b + 1) if c not in left_out] for a, b in RANGES]


def blocks(kind, chars):
    rng = random.Random("davy " + kind)
    for _ in range(BLOCKS):
        yield [many_scripts.random_string(rng, chars) for _ in range(BLOCK)]


def digest(*lists):
    return hashlib.sha256(json.dumps(lists).encode()).hexdigest()[:16]


def make():
    import unicodedata

    import tokenizers
    nfc = tokenizers.normalizers.NFC()

    def newer(c):
        return unicodedata.category(c) in ("Cn", "Cs", "Co") or any(
            nfc.normalize_str(t + c) != unicodedata.normalize("NFC", t + c) for t in ("a", "a\u0327", "a\u0345"))

    stored = {"library": tokenizers.__version__, "unicode": unicodedata.unidata_version,
              "left_out": [c for a, b in RANGES for c in range(a, b + 1) if newer(chr(c))], "hashes": {}}
    chars = pool(stored)
    for kind in KINDS:
        t = tokenizers.Tokenizer.from_str(json.dumps(tokenizer(kind)))
        rows = []
        for strings in blocks(kind, chars):
            ids = [e.ids for e in t.encode_batch(strings, add_special_tokens=False)]
            rows.append([digest(strings), digest(ids, t.decode_batch(ids, skip_special_tokens=False))])
        stored["hashes"][kind] = rows
    STORED.write_text(json.dumps(stored, separators=(",", ":")).replace("]],", "]],\n") + "\n")


def main(build):
    if not TOKENIZER.exists():
        print("skipped: no tokenizer in DAVY_SHARED\n0 passed, 0 failed, 1 skipped")
        return 0
    stored = json.loads(STORED.read_text())
    chars, passed, failed = pool(stored), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            path = os.path.join(folder, kind + ".json")
            pathlib.Path(path).write_text(json.dumps(tokenizer(kind)))
            for n, (strings, want) in enumerate(zip(blocks(kind, chars), stored["hashes"][kind], strict=True)):
                ids = [ints(r) for r in many_scripts.ask(build, path, [(b"e", s.encode()) for s in strings])]
                frames = [struct.pack(f"<{len(x)}i", *x) for x in ids]
                texts = [t.decode() for t in many_scripts.ask(build, path, [(b"d", f) for f in frames])]
                streamed = [t.decode() for t in many_scripts.ask(build, path, [(b"t", f) for f in frames])]
                for holds, what in ((digest(strings) == want[0], "this Python version draws other strings"),
                                    (digest(ids, texts) == want[1], "tokens or texts differ from the library's"),
                                    (streamed == texts, "the streamed text differs")):
                    passed, failed = passed + holds, failed + (not holds)
                    if not holds:
                        print(f"FAIL {kind}, strings {n * BLOCK} to {(n + 1) * BLOCK}: {what}")
            print(f"{kind}: {BLOCKS * BLOCK} strings", flush=True)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(make() if sys.argv[2:] == ["--make"] else main(sys.argv[1]))
