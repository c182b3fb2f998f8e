# Sourced by tests. Counts successful commands. The log of a failed command is written to $to, a folder of the test, and shown.
passed=0
failed=0

check() { # WHAT COMMAND...: the command succeeds
    what=$1
    shift
    if "$@" >"$to/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL %s\n' "$what"
        cat "$to/log"
    fi
}
