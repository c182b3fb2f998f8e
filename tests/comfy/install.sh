#!/bin/sh
# install.sh BUILD WORK - tests that the installed node pack works on its own, and that its removal leaves no files. Prints
# `N passed, N failed` last.
set -u
build=$1
here=$(cd "$(dirname "$0")" && pwd)
script=$here/../../packaging/install-comfy.sh
mkdir -p "$2"
to=$(mktemp -d "$2/install-XXXXXX") || exit 1
trap 'rm -rf "$to"' EXIT
. "$here/../hosts/check.sh"
fails() { ! "$@"; }
same() { (cd "$to/ComfyUI" && find . | sort | cmp - "$to/before"); }

unset DAVY_LIBRARY DAVY_MODELS LD_LIBRARY_PATH
mkdir -p "$to/ComfyUI/custom_nodes/other" "$to/ComfyUI/models"
(cd "$to/ComfyUI" && find . | sort) >"$to/before"
check "installs" sh "$script" install "$build" "$to/ComfyUI"
check "installs again, given custom_nodes" sh "$script" install "$build" "$to/ComfyUI/custom_nodes"
check "works in ComfyUI's folder" env DAVY_PACK="$to/ComfyUI/custom_nodes/davy" "${PYTHON:-/usr/bin/python3}" "$here/nodes.py" "$to/work"
check "brings the licences" test -s "$to/ComfyUI/custom_nodes/davy/bin/unicode-license.txt" -a -s "$to/ComfyUI/custom_nodes/davy/LICENSE"
check "uninstalls" sh "$script" uninstall "$build" "$to/ComfyUI"
check "leaves nothing" same
mkdir "$to/ComfyUI/custom_nodes/davy"
check "keeps a folder that is not davy's" fails sh "$script" uninstall "$build" "$to/ComfyUI"
check "rejects a missing folder" fails sh "$script" install "$build" "$to/nothing"
rmdir "$to/ComfyUI/custom_nodes/davy"
ln -s "$here/../../plugins/comfy" "$to/ComfyUI/custom_nodes/davy"
check "removes a link" sh "$script" uninstall "$build" "$to/ComfyUI"
check "and keeps its target" test -f "$here/../../plugins/comfy/__init__.py"
check "leaves nothing of a link" same
printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
