#!/bin/sh
# format.sh - all C sources are formatted as .clang-format says. Skipped without git or without clang-format 14, the version of
# Debian 12: others differ in details. Ends `N passed, N failed`.
set -u
cd "$(dirname "$0")/../.." || exit 1
format=$(command -v clang-format-14 || command -v clang-format)
if ! git rev-parse --git-dir >/dev/null 2>&1 || ! "${format:-false}" --version 2>/dev/null | grep -q 'version 14\.'; then
    echo "skipped: no clang-format 14, or no git"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
files=$(git ls-files '*.c' '*.h')
passed=$(echo "$files" | wc -l)
bad=$(echo "$files" | xargs "$format" --dry-run -Werror 2>&1 | sed -n 's/: error: .*//p')
failed=$(echo "$bad" | cut -d: -f1 | sort -u | grep -c .)
[ "$failed" -eq 0 ] || echo "$bad" | sed 's/^/FAIL not formatted (make format): /' >&2
echo "$((passed - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]
