#!/bin/sh
# stack.sh PROGRAM LIBRARY PYTHON - runs stack.c with the shipped model and a captioner that is made for it, once for each
# instruction set: kernels differ in the stack that they need.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/tests/hosts "$3" -c 'import sys, tiny_vlm; tiny_vlm.write(sys.argv[1])' "$work/captioner"
for cpu in baseline avx2 avx512 avx512bf16 amx; do
    echo "DAVY_CPU=$cpu"
    DAVY_CPU=$cpu "$1" "$2" "$root/packaging/models/davy-live-x2.safetensors" "$work/captioner"
done
