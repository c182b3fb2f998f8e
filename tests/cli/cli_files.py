"""Reads and writes pictures and tensors for the tests of the command line. See cli_run.py.

cli_copy is davy's picture code without a network, so that files can be compared exactly. cli_dump is an independent decoder.
"""
import json
import pathlib
import struct
import subprocess
import zlib

import numpy as np

from cli_run import BUILD, WORK, run

COPY, DUMP = BUILD / "tests/cli_copy", BUILD / "tests/cli_dump"


def copy(src, dst, *more, code=0):
    return run(src, dst, *more, code=code, tool=COPY)


def dump(path):
    raw = WORK / "dump.raw"
    p = subprocess.run([str(DUMP), str(path), str(raw)], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(f"{path} cannot be read: {p.stderr}")
    w, h, c, bits = map(int, p.stdout.split())
    return np.fromfile(raw, np.uint16 if bits == 16 else np.uint8).reshape(h, w, c)


def png_chunks(data):
    at = 8
    while at + 12 <= len(data):
        n, = struct.unpack(">I", data[at:at + 4])
        yield data[at + 4:at + 8].decode(), data[at + 8:at + 8 + n]
        at += 12 + n


def icc_of(path):
    """The ICC profile of a PNG, JPEG or WebP, or None."""
    data = pathlib.Path(path).read_bytes()
    if data[:4] == b"\x89PNG":
        for t, b in png_chunks(data):
            if t == "iCCP":
                return zlib.decompress(b[b.index(b"\0") + 2:])
    elif data[:2] == b"\xff\xd8":
        parts, at = [], 2
        while data[at] == 0xFF and data[at + 1] != 0xDA:
            n, = struct.unpack(">H", data[at + 2:at + 4])
            body = data[at + 4:at + 2 + n]
            if data[at + 1] == 0xE2 and body.startswith(b"ICC_PROFILE\0"):
                parts.append((body[12], body[14:]))
            at += 2 + n
        return b"".join(b for _, b in sorted(parts)) if parts else None
    else:
        at = 12
        while at + 8 <= len(data):
            n, = struct.unpack("<I", data[at + 4:at + 8])
            if data[at:at + 4] == b"ICCP":
                return data[at + 8:at + 8 + n]
            at += 8 + n + n % 2
    return None


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def write_png(path, w, h, depth, colour, rows, extra=()):
    """rows: the bytes of each row, packed for the depth."""
    body = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, 0))
    for name, b in extra:
        body += chunk(name, b)
    body += chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) + chunk(b"IEND", b"")
    pathlib.Path(path).write_bytes(body)


def safetensors(path):
    data = pathlib.Path(path).read_bytes()
    n, = struct.unpack("<Q", data[:8])
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        a, b = t["data_offsets"]
        out[name] = np.frombuffer(data[8 + n + a:8 + n + b], "<f4").reshape(t["shape"])
    return out


def write_safetensors(path, **arrays):
    header, at, body = {}, 0, b""
    for name, a in arrays.items():
        b = a.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [at, at + len(b)]}
        at, body = at + len(b), body + b
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def profile(space, size):
    """Bytes with the header of an ICC profile of this colour space."""
    return struct.pack(">I", size) + b"davy" + b"\2\x10\0\0mntr" + space + b"XYZ " + bytes(i * 7 % 251 for i in range(size - 24))


def with_icc(src, dst, icc):
    """A JPEG with a profile in APP2 segments of up to 65,519 bytes."""
    data = pathlib.Path(src).read_bytes()
    parts = [icc[i:i + 65519] for i in range(0, len(icc), 65519)]
    segments = b"".join(b"\xff\xe2" + struct.pack(">H", 16 + len(p)) + b"ICC_PROFILE\0" + bytes([i + 1, len(parts)]) + p
                        for i, p in enumerate(parts))
    pathlib.Path(dst).write_bytes(data[:2] + segments + data[2:])


def difference(a, b):
    return float(np.mean(np.abs(a.astype(np.float64) - b.astype(np.float64))))


def shrunk(a, f):
    """The mean of each block of f x f pixels."""
    h, w, c = a.shape
    return a.reshape(h // f, f, w // f, f, c).astype(np.float64).mean((1, 3))
