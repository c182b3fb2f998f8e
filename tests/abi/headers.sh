#!/bin/sh
# headers.sh - every public header alone, in every dialect a host may be written in: pedantic, no implicit padding, no
# warning. Compilers that are not installed are skipped and named. Ends `N passed, N failed`.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# compile COMPILER LANGUAGE STANDARD HEADER
compile() {
    # Included twice: the guard is part of the promise. The function keeps the unit from being empty.
    printf '#include "abi/%s"\n#include "abi/%s"\nint header_test(void);\nint header_test(void) { return 0; }\n' \
        "$4" "$4" >"$work/unit.$2"
    if "$1" -std="$3" -I"$root" -pedantic -Wall -Wextra -Wshadow -Wpadded -Wundef -Werror -c "$work/unit.$2" \
        -o "$work/unit.o" 2>"$work/messages"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1 -std=$3 abi/$4" >&2
        cat "$work/messages" >&2
    fi
}

# matrix C_COMPILER CXX_COMPILER
matrix() {
    if command -v "$1" >/dev/null; then
        for standard in c99 c11 c17 c2x; do
            compile "$1" c $standard davy.h
            compile "$1" c $standard davy_loader.h
        done
    else
        echo "skipped: no $1"
    fi
    if command -v "$2" >/dev/null; then
        for standard in c++98 c++11 c++17 c++20; do
            compile "$2" cc $standard davy.h
            compile "$2" cc $standard davy_loader.h
        done
    else
        echo "skipped: no $2"
    fi
}

# The first program of davy.h's main page.
example() {
    sed -n '/^ \* @code/,/^ \* @endcode/p' "$root/abi/davy.h" | sed -e '/^ \* @/d' -e 's/^ \* \{0,1\}//' >"$work/first.c"
    if grep -q 'int main' "$work/first.c" && "$1" -std=c99 -I"$root/abi" -pedantic -Wall -Wextra -Werror "$work/first.c" \
        -o "$work/first" -ldl 2>"$work/messages"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1: the example of abi/davy.h" >&2
        cat "$work/messages" >&2
    fi
}

matrix gcc g++
matrix clang clang++
matrix x86_64-w64-mingw32-gcc x86_64-w64-mingw32-g++
example gcc
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
