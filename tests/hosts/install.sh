#!/bin/sh
# install.sh BUILD - runs the programs that `cmake --install` has installed. Ends `N passed, N failed`.
set -u
build=$1
to=$(mktemp -d "$build/install-XXXXXX") || exit 1
trap 'rm -rf "$to"' EXIT
. "$(dirname "$0")/check.sh"

unset DAVY_LIBRARY LD_LIBRARY_PATH
check "installs" cmake --install "$build" --prefix "$to/a"
check "moves" mv "$to/a" "$to/b"
check "finds its library" "$to/b/bin/davy" devices
check "finds its models" "$to/b/bin/davy" inspect "$to/b/share/davy/models/davy-live-x2.safetensors"
if [ -e "$build/davy-video.so" ]; then # a black frame of 16 x 16
    { printf 'YUV4MPEG2 W16 H16 F30:1 Ip A1:1 C420mpeg2\nFRAME\n' && head -c 384 /dev/zero; } >"$to/clip.y4m"
    check "finds what videos need" "$to/b/bin/davy" upscale "$to/clip.y4m" -o "$to/large.y4m" --device cpu
fi
check "brings the licences" test -s "$to/b/share/doc/davy/LICENSE" -a -s "$to/b/share/doc/davy/unicode-license.txt"
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
