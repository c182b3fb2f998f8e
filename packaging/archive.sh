#!/bin/sh
# Makes davy-VERSION-linux-x86_64.tar.xz in build-archive/ (or $1): library, program, headers and models, with device code for
# every GPU we ship for (or $2: off, or targets such as 90a,120). JSON and what the program needs for pictures are built in: runs
# where its glibc or a newer one is. Videos take the FFmpeg that is there.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build-archive}
mkdir -p "$build"
build=$(cd "$build" && pwd)
cjson=$(sh "$root/packaging/source.sh" cjson cJSON.c "$build/sources")
spng=$(sh "$root/packaging/source.sh" libspng spng.c "$build/sources")
sh "$root/packaging/cuda.sh" install "$build" "${2:-all}"
cmake -S "$root" -B "$build" -G Ninja -DDAVY_CJSON_SOURCE="$cjson" -DDAVY_SPNG_SOURCE="$spng" -DDAVY_CUDA_TARGETS="${2:-all}" \
    -DDAVY_TESTS=OFF
cmake --build "$build" -j "${JOBS:-$(nproc)}"
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=davy-$version-linux-$(uname -m)
rm -rf "${build:?}/$name"
DESTDIR= cmake --install "$build" --prefix "$build/$name" --strip >/dev/null
for built_in in jpeg webp z; do
    package=$(dpkg -S "$(realpath "$(gcc -print-file-name=lib$built_in.a)")" | cut -d: -f1)
    cp "/usr/share/doc/$package/copyright" "$build/$name/share/doc/davy/$package-license.txt"
done
tar -C "$build" -cJf "$build/$name.tar.xz" "$name"
ls -l "$build/$name.tar.xz"
