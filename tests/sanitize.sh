#!/bin/sh
# sanitize.sh - the tests again under sanitizers: AddressSanitizer with UndefinedBehaviorSanitizer for all that run in
# reasonable time, ThreadSanitizer for those with threads. Builds go to build-asan/ and build-tsan/.
# Only what they run is built. Ends `N passed, N failed`: test programs, not checks.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
jobs=${JOBS:-$(nproc)}
passed=0
failed=0
plain=${DAVY_SANITIZE_BUILD:-$root/build} # brought up to date where there is one: its device code is not compiled again
fatbins=
if [ -d "$plain/kernels/cuda" ]; then
    fatbins=$plain/kernels/cuda
    cmake --build "$plain" -j "$jobs" --target dv_kernels >/dev/null || exit 1
fi

# suite NAME SANITIZERS KERNELS_OF_THE_LIBRARY TARGETS CTEST_ARGUMENTS...
suite() {
    name=$1 sanitizers=$2 kernels=$3 targets=$4
    shift 4
    build=${DAVY_SANITIZE_BUILD:-$root/build}-$name
    mkdir -p "$build"
    if ! { cmake -S "$root" -B "$build" -G Ninja -DDAVY_SANITIZE="$sanitizers" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g1" -DDAVY_CUDA_FATBINS="$fatbins" -DDAVY_PLAIN_KERNELS="$kernels" -DDAVY_CUDA_TARGETS=off && cmake --build "$build" -j "$jobs" --target $targets; } >"$build/build.log" 2>&1; then
        tail -n 40 "$build/build.log" >&2
        echo "FAIL $name: it does not build" >&2
        failed=$((failed + 1))
        return
    fi
    (cd "$build" && ctest -j "$jobs" --timeout 900 --output-on-failure "$@") >"$build/sanitize.log" 2>&1
    total=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#' "$build/sanitize.log")
    good=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#.* Passed ' "$build/sanitize.log")
    passed=$((passed + good))
    failed=$((failed + total - good))
    echo "$name: $good of $total test programs"
    if [ "$good" -lt "$total" ] || [ "$total" -eq 0 ]; then
        [ "$total" -eq 0 ] && failed=$((failed + 1))
        grep -E 'FAIL|ERROR: |WARNING: ThreadSanitizer|runtime error|SUMMARY|\*\*\*' "$build/sanitize.log" | head -n 40 >&2
    fi
}

# No detect_stack_use_after_return: its stack is aligned to 32 bytes, gcc 12 stores 64-byte vectors on it as if to 64.
export ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1:strict_string_checks=1"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="halt_on_error=0:exitcode=66:second_deadlock_stack=1"
suite asan address,undefined "${fatbins:+$plain}" \
    'plugins/cli/all tests/unit/all tests/kcheck/all tests/cuda/all tests/abi/all tests/hosts/all tests/cli/all tests/fault/all' -L 'unit|kcheck|cuda|abi|hosts|fault' -LE quick
suite tsan thread '' 'host_threads host_stopping test_gpu test_pool test_mem test_engine_memory test_file_source' -R 'hosts.(threads|stopping)|cuda.test_gpu$|unit.*(pool|mem|source)'
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
