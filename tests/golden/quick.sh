#!/bin/sh
# quick.sh - a few golden cases in fp32, one of each kind of model, for `make check`. all.py has these and all others.
# usage: quick.sh BUILD_DIR PYTHON. Ends `N passed, N failed`.
set -u
build=$1 python=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$build/golden" "$here/cases/davy-live" "$here/../../packaging/models" --precision fp32 >"$work/log" 2>&1
for case in compact_x2 taesd wan2_1 vlm_ghostvis; do
    { "$python" "$here/weights.py" "$here/cases/$case" "$work/$case" &&
        "$build/golden" "$here/cases/$case" "$work/$case" --precision fp32 || echo "0 passed, 1 failed"; } >>"$work/log" 2>&1
    rm -rf "$work/$case"
done
grep -vE '^[0-9]+ passed' "$work/log"
sed -nE 's/^([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p' "$work/log" |
    awk '{ p += $1; f += $2 } END { printf "%d passed, %d failed\n", p, f; exit f > 0 || NR < 5 }'
