"""compare_raw.py A B BOUND - two files of raw float32: prints ||a - b|| / ||b||, exits 1 when it is above the bound."""

import array
import math
import sys


def read(path):
    numbers = array.array("f")
    with open(path, "rb") as f:
        numbers.frombytes(f.read())
    return numbers


def main(path_a, path_b, bound):
    a, b = read(path_a), read(path_b)
    if len(a) != len(b) or not b:
        print(f"{len(a)} numbers against {len(b)}")
        return 1
    error = math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b))
    print(f"{error:.3g}")
    return not error <= float(bound)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
