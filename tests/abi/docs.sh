#!/bin/sh
# docs.sh - doxygen turns abi/ into pages without a warning: every member has a comment, every @param exists. It also tests that a
# missing comment is found. Without doxygen it is skipped. Ends `N passed, N failed`.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
if ! command -v doxygen >/dev/null; then
    echo "skipped: no doxygen (make docs installs it)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# pages FOLDER: the reference of FOLDER/abi
pages() {
    rm -rf "$work/pages" && mkdir "$work/pages"
    (cd "$1" && DAVY_DOCS="$work/pages" doxygen docs/Doxyfile) 2>"$work/messages"
}

# count WHAT TRUE_OR_FALSE
count() {
    if [ "$2" = true ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1" >&2
        cat "$work/messages" >&2
    fi
}

pages "$root" && clean=true || clean=false
count "doxygen warns" $clean
mkdir "$work/copy" && cp -r "$root/abi" "$root/docs" "$work/copy"
sed -i 's|/\*\*< Number of axes of the output\. \*/||' "$work/copy/abi/davy.h"
pages "$work/copy" && found=false || found=true
count "a member without a comment passes" $found
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
