"""tiles.py - compares tiles with the whole picture, on a photograph, with small published networks.

Networks with a local reach, also with means over the whole picture, give the same picture with any tiles. Networks with a
larger reach differ by at most two steps of 255 if tiles overlap enough. No network differs more at tile edges than elsewhere.

Environment: DAVY_BUILD, DAVY_LIBRARY, DAVY_SOURCE, DAVY_SHARED (optional: real weights). Ends "N passed, N failed, N skipped".
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

BUILD = pathlib.Path(os.environ["DAVY_BUILD"])
SOURCE = pathlib.Path(os.environ.get("DAVY_SOURCE", pathlib.Path(__file__).parents[3]))
SHARED = pathlib.Path(os.environ.get("DAVY_SHARED", SOURCE.parent / "shared"))
sys.path.insert(0, str(SOURCE / "plugins/comfy"))
sys.dont_write_bytecode = True

from davy import abi  # noqa: E402

STEP = 1 / 255
# file or shipped name, whether tiles are exact
NETWORKS = (
    ("davy-live-x2", True),
    ("davy-live-x4", True),
    (SHARED / "models/compact/realesr-general-x4v3.safetensors", True),
    (SHARED / "models/span/2xHFA2kSPAN.safetensors", True),
    (SHARED / "models/realcugan/realcugan-se-up2x-conservative.safetensors", True),
    (SHARED / "models/waifu2x/waifu2x-upcunet-art-scale2x.safetensors", True),
    (SHARED / "models/waifu2x/waifu2x-cunet-art-noise1.safetensors", True),
    (SHARED / "models/rrdb/RealESRGAN_x4plus_anime_6B.safetensors", False),
)
counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(ok, what):
    counts["passed" if ok else "failed"] += 1
    if not ok:
        print("FAIL", what)


def photograph():
    """A part of the shipped photograph, [h, w, 3] in 0..1."""
    with tempfile.NamedTemporaryFile() as raw:
        say = [str(BUILD / "tests/cli_dump"), str(SOURCE / "packaging/examples/cat.png"), raw.name]
        w, h, c, _ = map(int, subprocess.run(say, check=True, capture_output=True, text=True).stdout.split())
        pixels = np.fromfile(raw.name, np.uint8).reshape(h, w, c)
    return np.ascontiguousarray(pixels[60:212, 100:276, :3], np.float32) / np.float32(255)


class Network:
    def __init__(self, lib, ctx, where):
        source = abi.Source(name=where.encode()) if isinstance(where, str) else abi.Source(path=str(where).encode())
        self.lib, self.model = lib, abi.Handle()
        desc = abi.ModelDesc(sources=ctypes.pointer(source), n_sources=1)
        lib.check(lib.api.model_open(ctx, abi.ref(desc), abi.ref(self.model)))
        self.info = abi.ModelInfo()
        lib.check(lib.api.model_info(self.model, abi.ref(self.info)))

    def upscale(self, x, tile, overlap=0):
        """Returns the result, not clamped, and the number of tiles."""
        scale = self.info.scale_num // self.info.scale_den
        y = np.empty((x.shape[0] * scale, x.shape[1] * scale, 3), np.float32)
        run = abi.Run(tile_width=tile, tile_height=tile, tile_overlap=overlap)
        plan = abi.PlanInfo()
        tensors = [
            abi.Tensor(dtype=abi.Dtype.F32, layout=abi.Layout.HWC, range=abi.Range.RAW, ndim=3, data=a.ctypes.data,
                       shape=(*a.shape, 0, 0, 0)) for a in (x, y)]
        query = abi.Query(op=abi.Op.UPSCALE, input=ctypes.pointer(tensors[0]), run=ctypes.pointer(run))
        self.lib.check(self.lib.api.plan_query(self.model, abi.ref(query), abi.ref(plan)))
        self.lib.check(self.lib.api.upscale(self.model, abi.ref(tensors[0]), abi.ref(tensors[1]), abi.ref(run), None))
        return y, plan.tiles_x * plan.tiles_y

    def close(self):
        self.lib.api.model_release(self.model)


def one(network, name, exact, x):
    check(bool(network.info.features & abi.ModelFeature.TILES_EXACT) == exact, f"{name}: exact tiles: {not exact}")
    whole, n = network.upscale(x, -1)
    check(n == 1, f"{name}: -1 is one tile")
    for tile, overlap in ((96, 0),) if exact else ((96, 24), (112, 64), (140, 96)):
        y, n = network.upscale(x, tile, overlap)
        d = np.abs(y - whole)
        bound = 2e-5 if exact else 2 * STEP if overlap >= 96 else STEP * 32  # 96: the automatic overlap
        shown = f"{name}, tiles of {tile}, {overlap} shared ({n}): at most {d.max() / STEP:.4f}/255, mean {d.mean() / STEP:.5f}/255"
        print(" ", shown)
        check(n > 1, f"{name}: tiles of {tile}: {n}")
        check(d.max() <= bound, shown)
    # a seam is a step between neighbours that the whole picture does not have
    for axis in 0, 1:
        jump = np.abs(np.diff(y, axis=axis)).mean(axis=(1 - axis, 2)) - np.abs(np.diff(whole, axis=axis)).mean(axis=(1 - axis, 2))
        check(np.abs(jump).max() < 0.25 * STEP, f"{name}: a seam along axis {axis}: {np.abs(jump).max() / STEP:.3f}/255")


def told():
    """If tiles change the result, the library reports it, as for encoders with a norm over the picture. Tiles that share the
    picture's means do not change it."""
    cugan = SHARED / "models/realcugan/realcugan-se-up2x-conservative.safetensors"
    encoder = SHARED / "models/tae/taef2_encoder.safetensors"
    picture = str(SOURCE / "packaging/examples/cat.png")
    with tempfile.TemporaryDirectory() as folder:
        upscale, encode = ["upscale", picture, "-o", folder + "/x.png"], ["encode", picture, "-o", folder + "/x.safetensors", "--crop"]
        for what, model, tile, says in (
            (encode, encoder, "160", True),
            (encode, encoder, "none", False),
            (upscale, cugan, "200", False),
            (upscale, None, "160", False),
        ):
            if model is not None and not model.exists():
                counts["skipped"] += 1
                print("skipped:", model.name, "is not here")
                continue
            command = [str(BUILD / "davy"), *what, "--device", "cpu", "--tile", tile, *(["--model", str(model)] if model else ["--scale", "2"])]
            run = subprocess.run(command, capture_output=True, text=True)
            check(run.returncode == 0 and ("tiles change the result" in run.stderr) == says, f"{model}, tile {tile}: {run.stderr!r}")


def main():
    lib = abi.load()
    told()
    ctx = abi.Handle()
    lib.check(lib.api.context_create(abi.ref(abi.ContextDesc()), abi.ref(ctx)))
    x = photograph()
    for where, exact in NETWORKS:
        name = where if isinstance(where, str) else where.name
        if not isinstance(where, str) and not where.exists():
            counts["skipped"] += 1
            print("skipped:", name, "is not here")
            continue
        network = Network(lib, ctx, where)
        one(network, name, exact, x)
        network.close()
    lib.api.context_release(ctx)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return counts["failed"] != 0


sys.exit(main())
