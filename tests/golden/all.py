#!/usr/bin/env python3
"""Runs every golden case of the architectures in this tree, in fp32 and bf16.

    python3 tests/golden/all.py BUILD_DIR [--device D] [--precision P]...

Small cases lie beside this file; the larger ones and the real models are read from DAVY_SHARED (default: ../shared beside the
project) and are skipped without it. Ends with `N passed, N failed, N skipped`."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHARED = pathlib.Path(os.environ.get("DAVY_SHARED", ROOT.parent / "shared"))
OURS = ["compact_x2", "compact_anime", "span_x2", "taesd", "taef1", "esrgan_x2_unshuffle"]
LARGER = ["compact_x4v3", "span_x4_52", "esrgan_x4", "vae_sd15_ldm", "vae_sdxl", "vae_sd3", "vae_flux_ldm"]
MODELS = [  # reference, weights
    ("compact/realesr-animevideov3", "compact/realesr-animevideov3.pth"),
    ("compact/realesr-animevideov3", "compact/realesr-animevideov3.safetensors"),
    ("compact/realesr-general-x4v3", "compact/realesr-general-x4v3.safetensors"),
    ("rrdb/RealESRGAN_x4plus_anime_6B", "rrdb/RealESRGAN_x4plus_anime_6B.safetensors"),
    ("span/spanx2_ch48", "span/spanx2_ch48.safetensors"),
    ("span/spanx4_ch48", "span/spanx4_ch48.safetensors"),
    ("span/2xHFA2kSPAN", "span/2xHFA2kSPAN.safetensors"),
    ("tae/taef2", "tae/taef2_encoder.pth,tae/taef2_decoder.pth"),
    ("tae/taef2", "tae/taef2_encoder.safetensors,tae/taef2_decoder.safetensors"),
    ("tae/taesana_encoder", "tae/taesana_encoder.pth"),
]

totals = {"passed": 0, "failed": 0, "skipped": 0}


def golden(build, title, case, weights, options):
    for precision in options["precision"]:
        command = [str(build / "golden"), str(case), weights, "--precision", precision, "--device", options["device"]]
        done = subprocess.run(command, capture_output=True, text=True)
        print(f"{title} {precision}")
        print("  " + "\n  ".join((done.stdout + done.stderr).strip().splitlines()))
        count = re.search(r"(\d+) passed, (\d+) failed", done.stdout)
        totals["passed"] += int(count[1]) if count else 0
        totals["failed"] += int(count[2]) if count else 1
        if count and done.returncode != 0 and int(count[2]) == 0:
            totals["failed"] += 1


def skip(title, why):
    print(f"{title} skipped: {why}")
    totals["skipped"] += 1


def synthetic(build, case, options):
    """A case whose checkpoint is written first, from its manifest."""
    if not case.is_dir():
        return skip(case.name, f"no {case}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="golden-", dir=build))
    try:
        written = subprocess.run([sys.executable, str(HERE / "weights.py"), str(case), str(folder)], capture_output=True, text=True)
        if written.returncode != 0:
            if "numpy" in written.stderr:
                return skip(case.name, "NumPy is not installed")
            print(written.stderr)
            totals["failed"] += 1
            return None
        return golden(build, case.name, case, str(folder), options)
    finally:
        shutil.rmtree(folder)


def main(argv):
    options = {"device": "cpu", "precision": []}
    build = pathlib.Path(argv[1]).resolve()
    for key, value in zip(argv[2::2], argv[3::2]):
        if key == "--precision":
            options["precision"].append(value)
        elif key == "--device":
            options["device"] = value
        else:
            sys.exit(__doc__)
    options["precision"] = options["precision"] or ["fp32", "bf16"]
    for name in OURS:
        synthetic(build, HERE / "cases" / name, options)
    golden(build, "davy-live", HERE / "cases" / "davy-live", str(ROOT / "packaging" / "models"), options)
    for name in LARGER:
        synthetic(build, SHARED / "golden" / name, options)
    for reference, weights in MODELS:
        case = SHARED / "models" / (reference + ".ref.safetensors")
        files = [SHARED / "models" / w for w in weights.split(",")]
        if not case.exists() or not all(f.exists() for f in files):
            skip(weights, f"no {case}")
            continue
        golden(build, weights, case, ",".join(map(str, files)), options)
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return totals["failed"] != 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv))
