#!/bin/sh
# Prints a folder with cJSON.c from its Debian source package, fetched once into the folder $1; the system's package lists
# are not touched and root is not needed.
set -eu
mkdir -p "$1"
sources=$(cd "$1" && pwd)

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

[ -n "$(find_cjson)" ] || fetch_cjson >"$sources/fetch.log" 2>&1 || true
cjson=$(find_cjson)
if [ -z "$cjson" ]; then
    cat "$sources/fetch.log" >&2
    echo "cJSON's Debian source package could not be fetched" >&2
    exit 1
fi
dirname "$cjson"
