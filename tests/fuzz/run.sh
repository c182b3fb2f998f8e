#!/bin/sh
# Runs every fuzz target for SECONDS (default 30), two at a time, from its seeds. Failing inputs are kept in BUILD/found; new
# seeds are not kept. usage: run.sh [SECONDS [BUILD]]
set -u
seconds=${1:-30}
here=$(cd "$(dirname "$0")" && pwd)
build=${2:-$here/../../build/fuzz}
targets="safetensors gguf zip pickle json pth_stream tar tokenizer pieces"

mkdir -p "$build/found" || exit 1
build=$(cd "$build" && pwd)
if ! { cmake -S "$here" -B "$build" -DDAVY_FUZZ=ON -DCMAKE_C_COMPILER=clang && cmake --build "$build" -j 2; } \
    >"$build/build.log" 2>&1; then
    tail -n 30 "$build/build.log"
    echo "0 passed, 9 failed"
    exit 1
fi

# One target: its exit code goes to a file, because two run side by side.
fuzz() {
    rm -rf "$build/work/$1" "$build/$1.rc"
    mkdir -p "$build/work/$1" "$here/corpus/$1"
    "$build/fuzz_$1" -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=3000 -print_final_stats=1 \
        -artifact_prefix="$build/found/$1-" "$build/work/$1" "$here/corpus/$1" >"$build/$1.log" 2>&1
    echo $? >"$build/$1.rc"
}

# Every second one starts when the one before has ended: two lanes.
lane() {
    for name in "$@"; do
        fuzz "$name"
    done
}
lane safetensors zip json tar pieces &
lane pickle gguf pth_stream tokenizer &
wait

passed=0
failed=0
for name in $targets; do
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$name.log")
    if [ "$(cat "$build/$name.rc" 2>/dev/null)" = 0 ]; then
        passed=$((passed + 1))
        echo "$name: ok, ${runs:-?} runs in $seconds s"
    else
        failed=$((failed + 1))
        echo "FAIL $name:"
        grep -E 'ERROR|SUMMARY|runtime error|broken promise|Test unit written' "$build/$name.log" || tail -n 20 "$build/$name.log"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
