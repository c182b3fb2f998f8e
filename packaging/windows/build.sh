#!/bin/sh
# Cross-builds davy-1.dll and the C clients for Windows into build-windows/ (or $1). Device code is taken from the folder
# DAVY_CUDA_FATBINS where that is set, else compiled as $2 says (CUDA in the Makefile).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build-windows}
mkdir -p "$build"
build=$(cd "$build" && pwd)
cjson=$(sh "$root/packaging/source.sh" cjson cJSON.c "$build/sources")
[ -n "${DAVY_CUDA_FATBINS:-}" ] || sh "$root/packaging/cuda.sh" install "$build" "${2:-}"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$root/packaging/windows/mingw.cmake" \
    -DDAVY_CJSON_SOURCE="$cjson" -DDAVY_CUDA_FATBINS="${DAVY_CUDA_FATBINS:-}" ${2:+-DDAVY_CUDA_TARGETS="$2"}
cmake --build "$build" -j "${JOBS:-$(nproc)}"
echo "windows: $build/davy-1.dll"
