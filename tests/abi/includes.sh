#!/bin/sh
# includes.sh - dependencies point one way: plugins -> abi <- core -> kernels. Reads the #include lines of every source.
# Ends `N passed, N failed`.
set -u
cd "$(dirname "$0")/../.." || exit 1
passed=0
failed=0

# rule NAME ALLOWED_REGEX FILE...: every quoted include of the files matches.
rule() {
    name=$1 allowed=$2
    shift 2
    bad=$(grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$@" /dev/null |
        grep -vE "include[[:space:]]*\"($allowed)\"")
    verdict "$name" "$bad"
}

# without NAME REGEX FILE...: no include of the files, quoted or not, matches.
without() {
    name=$1 forbidden=$2
    shift 2
    bad=$(grep -HniE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($forbidden)" "$@" /dev/null)
    verdict "$name" "$bad"
}

verdict() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL %s\n%s\n' "$1" "$2" >&2
    fi
}

sources() {
    find "$@" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' -o -name '*.cpp' -o -name '*.hpp' | sort
}

# shellcheck disable=SC2046 # file names of this project have no spaces
{
    without "abi/ stands alone" '(core|kernels|plugins|tests)/' $(sources abi)
    rule "plugins see only abi/ and their own files" \
        'abi/(davy|davy_loader)\.h|plugins/[a-z]+/([a-z]+/)?[a-z0-9_]+\.h|[a-z0-9_]+\.h' \
        $(sources plugins)
    for plugin in plugins/*/; do
        plugin=$(basename "$plugin")
        others=$(for p in plugins/*/; do basename "$p"; done | grep -vx "$plugin" | paste -sd '|' -)
        without "plugins/$plugin includes no other plugin" "plugins/($others)/" $(sources "plugins/$plugin")
    done
    rule "kernels include only kernels" 'kernels/[a-z0-9_/]+\.(h|cuh|def)' $(sources kernels)
    rule "kernels/ref is plain C over op.h" 'kernels/(op|kernel|dtype|dictionary|int8|yuv|lm|norm_conv|norm_depthwise|excite|conv_down|up_conv|winograd_band|quant|paging|swin|window|ref/[a-z0-9_]+)\.h' $(sources kernels/ref)
    rule "core includes only abi, core and the kernels' front" \
        'abi/davy\.h|core/[a-z0-9_/]+\.(h|def)|kernels/(kernel|op|ops|dtype|normal|lm|quant|costs/cuda_costs|cuda/(cuda|pixels/(alpha|bleed|posterior)|linear/linear_layout|window/swin_pack))\.h' $(sources core | grep -v '^core/\(arch\|block\)/')
    rule "architectures see only arch.h, graph.h and blocks" \
        'core/(arch/arch|graph/(graph|network))\.h|core/block/[a-z0-9_]+\.h|core/base/(common|error|mem|product|json|utf8)\.h|core/file/tensors\.h' \
        $(sources core/arch core/block)
    without "within the library only core/base/json.c knows cJSON" '([a-z]+/)*cjson' \
        $(sources core kernels | grep -v '^core/base/json\.c$')
    without "CUDA's own headers are for device code" 'cuda|cudnn|cublas|nvrtc|driver_types|vector_types|mma' \
        $(sources abi core kernels plugins tests | grep -v '\.cuh\{0,1\}$')
    without "the system is met in os_*.c and cpu_detect.c alone" '(windows|unistd|pthread|dlfcn|fcntl|sys/[a-z]+)\.h' \
        $(sources core kernels | grep -vE '^(core/base/os_[a-z_]*|kernels/cpu_detect)\.c$')
    without "no C11 threads (mingw has none)" 'threads\.h' $(sources abi core kernels plugins tests)
}
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
