#!/bin/sh
# Puts the OBS plugin where OBS looks for it, or takes it away again.
# usage: install-obs.sh install|uninstall BUILD_DIR user|system      DESTDIR is honoured.
set -eu
what=$1 build=$2 where=$3
root=$(cd "$(dirname "$0")/.." && pwd)
case $where in
user)
    base=${DESTDIR:-}${XDG_CONFIG_HOME:-$HOME/.config}/obs-studio/plugins/davy-obs
    module=$base/bin/64bit data=$base/data lib=$module ;;
system)
    triplet=$(gcc -dumpmachine 2>/dev/null || echo x86_64-linux-gnu)
    module=${DESTDIR:-}/usr/lib/$triplet/obs-plugins
    base=${DESTDIR:-}/usr/share/obs/obs-plugins/davy-obs
    data=$base lib=$base/lib ;;
*) echo "install-obs: user or system, not '$where'" >&2; exit 2 ;;
esac
case $what in
install)
    [ -f "$build/davy-obs.so" ] || { echo "install-obs: $build/davy-obs.so is not there: install libobs-dev and build again" >&2; exit 1; }
    mkdir -p "$module" "$data/locale" "$data/models" "$lib"
    install -m 755 "$build/davy-obs.so" "$module/davy-obs.so"
    install -m 755 "$build/libdavy.so.1" "$lib/libdavy.so.1"
    install -m 644 "$root"/plugins/obs/data/locale/*.ini "$data/locale/"
    install -m 644 "$root/plugins/obs/data/manifest.json" "$data/"
    install -m 644 "$root"/packaging/models/*.safetensors "$data/models/"
    install -m 644 "$root/plugins/obs/COPYING" "$data/"
    echo "the davy filters are in $base; restart OBS" ;;
uninstall)
    rm -rf "$base"
    rm -f "$module/davy-obs.so"
    echo "the davy filters are gone" ;;
*) echo "install-obs: install or uninstall, not '$what'" >&2; exit 2 ;;
esac
