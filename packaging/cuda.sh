#!/bin/sh
# Chooses the device code of a build from what the machine has: nvcc, and the compute capabilities of its NVIDIA cards.
#   cuda.sh install BUILD [CHOICE]   `make build`: installs nvcc from PyPI into BUILD/nvcc where the choice needs one and finds none
#   cuda.sh choose BUILD CHOICE      CMake: prints three lines: the targets with ";" between them ("all" or nothing are possible,
#                                    too), the path of nvcc, and a sentence for the user
# CHOICE is auto, native (the cards in this machine), all, off, or targets such as 90a,120. Without one `install` takes the choice
# that BUILD was configured with. auto is: with nvcc the cards in this machine, else 90a; without nvcc none, but where there is a card
# `install` runs first and brings nvcc. DAVY_PROBE_ROOT: another root to look for a driver and a toolkit in (the test's).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=${DAVY_PROBE_ROOT:-}
verb=$1
build=$2

# What older nvcc make of the sources is not known, and davy needs a driver of CUDA 13 anyway.
old=
find_nvcc() {
    for nvcc in "$(command -v nvcc || true)" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$root/usr/local/cuda/bin/nvcc" \
        "$build/nvcc/nvidia/cu13/bin/nvcc"; do
        if [ -x "$nvcc" ]; then
            release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
            if [ "${release%%.*}" -ge 13 ] 2>/dev/null; then
                return
            fi
            old=" ($nvcc is older than 13.0)"
        fi
    done
    nvcc=
}

# Where nvidia-smi is missing, as in some containers, the toolkit's own program asks the driver.
find_cards() {
    smi=$(command -v nvidia-smi || echo "$root/usr/lib/wsl/lib/nvidia-smi")
    cards=$({ "$smi" --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true; } | sed -n 's/^ *\([0-9]*\)\.\([0-9]\) *$/\1\2/p')
    if [ -z "$cards" ] && [ -n "$nvcc" ] && [ -d "$root/proc/driver/nvidia/gpus" ]; then
        cards=$({ "$(dirname "$(readlink -f "$nvcc")")/__nvcc_device_query" 2>/dev/null || true; } | grep -oE '[0-9]+' || true)
    fi
    # The Hopper kernels need what only 90a has. Cards before 7.5 are too old for davy.
    cards=$(echo "$cards" | awk '$1 >= 75' | sort -nu | sed 's/^90$/90a/' | paste -sd ';' -)
}

has_card() {
    [ -n "$cards" ] || { [ -z "$nvcc" ] && [ -d "$root/proc/driver/nvidia/gpus" ]; }
}

fail() {
    echo "device code: $1" >&2
    exit 1
}

find_nvcc
find_cards

if [ "$verb" = install ]; then
    configured=$(sed -n 's/^DAVY_CUDA_TARGETS:[A-Z]*=\(.*\)$/\1./p' "$build/CMakeCache.txt" 2>/dev/null || true)
    configured=${configured:-auto.}
    choice=${3:-${configured%.}}
    case $choice in
        '' | off) exit 0 ;;
        auto) has_card || exit 0 ;;
    esac
    [ -z "$nvcc" ] || exit 0
    python3 -m pip --version >/dev/null 2>&1 || sh "$here/setup.sh" nvcc
    echo "installing nvcc 13.0 from PyPI (105 MB): $build/nvcc"
    rm -rf "$build/nvcc"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes --target "$build/nvcc" -r "$here/nvcc.txt" ||
        fail "nvcc could not be installed; CUDA=off builds without device code"
    exit 0
fi

choice=$(echo "${3:-off}" | tr ',' ';')
if [ -n "$nvcc" ]; then
    by=", by $nvcc"
fi
case $choice in
    off) targets= why="as asked" nvcc= ;;
    auto)
        if [ -z "$nvcc" ]; then
            targets= why="no NVIDIA card, no nvcc$old"
            has_card && why="a card, but no nvcc$old: \`make build\` installs one"
        elif [ -n "$cards" ]; then
            targets=$cards why="the cards in this machine$by"
        else
            targets=90a why="no NVIDIA card here$by"
        fi
        ;;
    native)
        has_card || fail "there is no NVIDIA card for \"native\""
        targets=$cards why="the cards in this machine${by:-}"
        ;;
    *)
        echo "$choice" | grep -qxE 'all|[0-9]+[af]?(;[0-9]+[af]?)*' ||
            fail "expected auto, native, all, off or targets such as 90a,120, found \"$choice\""
        targets=$choice why="as asked${by:-}"
        ;;
esac
if [ "$choice" != off ] && [ "$choice" != auto ] && [ -z "$nvcc" ]; then
    fail "no nvcc$old for \"$choice\": \`make build CUDA=$choice\` installs one"
fi
printf '%s\n%s\n%s\n' "$targets" "$nvcc" "device code: $(echo "${targets:-none}" | tr ';' ' ') ($why)"
