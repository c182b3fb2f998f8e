#!/usr/bin/env python3
"""Checks the order of the rooms of core/: core/rooms.txt lists them from the bottom to the top, one floor a line.

usage: rooms.py SOURCE BUILD [--table | --self-check]

A file includes headers, and calls functions, of its own room and of rooms on lower floors. Headers named *_priv.h stay in
their room. Includes are read from the sources, calls from the symbols of the objects in BUILD. --table also prints the
figures: files, lines, shared functions, circles of files, and arrows that point up. --self-check first doctors copies of
the list and expects faults.
Ends with `N passed, N failed`.
"""
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s+"core/([^"]+)"', re.M)


def read_floors(source):
    """The floor of every room; 0 is the lowest."""
    floors = {}
    with open(os.path.join(source, "core/rooms.txt"), encoding="utf-8") as f:
        lines = [line.split("#")[0].split() for line in f]
    for floor, rooms in enumerate(line for line in lines if line):
        for room in rooms:
            floors[room] = floor
    return floors


def read_sources(source):
    """Path within core/ to text, of every C file and header."""
    texts = {}
    core = os.path.join(source, "core")
    for folder, _, names in os.walk(core):
        for name in names:
            if name.endswith((".c", ".h")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    texts[os.path.relpath(path, core).replace(os.sep, "/")] = f.read()
    return texts


def read_symbols(build):
    """Functions and data that objects define for others, and those that they use: {file: names}, {file: names}."""
    defined, used = {}, {}
    objects = os.path.join(build, "CMakeFiles/dv_core.dir/core")
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(objects) for name in names]
    paths = [path for path in paths if re.search(r"\.c\.o(bj)?$", path)]
    out = subprocess.run(["nm", "-A"] + paths, capture_output=True, text=True, check=True).stdout if paths else ""
    for line in out.splitlines():
        path, row = line.split(":", 1)
        file = re.sub(r"\.o(bj)?$", "", os.path.relpath(path, objects).replace(os.sep, "/"))
        defined.setdefault(file, set())
        used.setdefault(file, set())
        kind, name = row.split()[-2:]
        if kind in "TDBRVC":
            defined[file].add(name)
        elif kind == "U":
            used[file].add(name)
    return defined, used


def room_of(path):
    return path.split("/")[0]


def check_arrow(floors, user, target, what):
    """A sentence where a file of one room uses another room against the order; None: it may."""
    mine, other = room_of(user), room_of(target)
    if mine == other or floors.get(other, 99) < floors.get(mine, -1):
        return None
    return f"core/{user} ({mine}) {what} ({other}), which is not on a lower floor"


def circles(edges):
    """Groups of files that reach each other (Tarjan), larger than one."""
    index, low, stack, on, groups = {}, {}, [], set(), []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in edges[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            group = []
            while not group or group[-1] != v:
                group.append(stack.pop())
                on.discard(group[-1])
            if len(group) > 1:
                groups.append(sorted(group))

    sys.setrecursionlimit(10000)
    for v in sorted(edges):
        if v not in index:
            visit(v)
    return groups


def check(source, symbols):
    """Everything that is compared: how much passed, faults, and what print_table needs."""
    floors = read_floors(source)
    texts = read_sources(source)
    defined, used = symbols
    defined = {file: names for file, names in defined.items() if file in texts}
    faults = []

    for file in sorted(texts):
        if "/" not in file or room_of(file) not in floors:
            faults.append(f"core/{file} is in no room of core/rooms.txt")
    for room in floors:
        if not any(room_of(file) == room for file in texts):
            faults.append(f"core/rooms.txt names {room}, which has no files")

    includes = 0
    for file, text in sorted(texts.items()):
        for target in INCLUDE.findall(text):
            includes += 1
            if target.endswith("_priv.h") and room_of(target) != room_of(file):
                faults.append(f"core/{file} includes core/{target}, which is private to its room")
            faults.append(check_arrow(floors, file, target, f"includes core/{target}"))

    owner = {name: file for file, names in defined.items() for name in names}
    edges = collections.defaultdict(set)
    calls = 0
    callers = collections.defaultdict(set)
    for file, names in sorted(used.items()):
        if file not in texts:
            continue
        for name in sorted(names & owner.keys()):
            calls += 1
            callers[name].add(file)
            edges[file].add(owner[name])
            edges[owner[name]] |= set()
            faults.append(check_arrow(floors, file, owner[name], f"uses {name} of core/{owner[name]}"))

    faults = sorted({fault for fault in faults if fault})
    if calls == 0:
        faults.append("the build holds no objects of core/")
    return includes + calls - len(faults), faults, (texts, owner, callers, edges)


def print_table(texts, owner, callers, edges):
    groups = sorted(circles(edges), key=len, reverse=True)
    sources = sum(file.endswith(".c") for file in texts)
    lines = sum(text.count("\n") for text in texts.values())
    shared = [name for name in owner if callers[name]]
    one = sum(len(callers[name]) == 1 for name in shared)
    print(f"{sources} sources, {len(texts) - sources} headers, {lines} lines")
    print(f"{len(shared)} functions and tables shared between files, {one} of them have one user")
    print(f"{len(groups)} circles of files: {', '.join(str(len(group)) for group in groups)}")
    for group in groups:
        print("   ", " ".join(group))


def self_check(source, symbols):
    """Faults of this check itself: wrong lists that it lets pass."""
    with open(os.path.join(source, "core/rooms.txt"), encoding="utf-8") as f:
        floors = [line.strip() for line in f if line.strip() and not line.startswith("#")]
    doctored = {
        "the floors from the top to the bottom": floors[::-1],
        "two floors that changed places": floors[1:2] + floors[:1] + floors[2:],
        "all rooms on one floor": [" ".join(floors)],
        "a list without the top room": floors[:-1],
        "a room without files": floors + ["attic"],
    }
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(os.path.join(source, "core"), os.path.join(folder, "core"))
        for what, lines in doctored.items():
            with open(os.path.join(folder, "core/rooms.txt"), "w", encoding="utf-8") as f:
                f.write("\n".join(lines) + "\n")
            if not check(folder, symbols)[1]:
                missed.append(f"self-check: {what} is no fault")
        if not check(source, ({}, {}))[1]:
            missed.append("self-check: a build without objects is no fault")
    return len(doctored) + 1 - len(missed), missed


def main():
    source, build = sys.argv[1:3]
    symbols = read_symbols(build)
    passed, faults, figures = check(source, symbols)
    if "--table" in sys.argv:
        print_table(*figures)
        print(f"{len(faults)} faults against the order")
    if "--self-check" in sys.argv:
        more, missed = self_check(source, symbols)
        passed, faults = passed + more, faults + missed
    for fault in faults:
        print("FAIL", fault)
    print(f"{passed} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
