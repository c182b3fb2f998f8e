#!/bin/sh
# source.sh PACKAGE FILE FOLDER - prints a folder with FILE from a Debian source package, fetched once into FOLDER; the
# system's package lists are not touched and root is not needed.
set -eu
package=$1 file=$2
mkdir -p "$3"
sources=$(cd "$3" && pwd)

# The system's sources as deb-src, with lists and cache of our own.
fetch() {
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
    (cd "$sources" && { apt-get $apt update || true; } && apt-get $apt source "$package")
}

find_file() {
    find "$sources" -maxdepth 3 -path "*/$package-*/$file" 2>/dev/null | head -n 1
}

[ -n "$(find_file)" ] || fetch >"$sources/fetch.log" 2>&1 || true
found=$(find_file)
if [ -z "$found" ]; then
    cat "$sources/fetch.log" >&2
    echo "$file of Debian's source package $package could not be fetched" >&2
    exit 1
fi
dirname "$found"
