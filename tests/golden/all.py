#!/usr/bin/env python3
"""Runs every golden case of the architectures in this tree: in fp32 and bf16, on a GPU also in fp16, and a few also in int8.
fp8, and int8 of the other cases, run only with --precision. Errors of fp8 are reported; pictures in int8 need 40 dB.

    python3 tests/golden/all.py BUILD_DIR [--device D] [--precision P]... [--jobs N]

Small cases are beside this file. The larger ones and the real models are read from DAVY_SHARED (default: ../shared beside the
project), and are skipped without it. All cases are skipped if the machine does not have the device. The last lines are a table
with each case's largest relative error and least PSNR, and `N passed, N failed, N skipped`."""
import concurrent.futures
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
OURS = ["compact_x2", "compact_anime", "span_x2", "taesd", "taef1", "esrgan_x2_unshuffle", "swinir_x1", "srformer_x2", "srformer_light_x3", "drct_x2", "hat_x2", "dat_x2", "rgt_x2", "rgt_x1", "atd_x2", "atd_light_x2",
        "plksr_sparse_x2", "plksr_rect_x3", "realplksr_dysample_x2", "realplksr_dysample_x3", "cugan_fast", "spanf3_x2"]
CLIPS = ["wan2_1", "wan2_1_diffusers", "qwen_image", "qwen_image_original", "wan2_2", "wan2_2_diffusers", "taehv", "taew2_2_super", "taeltx_2", "lighttaehy1_5", "taeh3"]  # make_clips.py
INTEGERS = ["span_x2", "taesd", "wan2_1"]  # in int8, too
LARGER = ["swinir_light_x2", "swinir_real_x4", "drct_x4", "hat_x4", "dat_x4", "realplksr_x4", "omnisr_x4", "compact_x4v3", "span_x4_52", "esrgan_x4", "vae_sd15_ldm", "vae_sdxl", "vae_sd3", "vae_flux_ldm",
          "seedvr2_vae_5f", "seedvr2_vae_13f"]
CAPTIONS = ["vlm_smolvlm_reduced", "vlm_smolvlm_256m", "vlm_qwen2_vl", "vlm_qwen2_5_vl", "vlm_qwen3_vl", "vlm_llava_siglip"]
# srformer_*, rgt_*, atd_*: make_upscalers.py
OWN_CAPTIONS = ["vlm_nanochat", "vlm_ghostvis", "vlm_qwen2_vl_video", "vlm_qwen2_5_vl_video", "vlm_qwen3_vl_video"]  # make_captions.py
K_QUANTS = ["vlm_smolvlm_k", "vlm_qwen2_5_vl_k"]  # make_captions.py: valid only with blocks of Q4_K, Q5_K and Q6_K
MODELS = [  # reference, weights
    ("compact/realesr-animevideov3", "compact/realesr-animevideov3.pth"),
    ("compact/realesr-animevideov3", "compact/realesr-animevideov3.safetensors"),
    ("compact/realesr-general-x4v3", "compact/realesr-general-x4v3.safetensors"),
    ("rrdb/RealESRGAN_x4plus_anime_6B", "rrdb/RealESRGAN_x4plus_anime_6B.safetensors"),
    ("span/spanx2_ch48", "span/spanx2_ch48.safetensors"),
    ("span/spanx4_ch48", "span/spanx4_ch48.safetensors"),
    ("span/2xHFA2kSPAN", "span/2xHFA2kSPAN.safetensors"),
    *(("realcugan/realcugan-se-up%dx-conservative" % k, "realcugan/realcugan-se-up%dx-conservative.safetensors" % k) for k in (2, 3, 4)),
    ("waifu2x/waifu2x-upcunet-art-scale2x", "waifu2x/waifu2x-upcunet-art-scale2x.safetensors"),
    ("waifu2x/waifu2x-cunet-art-noise1", "waifu2x/waifu2x-cunet-art-noise1.safetensors"),
    ("waifu2x/waifu2x-upconv7-art-scale2x", "waifu2x/waifu2x-upconv7-art-scale2x.safetensors"),
    ("waifu2x/waifu2x-upconv7-photo-scale2x", "waifu2x/waifu2x-upconv7-photo-scale2x.legacy.pth"),
    ("tae/taef2", "tae/taef2_encoder.pth,tae/taef2_decoder.pth"),
    ("tae/taef2", "tae/taef2_encoder.safetensors,tae/taef2_decoder.safetensors"),
    ("tae/taesana_encoder", "tae/taesana_encoder.pth"),
]


class Report:
    """The results of one case: lines to print, counts, the largest error by precision."""

    def __init__(self, title):
        self.title, self.lines, self.errors = title, [], {}
        self.passed = self.failed = self.skipped = 0

    def skip(self, why):
        self.lines.append(f"{self.title} skipped: {why}")
        self.skipped += 1
        return self


def golden(build, report, case, weights, options):
    for precision in options["precision"]:
        command = [str(build / "golden"), str(case), weights, "--precision", precision, "--device", options["device"]]
        done = subprocess.run(command, capture_output=True, text=True)
        report.lines.append(f"{report.title} {precision}")
        report.lines += ["  " + line for line in (done.stdout + done.stderr).strip().splitlines()]
        count = re.search(r"(\d+) passed, (\d+) failed", done.stdout)
        report.passed += int(count[1]) if count else 0
        report.failed += int(count[2]) if count else 1
        if count and done.returncode != 0 and int(count[2]) == 0:
            report.failed += 1
        found = re.findall(r"relative (\S+) \(bound (\S+)\)(?:, PSNR (\S+) dB)?", done.stdout)
        errors = [(not float(e) <= float(bound), float(e)) for e, bound, _ in found]
        report.errors[precision] = "-"
        if errors:
            least = min((float(psnr) for _, _, psnr in found if psnr), default=None)
            report.errors[precision] = "{:.1e}{}{}".format(max(errors)[1], " FAILED" if max(errors)[0] else "",
                                                         "" if least is None else f" {least:4.1f} dB")
    return report


def synthetic(build, case, options):
    """Runs a case whose checkpoint is first written from its manifest."""
    report = Report(case.name)
    if not case.is_dir():
        return report.skip(f"no {case}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="golden-", dir=build))
    try:
        command = [sys.executable, str(HERE / "weights.py"), str(case), str(folder)]
        written = subprocess.run(command, capture_output=True, text=True)
        if written.returncode != 0:
            if "numpy" in written.stderr:
                return report.skip("NumPy is not installed")
            report.lines.append(written.stderr)
            report.failed += 1
            return report
        return golden(build, report, case, str(folder), options)
    finally:
        shutil.rmtree(folder)


def real(build, reference, weights, options):
    case = SHARED / "models" / (reference + ".ref.safetensors")
    files = [SHARED / "models" / w for w in weights.split(",")]
    report = Report(weights.split(",")[0])
    if not case.exists() or not all(f.exists() for f in files):
        return report.skip(f"no {case}")
    return golden(build, report, case, ",".join(map(str, files)), options)


def live(build, options):
    return golden(build, Report("davy-live"), HERE / "cases" / "davy-live", str(ROOT / "packaging" / "models"), options)


def trained(build, options):
    """The small trained captioning model: answers about pictures that are not in its training data."""
    case, weights = SHARED / "golden" / "davy-tiny-vlm", SHARED / "models" / "davy-tiny-vlm"
    report = Report("davy-tiny-vlm")
    if not case.is_dir() or not weights.is_dir():
        return report.skip(f"no {case}")
    return golden(build, report, case, str(weights), options)


def as_gguf(build, case, weights, options, *kind):
    """Runs a case with its weights as a pair of GGUF files. weights None: the manifest's. kind: an argument of gguf_pair.py."""
    report = Report(case.name + " gguf")
    if not case.is_dir() or (weights is not None and not weights.is_dir()):
        return report.skip(f"no {case}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="golden-", dir=build))
    try:
        source = weights or folder / "folder"
        steps = [] if weights else [[str(HERE / "weights.py"), str(case), str(source)]]
        for step in steps + [[str(HERE / "gguf_pair.py"), str(source), str(folder / "gguf"), *kind]]:
            made = subprocess.run([sys.executable, *step], capture_output=True, text=True)
            if made.returncode != 0:
                if "numpy" in made.stderr:
                    return report.skip("NumPy is not installed")
                report.lines.append(made.stderr)
                report.failed += 1
                return report
        if weights is None:
            shutil.move(source / "inputs.safetensors", folder / "gguf")
        return golden(build, report, case, str(folder / "gguf"), options)
    finally:
        shutil.rmtree(folder)


def integers_too(options):
    return dict(options, precision=list(dict.fromkeys(options["precision"] + ["int8"])))


def captions(build, pool, options):
    """Captioning models run also in 8 and 4 bits."""
    more = dict(options, precision=options["precision"] + ["int8", "int4"])
    work = [pool.submit(synthetic, build, SHARED / "golden" / name, more) for name in CAPTIONS]
    work += [pool.submit(synthetic, build, HERE / "cases" / name, more) for name in OWN_CAPTIONS]
    work += [pool.submit(as_gguf, build, SHARED / "golden" / name, None, options)
             for name in CAPTIONS if name != "vlm_smolvlm_256m"]
    # With integer weights a GPU computes a few rows in 8 bits in every precision: the error exceeds fp16's bound, not bf16's.
    coarse = dict(options, precision=[p for p in options["precision"] if p != "fp16"])
    work += [pool.submit(as_gguf, build, HERE / "cases" / name, None, coarse, "k") for name in K_QUANTS]
    tiny = SHARED / "golden" / "davy-tiny-vlm", SHARED / "models" / "davy-tiny-vlm"
    return work + [pool.submit(trained, build, more), pool.submit(as_gguf, build, *tiny, options)]


def why_not(build, options):
    """A sentence if this machine does not have the device. A GPU that exists but cannot be used is a failure."""
    if options["device"] == "cpu" or any(pathlib.Path("/dev").glob("nvidia[0-9]*")) or pathlib.Path("/dev/dxg").exists():
        return None
    command = [str(build / "golden"), str(HERE / "cases" / "davy-live"), str(ROOT / "packaging" / "models")]
    command += ["--device", options["device"]]
    unusable = re.search(r"context: E_DEVICE: (.*)", subprocess.run(command, capture_output=True, text=True).stderr)
    return unusable[1] if unusable else None


def print_table(reports, precisions):
    width = max(len(r.title) for r in reports)
    print(f"\n{'largest error, least PSNR':{width}} " + " ".join(f"{p:>16}" for p in precisions))
    for r in reports:
        print(f"{r.title:{width}} " + " ".join(f"{r.errors.get(p, 'skipped'):>16}" for p in precisions))


def main(argv):
    options = {"device": "cpu", "precision": [], "jobs": "1"}
    build = pathlib.Path(argv[1]).resolve()
    if not (build / "golden").is_file():
        sys.exit(f"{argv[1]}: the folder has no program `golden`; build the tests first\n\n{__doc__}")
    for key, value in zip(argv[2::2], argv[3::2]):
        if key == "--precision":
            options["precision"].append(value)
        elif key in ("--device", "--jobs"):
            options[key[2:]] = value
        else:
            sys.exit(__doc__)
    options["precision"] = options["precision"] or (["fp32", "bf16"] if options["device"] == "cpu" else ["fp32", "fp16", "bf16"])
    reason = why_not(build, options)
    if reason:
        print(f"all cases skipped: {reason}\n0 passed, 0 failed, {len(OURS) + len(CLIPS) + 1 + len(LARGER) + len(MODELS)} skipped")
        return 0
    reports = []
    with concurrent.futures.ThreadPoolExecutor(int(options["jobs"])) as pool:
        work = [pool.submit(synthetic, build, HERE / "cases" / name, integers_too(options) if name in INTEGERS else options)
                for name in OURS + CLIPS]
        work += [pool.submit(live, build, integers_too(options))]
        work += [pool.submit(synthetic, build, SHARED / "golden" / name, options) for name in LARGER]
        work += [pool.submit(real, build, reference, weights, options) for reference, weights in MODELS]
        work += captions(build, pool, options)
        for one in work:
            reports.append(one.result())
            print("\n".join(reports[-1].lines), flush=True)
    print_table(reports, options["precision"])
    counts = [sum(getattr(r, what) for r in reports) for what in ("passed", "failed", "skipped")]
    print("{} passed, {} failed, {} skipped".format(*counts))
    return counts[1] != 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv))
