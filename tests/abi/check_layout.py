"""check_layout.py DUMP_PROGRAM - the ABI seen four ways must be one: the text checked in for the last release, the
compiler's view (dump.c), the ctypes binding's view, and the names written in the header. Ends `N passed, N failed`.

After an intended, compatible change: write the program's output to tests/abi/davy-1.<minor>.txt and raise RELEASED."""

import ctypes
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RELEASED = "davy-1.0.txt"
sys.path.insert(0, str(ROOT / "plugins" / "comfy"))
sys.dont_write_bytecode = True

from davy import abi  # noqa: E402


def binding_lines():
    lines = []
    for name, struct in abi.STRUCTS.items():
        lines.append(f"struct {name} {ctypes.sizeof(struct)}")
        for field in struct._fields_:
            d = getattr(struct, field[0])
            lines.append(f"  {field[0]} {d.offset} {d.size}")
    return lines


def binding_constants():
    found = {"DAVY_ABI_1_0": abi.ABI_1_0, "DAVY_ABI_VERSION": abi.ABI_VERSION}
    for kind, prefix in abi.CONSTANT_PREFIX.items():
        for name, member in kind.__members__.items():
            found[prefix + name] = int(member)
    return found


def header_constants():
    code = re.sub(r"/\*.*?\*/", "", (ROOT / "abi" / "davy.h").read_text(), flags=re.S)
    names = []
    for body in re.findall(r"\benum\s*\{(.*?)\}", code, flags=re.S):
        names += re.findall(r"\bDAVY_\w+(?=\s*=)", body)
    return names


def header_structs():
    return re.findall(r"typedef struct (davy_\w+) \{", (ROOT / "abi" / "davy.h").read_text())


def differences(expected, found):
    lines = [f"  missing: {x}" for x in expected if x not in found]
    lines += [f"  extra: {x}" for x in found if x not in expected]
    return lines or (["  same lines, other order"] if expected != found else [])


def main(program):
    run = subprocess.run([program], capture_output=True, text=True)
    dump = run.stdout.splitlines()
    structs = [line for line in dump if not line.startswith("const ")]
    constants = dict((line.split()[1], int(line.split()[2])) for line in dump if line.startswith("const "))
    checks = {
        "dump.c lists every member": run.stderr.splitlines() if run.returncode else [],
        "dump.c lists every struct of the header": differences(
            header_structs(), [s.split()[1] for s in structs if s[0] != " "]
        ),
        "dump.c lists every constant of the header": differences(sorted(header_constants()), sorted(constants)),
        f"the header is as released ({RELEASED})": differences((HERE / RELEASED).read_text().splitlines(), dump),
        "ctypes sees the same structs": differences(structs, binding_lines()),
        "ctypes has the same constants": differences(sorted(constants.items()), sorted(binding_constants().items())),
    }
    failed = 0
    for what, wrong in checks.items():
        if wrong:
            failed += 1
            print(f"FAIL {what}\n" + "\n".join(wrong), file=sys.stderr)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
