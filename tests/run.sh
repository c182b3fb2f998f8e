#!/bin/sh
# Runs everything `make test` promises and closes with one line that adds up all checks. usage: run.sh BUILD_DIR
set -u
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
logs="$build/test-logs"
rm -rf "$logs"
mkdir -p "$logs"
failed_steps=

# A step's output goes to a log; its last "N passed, N failed[, N skipped]" lines are what counts.
step() {
    name=$1
    shift
    start=$(date +%s)
    if "$@" >"$logs/$name.log" 2>&1; then
        state=ok
    else
        state=FAILED
        failed_steps="$failed_steps $name"
    fi
    echo "$name: $state, $(($(date +%s) - start)) s"
    if [ "$state" = FAILED ]; then
        grep -E 'FAIL|Error|error:|rror|ERROR' "$logs/$name.log" | head -n 40
        tail -n 40 "$logs/$name.log"
    fi
}

cd "$root" || exit 1
step ctest ctest --test-dir "$build" -V -j "${JOBS:-$(nproc)}" --timeout 900 -LE quick
step no_device_code sh tests/no_device_code.sh "$build"
step sanitize sh tests/sanitize.sh
step fuzz sh tests/fuzz/run.sh "${FUZZ_SECONDS:-20}"
step windows sh tests/hosts/windows.sh "$build"

sed -nE 's/^[0-9]+: skipped: (.*): this build of davy has no device code$/\1/p' "$logs/ctest.log" | sort | paste -sd , - |
    sed 's/,/, /g; s/^./skipped, as this build has no device code: &/'

# Sums over all logs. A step that failed without a failed check (a crash, a build error) counts as one.
cat "$logs"/*.log | sed -nE 's/^([0-9]+: )?([a-z]+: )?([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\3 \4 \6/p' |
    awk -v steps="$(echo $failed_steps | wc -w)" '{ p += $1; f += $2; s += $3 }
        END { if (steps > f) f = steps; printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }'
