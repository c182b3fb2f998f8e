"""Shared by the tests of the command line: the program, a work folder, running the program, counting the checks.

Environment: DAVY_BUILD (the build folder), DAVY_SOURCE, DAVY_SHARED (optional, larger data).
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(os.environ["DAVY_BUILD"])
SOURCE = pathlib.Path(os.environ.get("DAVY_SOURCE", pathlib.Path(__file__).parents[2]))
sys.path.append(str(SOURCE / "tests/hosts"))  # tiny_vlm
SHARED = pathlib.Path(os.environ.get("DAVY_SHARED", SOURCE.parent / "shared"))
SMALL = SOURCE / "tests/data/images"
QUICK = "--small" in sys.argv
LARGE = SHARED / "images" if not QUICK else pathlib.Path("none")
DAVY = BUILD / "davy"
os.environ.setdefault("DAVY_MODELS", str(SOURCE / "packaging/models"))
WORK = pathlib.Path(tempfile.mkdtemp(prefix="davy-cli-"))

passed = failed = skipped = 0


def check(ok, what):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print("FAIL", what, flush=True)
    return bool(ok)


def skip(why):
    global skipped
    skipped += 1
    print("skipped:", why)


def has_device_code(test):
    """Whether davy was built with device code. If not, the rest of the test counts as skipped."""
    if os.environ.get("DAVY_DEVICE_CODE") != "0":
        return True
    skip(f"{test}: this build of davy has no device code")
    return False


def run(*args, code=0, tool=DAVY, **more):
    """Runs davy and checks the exit code. A failure must print one line, "davy: subject: reason"."""
    p = subprocess.run([str(tool), *map(str, args)], capture_output=True, text=True, timeout=600, **more)
    shown = " ".join(map(str, args))
    check(p.returncode == code, f"{shown}: exit {p.returncode}, expected {code}: {p.stderr.strip()}")
    if code:
        lines = [l for l in p.stderr.splitlines() if ": note: " not in l]
        check(len(lines) == 1 and lines[0].startswith("davy: ") and lines[0].count(": ") >= 2,
              f"{shown}: stderr is not one line: {p.stderr!r}")
    return p


def leftovers(folder):
    return [p.name for p in pathlib.Path(folder).iterdir() if ".tmp-" in p.name]


def main(tests):
    """Runs the tests that the arguments name, else all."""
    only = [a for a in sys.argv[1:] if not a.startswith("-")]
    for name, test in list(tests.items()):
        if name.startswith("test_") and (not only or name in only):
            start = time.time()
            before = failed
            try:
                test()
            except Exception as e:  # one broken test must not hide the others
                check(False, f"{name}: {type(e).__name__}: {e}")
            print(f"{name}: {'ok' if failed == before else 'FAILED'}, {time.time() - start:.1f} s", flush=True)
    shutil.rmtree(WORK, ignore_errors=True)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return failed > 0
