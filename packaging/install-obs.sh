#!/bin/sh
# Puts the OBS plugin where OBS looks for it, or takes it away again.
# usage: install-obs.sh install|uninstall BUILD_DIR user|system|windows      DESTDIR is honoured; windows: puts the folder
# together that belongs into %ProgramData%\obs-studio\plugins, as BUILD_DIR/davy-obs.
set -eu
what=$1 build=$2 where=$3
plugin=davy-obs.so library=libdavy.so.1
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
windows)
    base=${DESTDIR:-}$build/davy-obs
    module=$base/bin/64bit data=$base/data lib=$module
    plugin=davy-obs.dll library=davy-1.dll ;;
*) echo "install-obs: user, system or windows, not '$where'" >&2; exit 2 ;;
esac
case $what in
install)
    [ -f "$build/$plugin" ] || { echo "install-obs: $build/$plugin is not there: install libobs-dev and build again" >&2; exit 1; }
    mkdir -p "$module" "$data/locale" "$data/models" "$lib"
    install -m 755 "$build/$plugin" "$module/$plugin"
    install -m 755 "$build/$library" "$lib/$library"
    install -m 644 "$root"/plugins/obs/data/locale/*.ini "$data/locale/"
    install -m 644 "$root/plugins/obs/data/manifest.json" "$root"/plugins/obs/data/*.effect "$data/"
    install -m 644 "$root"/packaging/models/*.safetensors "$data/models/"
    install -m 644 "$root/plugins/obs/COPYING" "$root/LICENSE" "$build"/licenses/* "$data/"
    echo "the davy filters are in $base; restart OBS" ;;
uninstall)
    rm -rf "$base"
    rm -f "$module/$plugin"
    echo "the davy filters are gone" ;;
*) echo "install-obs: install or uninstall, not '$what'" >&2; exit 2 ;;
esac
