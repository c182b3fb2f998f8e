#!/bin/sh
# Makes davy-VERSION-linux-x86_64.tar.xz in build-archive/ (or $1): library, program, headers and models, cJSON built in,
# device code for every GPU we ship for. Runs where its glibc or a newer one is.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build-archive}
mkdir -p "$build"
build=$(cd "$build" && pwd)
cjson=$(sh "$root/packaging/cjson.sh" "$build/sources")
cmake -S "$root" -B "$build" -G Ninja -DDAVY_CJSON_SOURCE="$cjson" -DDAVY_CUDA_TARGETS=all -DDAVY_TESTS=OFF
cmake --build "$build" -j "${JOBS:-$(nproc)}"
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=davy-$version-linux-$(uname -m)
rm -rf "${build:?}/$name"
DESTDIR= cmake --install "$build" --prefix "$build/$name" --strip >/dev/null
tar -C "$build" -cJf "$build/$name.tar.xz" "$name"
ls -l "$build/$name.tar.xz"
