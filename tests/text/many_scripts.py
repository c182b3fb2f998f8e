"""Random strings of many scripts, added tokens and pre-tokenisers for tests of tokenizers, and calls of build/text_tool."""
import os
import struct
import subprocess

PATTERNS = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "nanochat": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "gpt2-split": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}
RANGES = [(0x20, 0x7E), (0x41, 0x5A), (0x61, 0x7A), (0xA1, 0xFF), (0x100, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF),
          (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F), (0xF00, 0xFDA),
          (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x20A0, 0x20BF), (0x2100, 0x218F),
          (0x2460, 0x24FF), (0x3040, 0x30FF), (0x3130, 0x318F), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF),
          (0xFB00, 0xFDFF), (0xFF00, 0xFFEF), (0x10400, 0x1044F), (0x1D400, 0x1D7FF), (0x1F300, 0x1F6FF), (0x20000, 0x2A6DF)]
MARKS = [c for c in range(0x300, 0x370)] + [0x93C, 0x94D, 0x5B0, 0x64B, 0xE38, 0x3099, 0x309A, 0x20D0, 0x1D165, 0x200D, 0xFE0F]
DIGITS = "0123456789٠١٢٣४५६²³½¼ⅧⅣ①㊿𝟗０９༣"
SPACES = " \t\n\r\v\f\u0085\u00a0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000   \n\n\r\n"
PIECES = ["'s", "'S", "'t", "'T", "'re", "'rE", "'ve", "'VE", "'m", "'M", "'ll", "'LL", "'lL", "'d", "'D", "'ſ", "'ﬆ", "'x", "' s",
          "don't", "I'll", "DON'T", "we've", "\r\n", "\n\n", "  ", " \n ", "\t\t", "\u200b", "\x00", "\x01\x1b", "<", ">", "<|", "|>",
          "<|im_start|>", "<|im_end|>", "<image>", "<mask>", "<|im_", "start|>", "<image", "word", "words", "aword", " word ", "<a><b>",
          "<a>", "<b>", "tok", "token", "é", "e\u0301", "\u1100\u1161\u11a8", "\uac00\u11a8", "😀", "👩‍👩‍👧‍👦", "🇫🇷🇩🇪", "👍🏽", "❤️",
          "http://example.org/a?b=c&d=%20", "def f(x):\n    return x**2", "1,234.56", "2024-07-19", "日本語", "한국어", "مرحبا", "नमस्ते",
          "The quick brown fox", "aaaaaaaa", "==" * 9, "-" * 30, "a" * 70, "\u0301" * 9, "ab" * 40, "中" * 25]
ADDED = [dict(content="<|im_start|>", special=True), dict(content="<|im_end|>", special=True), dict(content="<image>", special=True),
         dict(content="<mask>", special=True, lstrip=True), dict(content="<b>", special=True, rstrip=True, lstrip=True),
         dict(content="<a>", special=False, normalized=False, rstrip=True), dict(content="<a><b>", special=True),
         dict(content="word", special=False, single_word=True, normalized=True), dict(content="tok", special=False, normalized=False),
         dict(content="token", special=False, normalized=False), dict(content="caf\u0065\u0301", special=False, normalized=True),
         dict(content="\n\n\n", special=False, normalized=False)]


def random_string(rng, chars):
    out = []
    for _ in range(rng.choice((0, 1, 1, 2, 3, 4, 6, 8, 12, 20))):
        kind = rng.random()
        if kind < 0.30:
            row = rng.choice(chars)
            out += rng.choices(row, k=rng.choice((1, 1, 2, 3, 5, 9)))
        elif kind < 0.42:
            out.append("".join(rng.choices(SPACES, k=rng.choice((1, 1, 2, 3, 5)))))
        elif kind < 0.52:
            out.append("".join(rng.choices(DIGITS, k=rng.choice((1, 2, 3, 4, 7)))))
        elif kind < 0.80:
            out.append(rng.choice(PIECES))
        elif kind < 0.90:
            out.append(rng.choice(chars[1] + chars[2]) + "".join(map(chr, rng.choices(MARKS, k=rng.choice((1, 1, 2, 4))))))
        elif kind < 0.95:
            out.append(chr(rng.choice((*range(32), 0x7F, 0x80, 0x9F, 0xAD, 0xFEFF, 0xFFFD, 0xFFFF, 0x10FFFF, 0xE000))))
        else:
            out.append(" " + "".join(rng.choices(chars[2], k=rng.choice((3, 5, 8)))))
    return "".join(out)


def ask(build, tokenizer, frames):
    """Sends each (op, payload) to text_tool and returns one reply for each."""
    data = b"".join(op + struct.pack("<I", len(p)) + p for op, p in frames)
    run = subprocess.run([os.path.join(build, "text_tool"), "serve", tokenizer], input=data, capture_output=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"{tokenizer}: text_tool: {run.stderr.decode(errors='replace')}")
    out, at, replies = run.stdout, 0, []
    while at < len(out):
        n = struct.unpack_from("<i", out, at)[0]
        at += 4
        replies.append(out[at:at + max(n, 0)] if n >= 0 else n)
        at += max(n, 0)
    return replies


def ints(reply):
    return list(struct.unpack(f"<{len(reply) // 4}i", reply)) if isinstance(reply, bytes) else reply
