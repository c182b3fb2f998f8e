#!/bin/sh
# device_code.sh - tests the choices of packaging/cuda.sh on machines with and without nvcc and cards. Programs written by this
# test replace nvcc and nvidia-smi. Ends `N passed, N failed`.
set -u
cuda=$(cd "$(dirname "$0")/../../packaging" && pwd)/cuda.sh
passed=0
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The tools that cuda.sh uses, without this machine's nvcc and nvidia-smi.
mkdir "$work/tools"
for tool in sh awk cat chmod dirname echo grep mkdir paste printf readlink rm sed sort tr; do
    ln -s "$(command -v $tool)" "$work/tools/$tool" 2>/dev/null || true # a shell may have it built in
done

# Starts another, empty machine.
machine() {
    rm -rf "$work/root" "$work/bin" "$work/build"
    mkdir -p "$work/root" "$work/bin" "$work/build"
}

# program PATH LINES...: prints them
program() {
    mkdir -p "$(dirname "$1")"
    at=$1
    shift
    { echo '#!/bin/sh' && printf '%s\n' "$@"; } >"$at"
    chmod +x "$at"
}

nvcc() { program "$1" "echo 'Cuda compilation tools, release $2, V$2.88'"; }
cards() { program "$work/bin/nvidia-smi" '[ "$*" = "--query-gpu=compute_cap --format=csv,noheader" ] && printf "%s\n" '"$*"; }

run() {
    env -i PATH="$work/bin:$work/tools" DAVY_PROBE_ROOT="$work/root" "$work/tools/sh" "$cuda" "$@" 2>&1
}

# chooses CHOICE TARGETS WORDS: the resulting targets, and words of the message
chooses() {
    said=$(run choose "$work/build" "$1")
    if [ "$(echo "$said" | sed -n 1p)" = "$2" ] && [ "$(echo "$said" | wc -l)" -eq 3 ] && echo "$said" | sed -n 3p | grep -qF "$3"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL "%s": expected targets "%s" and "%s", found:\n%s\n' "$1" "$2" "$3" "$said" >&2
    fi
}

# refuses CHOICE WORDS
refuses() {
    if ! said=$(run choose "$work/build" "$1") && echo "$said" | grep -qF "$2"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL "%s": expected a refusal with "%s", found:\n%s\n' "$1" "$2" "$said" >&2
    fi
}

# installs yes|no [CHOICE]: whether pip is called, which brings an nvcc here
installs() {
    want=$1
    shift
    rm -rf "$work/build/nvcc"
    program "$work/bin/python3" 'for a; do case $before in --target) folder=$a ;; esac; before=$a; done' '[ "$3" = --version ] && exit 0' \
        'case "$*" in *--require-hashes*nvcc.txt) ;; *) exit 1 ;; esac' 'mkdir -p "$folder/nvidia/cu13/bin"' \
        'printf "#!/bin/sh\necho release 13.0, V13.0.88\n" >"$folder/nvidia/cu13/bin/nvcc"' 'chmod +x "$folder/nvidia/cu13/bin/nvcc"'
    said=$(run install "$work/build" "$@")
    code=$?
    there=no
    [ -x "$work/build/nvcc/nvidia/cu13/bin/nvcc" ] && there=yes
    if [ $code -eq 0 ] && [ "$there" = "$want" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL install %s: expected %s, found %s, exit %d:\n%s\n' "$*" "$want" "$there" $code "$said" >&2
    fi
}

machine # neither
installs no
chooses auto "" "none (no NVIDIA card, no nvcc)"
chooses off "" "none (as asked)"
refuses native "no NVIDIA card"
refuses 90a "make build CUDA=90a"
refuses nonsense 'found "nonsense"'
refuses 90a,x "expected auto"
installs yes 90a,120
chooses 90a,120 "90a;120" "build/nvcc/nvidia/cu13/bin/nvcc"

machine # nvcc alone, where its installer puts it
nvcc "$work/root/usr/local/cuda/bin/nvcc" 13.0
installs no
installs no 90a
chooses auto 90a "no NVIDIA card here, by $work/root/usr/local/cuda/bin/nvcc"
chooses all all "as asked"
chooses 80 80 "as asked"
refuses native "no NVIDIA card"

machine # nvcc on the path and cards, one too old for davy, two alike
nvcc "$work/bin/nvcc" 13.1
cards 12.0 9.0 12.0 6.1
installs no
chooses auto "90a;120" "90a 120 (the cards in this machine, by $work/bin/nvcc)"
chooses native "90a;120" "the cards"
chooses off "" "as asked"
cards 8.9
chooses auto 89 "the cards"
cards 10.0
chooses auto 100 "the cards"

machine # a card alone
cards 8.6
chooses auto "" "a card, but no nvcc"
refuses native "make build CUDA=native"
installs no off
echo 'DAVY_CUDA_TARGETS:STRING=off' >"$work/build/CMakeCache.txt" # the build was told so before
installs no
echo 'DAVY_CUDA_TARGETS:STRING=' >"$work/build/CMakeCache.txt"
installs no
installs yes auto
echo 'DAVY_CUDA_TARGETS:STRING=auto' >"$work/build/CMakeCache.txt"
installs yes
chooses auto 86 "the cards in this machine, by $work/build/nvcc"

machine # an nvcc that is too old, as Debian has, and a driver that does not work
nvcc "$work/bin/nvcc" 11.8
program "$work/bin/nvidia-smi" "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver. 9.0'" "exit 9"
chooses auto "" "$work/bin/nvcc is older than 13.0"
installs no
cards 7.5
installs yes
chooses auto 75 "build/nvcc"

machine # no nvidia-smi, as in containers
mkdir -p "$work/root/proc/driver/nvidia/gpus/0000:01:00.0"
installs yes
program "$work/build/nvcc/nvidia/cu13/bin/__nvcc_device_query" "printf '%s' 89,120"
chooses auto "89;120" "the cards"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
