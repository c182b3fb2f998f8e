#!/bin/sh
# exports.sh LIBRARY - the surface of the shared library as the dynamic linker sees it: two symbols, the promised name, no
# dependency beyond libc, libm and cJSON, never unmapped, nothing writable and executable. Ends `N passed, N failed`.
set -u
library=$1
passed=0
failed=0

# same WHAT EXPECTED FOUND
same() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL %s: expected "%s", found "%s"\n' "$1" "$2" "$3" >&2
    fi
}

dynamic=$(readelf -dW "$library")
needed=$(echo "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
flags=$(echo "$dynamic" | grep -E '\((FLAGS|FLAGS_1)\)' | tr '\n' ' ')

# readelf has two words for a symbol's type where it does not know it (IFUNC, which mold writes for libm's).
symbols=$(readelf --dyn-syms -W "$library" | sed 's/<OS specific>: [0-9]*/OS/')
# Name and version node of every symbol that is defined and not local; the node itself is an absolute symbol.
exports=$(echo "$symbols" |
    awk '$1 ~ /^[0-9]+:$/ && $5 != "LOCAL" && $7 != "UND" && $7 != "ABS" && $8 != "" {print $8}' | sort | paste -sd ' ' -)
same "exported symbols" "davy_get_api@@DAVY_1 davy_version@@DAVY_1" "$exports"
same "SONAME" "libdavy.so.1" "$(echo "$dynamic" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')"
allowed='libc\.so\.6|libm\.so\.6|libcjson\.so\.1|ld-linux[a-z0-9_-]*\.so\.[0-9]'
same "NEEDED beyond libc, libm, cJSON and the linker" "" "$(echo "$needed" | grep -vxE "$allowed" | paste -sd ' ' -)"
same "NEEDED names the system's cJSON" "libcjson.so.1" "$(echo "$needed" | grep cjson)"
same "NODELETE" "yes" "$(case $flags in *NODELETE*) echo yes ;; *) echo no ;; esac)"
same "immediate binding" "yes" "$(case $flags in *BIND_NOW* | *NOW*) echo yes ;; *) echo no ;; esac)"
same "TEXTREL" "" "$(echo "$dynamic" | grep -E 'TEXTREL' | head -1)"
# Initial-exec thread variables would eat the process's small surplus and make dlopen fail in some hosts.
same "static TLS" "no" "$(case $flags in *STATIC_TLS*) echo yes ;; *) echo no ;; esac)"
same "stack" "RW" "$(readelf -lW "$library" | awk '$1 == "GNU_STACK" {print $7}')"
same "segments both writable and executable" "" "$(readelf -lW "$library" | awk '$1 == "LOAD" && /RWE/' | head -1)"
same "run paths" "" "$(echo "$dynamic" | grep -E '\((RPATH|RUNPATH)\)' | head -1)"
# The process is the host's: nothing here may end it, print, or touch its locale, signals or exit handlers.
undefined=$(echo "$symbols" | awk '$7 == "UND" {sub(/@.*/, "", $8); print $8}')
forbidden='abort|exit|_exit|_Exit|atexit|on_exit|__assert_fail|signal|sigaction|raise|kill|system|longjmp|__longjmp_chk'
forbidden="$forbidden|setlocale|uselocale|chdir|setenv|putenv|srand|rand"
forbidden="$forbidden|printf|__printf_chk|puts|putchar|perror|stdout|stderr"
same "forbidden imports" "" "$(echo "$undefined" | grep -xE "$forbidden" | paste -sd ' ' -)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
