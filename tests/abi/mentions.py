#!/usr/bin/env python3
"""Checks that files named in documents and comments exist. usage: mentions.py SOURCE [--list]

A path from the repository's root ("core/plan/plan.h") has to exist as it stands. A bare name ("plan.h") in a comment has to be
the name of some file. --list prints each fault only once for each name. Ends with `N passed, N failed`.
"""
import os
import re
import subprocess
import sys

PATH = re.compile(r"(?<![\w/.$}-])((?:abi|core|kernels|plugins|tests|packaging|docs)/[\w/.-]*\w\.(?:c|h|cu|cuh|py|sh|md|cmake|txt|def))\b")
BARE = re.compile(r"(?<![\w/.$<-])([a-z][a-z0-9_]{2,}\.(?:c|h|cu|cuh))\b(?!\()")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
# Names of other projects' files, of files that a build makes, and members of structs.
FOREIGN = {"shape.c", "kept.h", "cjson.h", "cJSON.h", "fatbins.S", "modules.c", "archs.c", "threads.h", "windows.h", "davy.def"}


def files_of(source):
    out = subprocess.run(["git", "-C", source, "ls-files"], capture_output=True, text=True)
    if out.returncode == 0:
        return [f for f in out.stdout.split("\n") if f and os.path.exists(os.path.join(source, f))]
    found = []
    for folder, folders, names in os.walk(source):
        folders[:] = [f for f in folders if not f.startswith((".", "build"))]
        found += [os.path.relpath(os.path.join(folder, n), source) for n in names]
    return found


def main():
    source = sys.argv[1]
    files = files_of(source)
    paths, names = set(files), {os.path.basename(f) for f in files} | FOREIGN
    passed, faults = 0, []
    for file in sorted(files):
        if file.startswith("tests/fuzz/corpus") or not re.search(r"\.(c|h|cu|cuh|md)$", file) or file == "CHANGES.md":
            continue
        with open(os.path.join(source, file), encoding="utf-8", errors="replace") as f:
            text = f.read()
        document = file.endswith(".md")
        parts = [text] if document else COMMENT.findall(text)
        for part in parts:
            for name in PATH.findall(part):
                ok = name in paths
                passed += ok
                if not ok:
                    faults.append((file, name))
            for name in BARE.findall(part) if not document else []:
                ok = name in names
                passed += ok
                if not ok:
                    faults.append((file, name))
    for file, name in faults:
        print(f"FAIL {file} names {name}, which does not exist")
    print(f"{passed} passed, {len(faults)} failed")
    return 1 if faults or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
