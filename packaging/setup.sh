#!/bin/sh
# Installs what is missing on Debian to build davy ("build"), to build and test it ("test"), to install nvcc from PyPI ("nvcc"),
# or to make the reference of the header ("docs").
# Does nothing when all is there.
set -eu
what=${1:-build}
packages="gcc g++ cmake ninja-build pkg-config libcjson-dev libspng-dev libpng-dev libjpeg-dev libwebp-dev zlib1g-dev libobs-dev
    libavformat-dev libavcodec-dev libavutil-dev libswscale-dev"
if [ "$what" = test ]; then
    packages="$packages clang libclang-rt-14-dev python3 python3-numpy gcc-mingw-w64-x86-64 wine64 dpkg-dev binutils
        python3-pil python3-torch python3-venv abigail-tools valgrind ca-certificates obs-studio python3-websocket xvfb xauth libgl1-mesa-dri libx11-dev ffmpeg doxygen"
fi
[ "$what" = docs ] && packages="doxygen"
[ "$what" = nvcc ] && packages="python3 python3-pip ca-certificates"
missing=
for p in $packages; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
echo "installing:$missing"
as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: run as root or install:$missing" >&2; exit 1; }
    as_root=sudo
fi
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
