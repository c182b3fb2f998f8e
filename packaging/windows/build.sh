#!/bin/sh
# Cross-builds davy-1.dll and the C clients for Windows into build-windows/ (or $1). cJSON comes from its Debian source
# package, fetched once and kept beside the build; the system's package lists are not touched and root is not needed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build-windows}
mkdir -p "$build"
build=$(cd "$build" && pwd)
sources=$build/sources

# The system's sources as deb-src, with lists and cache of our own.
fetch_cjson() {
    mkdir -p "$sources/parts" "$sources/lists/partial" "$sources/cache/archives/partial"
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -e "$list" ] && sed -n 's/^[[:space:]]*deb[[:space:]]/deb-src /p' "$list" >"$sources/parts/$(basename "$list" .list).list"
    done
    for list in /etc/apt/sources.list.d/*.sources; do
        [ -e "$list" ] && sed 's/^Types:.*/Types: deb-src/' "$list" >"$sources/parts/$(basename "$list")"
    done
    apt="-qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$sources/parts -o Dir::State::lists=$sources/lists
        -o Dir::Cache=$sources/cache -o Debug::NoLocking=1 -o APT::Sandbox::User="
    # A source without deb-src makes update complain; what counts is whether the package arrives.
    # shellcheck disable=SC2086
    (cd "$sources" && { apt-get $apt update || true; } && apt-get $apt source cjson)
}

find_cjson() {
    find "$sources" -maxdepth 2 -path '*/cjson-*/cJSON.c' 2>/dev/null | head -n 1
}

[ -n "$(find_cjson)" ] || fetch_cjson >"$build/fetch.log" 2>&1 || true
cjson=$(find_cjson)
if [ -z "$cjson" ]; then
    cat "$build/fetch.log" >&2
    echo "windows: cJSON's Debian source package could not be fetched" >&2
    exit 1
fi

cmake -S "$root" -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$root/packaging/windows/mingw.cmake" \
    -DDAVY_CJSON_SOURCE="$(dirname "$cjson")"
cmake --build "$build" -j "${JOBS:-$(nproc)}"
echo "windows: $build/davy-1.dll"
