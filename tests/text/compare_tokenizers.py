#!/usr/bin/env python3
"""Compares core/text with the `tokenizers` library, token for token, on random strings of many scripts. It compares
SentencePiece's own files with the library `sentencepiece`.

usage: compare_tokenizers.py BUILD [COUNT [SEED]]

Each kind of tokenizer gets COUNT strings (default 4000). The script trains a small tokenizer for every pre-tokeniser, and
adds those of DAVY_SHARED if that folder exists. Without the library it prints one line "skipped". Ends `N passed, N failed`.
"""
import json
import os
import random
import struct
import sys
import tempfile
import unicodedata

import many_scripts
from many_scripts import ADDED, PATTERNS, RANGES, ints, random_string

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 4000
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
SHARED = os.environ.get("DAVY_SHARED", "")
SOURCE = os.environ.get("DAVY_SOURCE", ".")

try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError:
    print("skipped: the Python package tokenizers is not installed")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

passed = failed = 0


def check(holds, what):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    if not holds:
        print("FAIL", what)


def check_same(what, asked, got, want):
    """One check for a whole list of results: it equals the expected list."""
    wrong = [f"{a!r}: {g}, wanted {w}" for a, g, w in zip(asked, got, want) if g != w]
    check(len(got) == len(want) and not wrong, f"{what}: {len(got)} replies to {len(want)}, {len(wrong)} wrong" + "".join("\n  " + w for w in wrong[:10]))


def pool():
    """Assigned characters whose marks both sides support (the library's form C has Unicode 9)."""
    nfc = normalizers.NFC()
    chars, left_out = [], 0
    for a, b in RANGES:
        row = []
        for c in map(chr, range(a, b + 1)):
            if unicodedata.category(c) in ("Cn", "Cs", "Co"):
                continue
            if any(nfc.normalize_str(t + c) != unicodedata.normalize("NFC", t + c) for t in ("a", "a\u0327", "a\u0345")):
                left_out += 1
                continue
            row.append(c)
        chars.append(row)
    return chars, left_out


def train(kind, folder, corpus):
    """Writes folder/tokenizer.json with the pre-tokeniser of that kind."""
    t = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind in ("gpt2", "smollm"))
    first = [pre_tokenizers.Digits(individual_digits=True)] if kind == "smollm" else \
        [] if kind == "gpt2" else [pre_tokenizers.Split(Regex(PATTERNS[kind]), "isolated")]
    t.pre_tokenizer = pre_tokenizers.Sequence(first + [level]) if first else level
    t.normalizer = normalizers.NFC() if kind == "qwen2" else None
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=3000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"]))
    path = os.path.join(folder, "tokenizer.json")
    data = json.loads(t.to_str())
    model = data["model"]
    if kind == "llama3":  # tokens that no merges lead to
        for word in sorted({w for line in corpus for w in line.split() if w.isascii() and w.isalpha() and len(w) > 6})[:300]:
            model["vocab"].setdefault("Ġ" + word, len(model["vocab"]))
    if kind in ("gpt2-split", "nanochat"):  # some bytes are missing in the vocabulary: they are dropped, or unknown
        merged = {p for m in model["merges"] for p in m}
        for c in [c for c in model["vocab"] if len(c) == 1 and c not in merged]:
            model["vocab"][f"unused {ord(c)}"] = model["vocab"].pop(c)
        model["unk_token"] = "<|endoftext|>" if kind == "nanochat" else None
        model["fuse_unk"] = kind == "nanochat"
    t = Tokenizer.from_str(json.dumps(data))
    t.add_tokens([AddedToken(**{"normalized": False, **a}) for a in ADDED])
    if kind == "llama3":
        t.post_processor = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", t.token_to_id("<|im_start|>"))])
    data = json.loads(t.to_str())
    if kind == "gpt2":  # merges as strings, the form of older files
        data["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]
    with open(path, "w", encoding="utf-8") as f:
        json.dump(data, f, ensure_ascii=kind == "gpt2")
    return folder


def train_spaces(kind, folder, corpus):
    """Llama 2's form: "prepend", "first", "always", "split". Most characters have no token and become bytes."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.train_from_iterator([s.replace("\0", "") for s in corpus], trainers.BpeTrainer(vocab_size=2500, limit_alphabet=400, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"]))
    data = json.loads(t.to_str())
    model = data["model"]
    ids = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"<0x{b:02X}>": b + 3 for b in range(256)}}
    for name, _ in sorted(model["vocab"].items(), key=lambda x: x[1]):
        ids.setdefault(name, len(ids))
    model.update(vocab=ids, unk_token="<unk>", fuse_unk=True, byte_fallback=kind != "always")
    ends = [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    data["added_tokens"] = []
    t = Tokenizer.from_str(json.dumps(data))
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " ")] + ends)
    if kind == "prepend":
        t.pre_tokenizer = None
        t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if kind == "first" else "always", split=kind == "split")
    t.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    t.add_tokens([AddedToken(**{"normalized": False, **a}) for a in ADDED])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    t.save(os.path.join(folder, "tokenizer.json"))
    return folder


def gguf(path, values):
    """A file with metadata only: strings, integers, booleans, lists of strings, floats or integers."""
    def text(s):
        raw = s if isinstance(s, bytes) else s.encode()
        return struct.pack("<Q", len(raw)) + raw

    def value(v):
        if isinstance(v, str):
            return 8, text(v)
        if isinstance(v, bool):
            return 7, struct.pack("<?", v)
        if isinstance(v, int):
            return 4, struct.pack("<I", v)
        kind = {str: 8, float: 6, int: 5}[type(v[0])]
        items = [text(x) if kind == 8 else struct.pack("<f" if kind == 6 else "<i", x) for x in v]
        return 9, struct.pack("<IQ", kind, len(v)) + b"".join(items)

    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values))
    for key, v in values.items():
        kind, data = value(v)
        out += text(key) + struct.pack("<I", kind) + data
    open(path, "wb").write(out)
    return path


def compare_pieces(folder, corpus, strings, rng):
    try:
        import sentencepiece
    except ImportError:
        print("skipped: the Python package sentencepiece is not installed")
        return
    lines = os.path.join(folder, "corpus.txt")
    open(lines, "w", encoding="utf-8").write("\n".join("".join(c for c in s if " " <= c < "\u0180") for s in corpus))
    for name, more in (("bytes", dict(byte_fallback=True)), ("unknown", dict(add_dummy_prefix=False)),
                       ("user", dict(byte_fallback=True, user_defined_symbols=["<mask>", "token", "\u2581\u2581\u2581", "ab"]))):
        stem = os.path.join(folder, name)
        sentencepiece.SentencePieceTrainer.train(
            input=lines, model_prefix=stem, model_type="bpe", vocab_size=2000, character_coverage=0.98, minloglevel=2,
            normalization_rule_name="identity", remove_extra_whitespaces=False, **more)
        sp = sentencepiece.SentencePieceProcessor(model_file=stem + ".model")
        n = sp.get_piece_size()
        kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in range(n)]
        kinds = [4 if sp.id_to_piece(i) in more.get("user_defined_symbols", []) else k for i, k in enumerate(kinds)]
        also = gguf(stem + ".gguf", {"general.architecture": "llama", "tokenizer.ggml.model": "llama",
                                     "tokenizer.ggml.tokens": [sp.id_to_piece(i) for i in range(n)],
                                     "tokenizer.ggml.scores": [sp.get_score(i) for i in range(n)],
                                     "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.bos_token_id": 1,
                                     "tokenizer.ggml.eos_token_id": 2,
                                     "tokenizer.ggml.add_space_prefix": more.get("add_dummy_prefix", True)})
        strings = [s.replace("\0", "") for s in strings]
        want = [sp.encode(s) for s in strings]
        for path in (stem + ".model", also):
            got = [ints(r) for r in ask(path, [(b"p", s.encode()) for s in strings])]
            check_same(f"sentencepiece {name} {path[-5:]}", strings, got, want)
        frames = [struct.pack(f"<{len(x)}i", *x) for x in want]
        texts = [sp.decode(x).replace(" \u2047 ", "<unk>").encode() for x in want]
        for op in (b"d", b"t"):
            check_same(f"sentencepiece {name} {op}", want, ask(stem + ".model", [(op, f) for f in frames]), texts)
        print(f"sentencepiece {name}: {len(strings)} strings")


def ask(tokenizer, frames):
    try:
        return many_scripts.ask(BUILD, tokenizer, frames)
    except RuntimeError as error:
        check(False, error)
        return []


def compare(name, folder, strings, rng, also=None, whole=False):
    """Compares three ways to encode and three ways to decode. `also` (a GGUF file) must give the same ids. whole: decode only
    the ids of whole texts, because the library makes one U+FFFD of each byte of an incomplete character."""
    path = folder if folder.endswith(".json") else os.path.join(folder, "tokenizer.json")
    t = Tokenizer.from_file(path)
    raw = [s.encode() for s in strings]
    for op, special, plain in ((b"e", False, False), (b"p", False, True), (b"s", True, False)):
        t.encode_special_tokens = plain
        want = [e.ids for e in t.encode_batch(strings, add_special_tokens=special)]
        check_same(f"{name} {op}", strings, [ints(r) for r in ask(path, [(op, s) for s in raw])], want)
        if also and op == b"e":
            check_same(f"{name} GGUF", strings, [ints(r) for r in ask(also, [(op, s) for s in raw])], want)
    t.encode_special_tokens = False
    ids = [i for i in range(t.get_vocab_size() + 5) if (t.id_to_token(i) or "").isascii() or i not in t.get_added_tokens_decoder()]
    lists = [rng.choices(ids, k=rng.choice((0, 1, 2, 5, 9, 30))) for _ in range(len(strings) // 4)]
    lists = [e.ids for e in t.encode_batch(strings)] if whole else lists
    frames = [struct.pack(f"<{len(x)}i", *x) for x in lists]
    for op, skip in ((b"d", False), (b"k", True), (b"t", False)):
        want = [w.encode() for w in t.decode_batch(lists, skip_special_tokens=skip)]
        check_same(f"{name} {op}", lists, ask(path, [(op, f) for f in frames]), want)


def main():
    rng = random.Random(SEED)
    chars, left_out = pool()
    print(f"{sum(map(len, chars))} characters; {left_out} left out, whose marks are newer than the library's form C")
    corpus = [line for name in ("README.md", "docs/architecture.md", "CHANGES.md") if os.path.exists(os.path.join(SOURCE, name))
              for line in open(os.path.join(SOURCE, name), encoding="utf-8")] + [random_string(rng, chars) for _ in range(3000)]
    with tempfile.TemporaryDirectory() as temporary:
        for kind in ("gpt2", "gpt2-split", "smollm", "qwen2", "llama3", "nanochat"):
            folder = os.path.join(temporary, kind)
            os.mkdir(folder)
            strings = [random_string(rng, chars) for _ in range(COUNT)]
            compare(kind, train(kind, folder, corpus), strings, rng)
            print(f"{kind}: {len(strings)} strings, {sum(map(len, strings))} characters")
        for kind in ("prepend", "first", "always", "split"):
            folder = os.path.join(temporary, kind)
            os.mkdir(folder)
            strings = [random_string(rng, chars) for _ in range(COUNT)]
            compare("spaces " + kind, train_spaces(kind, folder, corpus), strings, rng, whole=True)
            print(f"spaces {kind}: {len(strings)} strings, {sum(map(len, strings))} characters")
        compare_pieces(temporary, corpus, [random_string(rng, chars) for _ in range(COUNT)], rng)
        models_folder = os.path.join(SHARED, "models")
        for name in ("smollm2", "davy-tiny-vlm"):
            folder = os.path.join(models_folder, name)
            if not os.path.exists(os.path.join(folder, "tokenizer.json")):
                print(f"skipped: no {name} in DAVY_SHARED")
                continue
            also = next((os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f.endswith(".gguf")), None)
            strings = [random_string(rng, chars) for _ in range(COUNT)]
            compare(name, folder, strings, rng, also)
            print(f"{name}: {len(strings)} strings, {sum(map(len, strings))} characters")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


sys.exit(main())
