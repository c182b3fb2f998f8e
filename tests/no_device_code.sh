#!/bin/sh
# What `make test` finds on a machine without nvcc and without a card: a build without device code (CUDA=off), and in it the tests
# that would need some, which must say what they skip. Only the table of device code differs from the plain build, so its objects
# are taken. usage: no_device_code.sh PLAIN_BUILD
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
plain=$(cd "$1" && pwd)
build=$plain-no-device-code

cached() {
    sed -n "s/^$1:[A-Z]*=//p" "$plain/CMakeCache.txt"
}

if [ "$(cached DAVY_DEVICE_CODE)" = 0 ]; then
    echo "$plain has no device code itself"
    exit 0
fi
rm -rf "$build" # objects that were copied know no headers
cmake -S "$root" -B "$build" -G Ninja -DDAVY_CUDA_TARGETS=off -DDAVY_OBS=OFF -DDAVY_SHARED="$(cached DAVY_SHARED)" \
    -DCMAKE_BUILD_TYPE="$(cached CMAKE_BUILD_TYPE)" -DCMAKE_C_COMPILER_LAUNCHER="sh;$root/tests/take_object.sh;$plain"
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target plugins/cli/all tests/hosts/all tests/cli/all tests/fault/all
ctest --test-dir "$build" -V -j "${JOBS:-$(nproc)}" --timeout 900 -L device_code
