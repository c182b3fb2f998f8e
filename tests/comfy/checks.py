"""Counted checks for the tests of the node pack."""

import sys

passed = failed = skipped = 0


def check(ok, what):
    global passed, failed
    passed, failed = passed + bool(ok), failed + (not ok)
    if not ok:
        print(f"FAIL line {sys._getframe(1).f_lineno}: {what}", flush=True)
    return ok


def sentence(call, *needles):
    """Checks that the call fails with one sentence that contains all needles."""
    try:
        call()
    except Exception as error:
        text = str(error)
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        check(kind == "davy.Error" and "\n" not in text and len(text) > 20, f"{kind}: {text!r}")
        check(all(n in text for n in needles), f"{needles} not in {text!r}")
    else:
        check(False, f"no error with {needles}")


def end():
    """Prints the last line and returns the exit code."""
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0
