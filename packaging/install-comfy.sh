#!/bin/sh
# Puts the node pack into a ComfyUI, or takes it away again: one folder, custom_nodes/davy.
# usage: install-comfy.sh install|uninstall BUILD_DIR COMFYUI_DIR
set -eu
what=$1 build=$2 dir=${3:-}
root=$(cd "$(dirname "$0")/.." && pwd)
[ -n "$dir" ] || { echo "install-comfy: say where ComfyUI is: make $what-comfy DIR=/path/to/ComfyUI" >&2; exit 2; }
case $(basename "$dir") in custom_nodes) nodes=$dir ;; *) nodes=$dir/custom_nodes ;; esac
[ -d "$nodes" ] || { echo "install-comfy: $nodes is not there: is $dir a ComfyUI?" >&2; exit 1; }
pack=$nodes/davy
if [ -e "$pack" ] && ! grep -q '^DisplayName = "davy"' "$pack/pyproject.toml" 2>/dev/null; then
    echo "install-comfy: $pack is there and is not davy's: left alone" >&2
    exit 1
fi
case $what in
install) [ -f "$build/libdavy.so.1" ] || { echo "install-comfy: $build/libdavy.so.1 is not there: run make build" >&2; exit 1; } ;;
uninstall) ;;
*) echo "install-comfy: install or uninstall, not '$what'" >&2; exit 2 ;;
esac
if [ -L "$pack" ]; then rm "$pack"; else rm -rf "$pack"; fi
case $what in
install)
    trap 'rm -rf "$pack"' EXIT
    mkdir "$pack" "$pack/bin"
    (cd "$root/plugins/comfy" && tar -cf - --exclude=__pycache__ --exclude=./bin .) | tar -xf - -C "$pack"
    install -m 755 "$build/libdavy.so.1" "$pack/bin/libdavy.so.1"
    install -m 644 "$root"/packaging/models/*.safetensors "$build"/licenses/* "$pack/bin/"
    trap - EXIT
    echo "the davy nodes are in $pack; restart ComfyUI" ;;
uninstall) echo "the davy nodes are gone" ;;
esac
