#!/usr/bin/env python3
"""Counts davy-tiny-vlm's right answers about new pictures, by precision. The script draws coloured shapes, asks about them
with `davy caption`, and compares the answers with the drawing and with the answers in fp32.

    python3 tests/golden/accuracy.py DAVY [MODEL [SCENES [SEED]]]

MODEL (default: DAVY_SHARED's): its folder. fp32 must be above 90 %; int8 may lose one point and int4 five. Needs NumPy only.
Ends `N passed, N failed`."""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zlib

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)

SIDE, FINE = 256, 3
COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (45, 85, 220), "yellow": (240, 215, 40), "black": (15, 15, 15),
           "white": (250, 250, 250), "grey": (128, 128, 128), "purple": (140, 60, 180), "orange": (245, 140, 30), "brown": (125, 75, 35)}
SHAPES = ["circle", "square", "triangle", "star", "diamond", "ring"]
SIZES = {"small": 14, "medium": 23, "large": 34}
PLACES = ["at the top left", "at the top", "at the top right", "on the left", "in the centre", "on the right",
          "at the bottom left", "at the bottom", "at the bottom right"]
NUMBERS = ["None", "One", "Two", "Three", "Four", "Five", "Six"]
PRECISIONS = {"fp32": 0.0, "bf16": 1.0, "int8": 1.0, "int4": 5.0}  # points that may be lost


def inside(shape, x, y):
    """Whether points are inside a shape; coordinates are in radii around the middle."""
    r = np.hypot(x, y)
    if shape == "circle":
        return r <= 1
    if shape == "ring":
        return (r <= 1) & (r >= 0.6)
    if shape == "square":
        return np.maximum(abs(x), abs(y)) <= 0.88
    if shape == "diamond":
        return abs(x) + abs(y) <= 1.1
    if shape == "triangle":
        return (y <= 0.8) & (y >= -1 + 1.8 * abs(x))
    fifth = np.pi / 5
    a = np.abs((np.arctan2(x, -y) + fifth) % (2 * fifth) - fifth)
    u, v = r * np.cos(a), r * np.sin(a)
    inner = 0.42
    edge = np.array([inner * np.cos(fifth) - 1, inner * np.sin(fifth)])
    return edge[0] * v - edge[1] * (u - 1) >= 0


def draw(ground, things):
    n = SIDE * FINE
    y, x = np.mgrid[0:n, 0:n] / FINE
    image = np.empty((n, n, 3), np.float32)
    image[:] = COLOURS[ground]
    for t in things:
        image[inside(t["shape"], (x - t["x"]) / t["r"], (y - t["y"]) / t["r"])] = COLOURS[t["colour"]]
    return image.reshape(SIDE, FINE, SIDE, FINE, 3).mean((1, 3)).round().astype(np.uint8)


def png(path, pixels):
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def scene(rng):
    ground = rng.choice(list(COLOURS))
    cells = sorted(rng.sample(range(9), rng.randint(1, 6)))
    things = []
    for cell in cells:
        size = rng.choice(list(SIZES))
        shift = (SIDE / 3 - 2 * SIZES["large"]) / 4
        things.append({"shape": rng.choice(SHAPES), "colour": rng.choice([c for c in COLOURS if c != ground]), "size": size, "cell": cell,
                       "r": SIZES[size], "x": (cell % 3 + 0.5) * SIDE / 3 + rng.uniform(-shift, shift),
                       "y": (cell // 3 + 0.5) * SIDE / 3 + rng.uniform(-shift, shift)})
    return ground, things


def questions(ground, things, rng):
    """Questions about the drawing, with the right answers in the model's words."""
    shape, colour = rng.choice(SHAPES), rng.choice(list(COLOURS))
    one = rng.choice(things)
    there = any(t["shape"] == shape and t["colour"] == colour for t in things)
    article = lambda word: "an " + word if word[0] in "aeiou" else "a " + word
    listed = [f"a {t['size']} {t['colour']} {t['shape']} {PLACES[t['cell']]}" for t in things]
    listed = " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)
    shapes = f"{NUMBERS[len(things)]} shape{'s' if len(things) > 1 else ''}"
    return [
        ("Describe the image.", f"{shapes} on {article(ground)} background: {listed}."),
        ("What colour is the background?", f"{ground.capitalize()}."),
        (f"How many {shape}s are there?", f"{NUMBERS[sum(t['shape'] == shape for t in things)]}."),
        (f"How many {one['colour']} shapes are there?", f"{NUMBERS[sum(t['colour'] == one['colour'] for t in things)]}."),
        (f"Is there a {one['colour']} {one['shape']}?", "Yes."),
        (f"Is there a {colour} {shape}?", "Yes." if there else "No."),
    ]


def answers(davy, model, folder, names, asked, precision):
    """One dialogue for each picture, with every question in turn."""
    out = []
    for name, qs in zip(names, asked):
        more = [x for q, _ in qs[1:] for x in ("--ask", q)]
        command = [davy, "caption", str(folder / name), "--model", model, "--precision", precision, "--device", "cpu", "--max-tiles", "1",
                   "--prompt", qs[0][0], *more, "--json", "--quiet"]
        j = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        out.append([j["text"]] + [t["text"] for t in j["turns"]])
    return out


def main(davy, model=None, scenes="40", seed="1"):
    model = model or os.path.join(os.environ.get("DAVY_SHARED", "../shared"), "models", "davy-tiny-vlm")
    if not os.path.isdir(model):
        print(f"skipped: no {model}\n0 passed, 0 failed, 1 skipped")
        return 0
    rng = random.Random(int(seed))
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        names, asked = [], []
        for i in range(int(scenes)):
            ground, things = scene(rng)
            names.append(f"{i:05}.png")
            asked.append(questions(ground, things, rng))
            png(folder / names[-1], draw(ground, things))
        truth = [[a for _, a in qs] for qs in asked]
        total = sum(map(len, truth))
        told, right = {}, {}
        for precision in PRECISIONS:
            told[precision] = answers(davy, model, folder, names, asked, precision)
            pairs = [(a, t) for row, wanted in zip(told[precision], truth) for a, t in zip(row, wanted)]
            same = sum(a == b for x, y in zip(told[precision], told["fp32"]) for a, b in zip(x, y))
            right[precision] = 100.0 * sum(a == t for a, t in pairs) / total
            print(f"{precision}: {right[precision]:.2f} % of {total} answers right, {100.0 * same / total:.2f} % as in fp32", flush=True)
            for k in range(len(asked[0])):
                share = sum(row[k] == wanted[k] for row, wanted in zip(told[precision], truth)) / len(truth)
                print(f"    {100 * share:6.2f} %  {asked[0][k][0]}")
    bad = [p for p, points in PRECISIONS.items() if right[p] < (right["fp32"] - points if p != "fp32" else 90)]
    print(f"{len(PRECISIONS) - len(bad)} passed, {len(bad)} failed")
    return bool(bad)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
