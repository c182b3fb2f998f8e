#!/bin/sh
# windows.sh - builds for Windows and runs the programs under wine. Checks the DLL's exports and imports. Runs the C client in a
# folder with a name outside all code pages, and compares its numbers with those of the Linux library. Usage: windows.sh
# [BUILD_DIR of the Linux build]. Ends `N passed, N failed`.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
linux=$(cd "${1:-$root/build}" && pwd)
windows=${DAVY_WINDOWS_BUILD:-$root/build-windows}
export DAVY_CUDA_FATBINS="$linux/kernels/cuda" # the same device code, not compiled again
wine=${WINE:-/usr/lib/wine/wine64}
BOUND=1e-4 # on ||a - b|| / ||b||, as for every fp32 result
work=$(mktemp -d)
passed=0
failed=0

finish() {
    [ -d "$work/prefix" ] && WINEPREFIX="$work/prefix" "$(dirname "$wine")/wineserver64" -k 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT

same() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL %s: expected "%s", found "%s"\n' "$1" "$2" "$3" >&2
    fi
}

run_wine() {
    env -u DAVY_LIBRARY -u DAVY_MODELS LC_ALL=C.UTF-8 WINEDEBUG=-all WINEPREFIX="$work/prefix" \
        WINEDLLOVERRIDES="mscoree,mshtml=" timeout "$@" 2>&1 | tr -d '\r'
}

if ! sh "$root/packaging/windows/build.sh" "$windows" >"$work/build.log" 2>&1; then
    tail -n 40 "$work/build.log" >&2
    echo "0 passed, 1 failed"
    exit 1
fi

# ---- the DLL as the Windows loader sees it ----
listing=$(x86_64-w64-mingw32-objdump -p "$windows/davy-1.dll")
exports=$(echo "$listing" | sed -n '/\[Ordinal\/Name Pointer\] Table/,/^$/p' |
    awk '$1 ~ /^\[/ && NF >= 3 && $NF ~ /^[A-Za-z_]/ && $NF != "Table" {print $NF}' | sort | paste -sd ' ' -)
same "exports of davy-1.dll" "davy_get_api davy_version" "$exports"
imports=$(echo "$listing" | sed -n 's/.*DLL Name: //p' | tr '[:upper:]' '[:lower:]' | sort)
same "imports of davy-1.dll beyond the system's" "kernel32.dll" \
    "$(echo "$imports" | grep -vxE '(msvcrt|ucrtbase|api-ms-win-crt-[a-z0-9-]+)\.dll' | paste -sd ' ' -)"

# ---- the same job on both systems ----
here="$work/bücher-写真"
there="$work/linux"
mkdir -p "$here" "$there"
cp "$root/packaging/models/davy-live-x2.safetensors" "$here"
cp "$windows/davy-1.dll" "$windows"/tests/*.exe "$here" # the loader finds the library beside the program
programs="davy-client host_formats host_misuse host_misuse_pictures host_budget"
if [ -f "$windows/davy-obs.dll" ]; then # where libobs's headers are
    cp "$windows/davy-obs.dll" "$windows/tests/obs.dll" "$windows/tests/fake_d3d11_cuda.dll" "$here"
    export DAVY_TEST_MODELS="Z:$root/packaging/models"
    programs="$programs obs_module"
    command -v xvfb-run >/dev/null && programs="$programs obs_module+d3d11" # wine draws with OpenGL
    same "imports of davy-obs.dll" "kernel32.dll msvcrt.dll obs.dll" \
        "$(x86_64-w64-mingw32-objdump -p "$windows/davy-obs.dll" | sed -n 's/.*DLL Name: //p' | tr '[:upper:]' '[:lower:]' |
            sort | paste -sd ' ' -)"
fi
summary=$(DAVY_LIBRARY="$linux/libdavy.so.1" timeout 300 "$linux/tests/host_client" "$root/packaging/models" "$there" |
    tail -n 1)
same "the client on Linux" "0" "$(echo "$summary" | sed 's/.* passed, \([0-9]*\) failed.*/\1/')"

# The first program in a fresh prefix waits for wine to fill it.
run_wine 300 "$wine" cmd /c exit >/dev/null
for program in $programs; do
    screen= with=
    if [ "$program" != "${program%+*}" ]; then
        WINEPREFIX="$work/prefix" "$(dirname "$wine")/wineserver64" -w # the next one sees the screen
        screen="xvfb-run -a" with=${program#*+}
    fi
    run_wine 300 $screen "$wine" "$here/${program%+*}.exe" "Z:$here" "Z:$here" $with >"$work/$program.log"
    summary=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$work/$program.log" | tail -n 1)
    if [ "${summary#* passed, 0 failed}" = "$summary" ]; then
        cat "$work/$program.log" >&2
        same "$program under wine" "N passed, 0 failed" "$summary"
    else
        echo "$program under wine: $summary"
        passed=$((passed + 1))
    fi
done
for result in upscaled decoded encoded; do
    if error=$(python3 "$root/tests/hosts/compare_raw.py" "$here/$result.f32" "$there/$result.f32" $BOUND); then
        passed=$((passed + 1))
        echo "$result: $error from Linux's"
    else
        failed=$((failed + 1))
        echo "FAIL $result: $error from Linux's, allowed $BOUND" >&2
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
