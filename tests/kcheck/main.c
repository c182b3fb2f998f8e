/* main.c - kcheck: tests, times and lists every kernel of this build: those of the CPU, or with --cuda those of the
 * GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kcheck/fit.h"

const kc_suite *const kc_suites[] = {
#define KC_ENTRY(name) &kc_suite_##name,
#define DVK_OP(op)     KC_ENTRY(op)
#include "kernels/ops.def"
    KC_MORE_SUITES(KC_ENTRY)};
const int kc_suite_count = (int)(sizeof kc_suites / sizeof kc_suites[0]);

static const struct {
    const char *name;
    uint32_t bits;
} cpus[] = {
    {"baseline", 0},
    {"avx2", DVK_CPU_AVX2},
    {"avx512", DVK_CPU_AVX2 | DVK_CPU_AVX512},
    {"avx512vnni", DVK_CPU_AVX2 | DVK_CPU_AVX512 | DVK_CPU_VNNI},
    {"avx512bf16", DVK_CPU_AVX2 | DVK_CPU_AVX512 | DVK_CPU_VNNI | DVK_CPU_AVX512BF16},
    {"amx", DVK_CPU_AVX2 | DVK_CPU_AVX512 | DVK_CPU_VNNI | DVK_CPU_AVX512BF16 | DVK_CPU_AMX},
};

enum { N_CPUS = (int)(sizeof cpus / sizeof cpus[0]) };

static const char usage[] =
    "usage: kcheck [--test[=PATTERN] | --bench[=PATTERN] | --fit[=PATTERN] | --support] [--cpu NAME] [--seed N] [--csv "
    "FILE] [-v]\n"
    "       kcheck --cuda [--test[=PATTERN] | --bench[=PATTERN] | --fit[=PATTERN] | --support] [--sm N] [--quick] "
    "[--seed N]\n"
    "              [--case TEXT] [-v]\n"
    "  PATTERN  part of \"op variant\", such as \"conv2d cpu/avx512\", \"cpu/avx2\" or \"cuda/mma bf16\"\n"
    "  NAME     instruction sets to use: up to baseline, avx2, avx512, avx512vnni, avx512bf16, amx\n"
    "  --fit    times like --bench and writes cost tables into this folder (docs/tuning.md)\n"
    "  --case   times only problems whose description contains TEXT\n"
    "  --sm N   choose kernels as on a device of compute capability N (75, 80, ...)\n"
    "  --quick  runs a few small cases of each op, for runs under compute-sanitizer\n";

int kc_selected(const kc_options *o, const dvk_kernel *k) {
    char name[96];
    snprintf(name, sizeof name, "%s %s", k->op, k->variant);
    return (k->cpu & ~o->cpu) == 0 && (o->pattern == NULL || strstr(name, o->pattern) != NULL);
}

static const char *needs(uint32_t bits) {
    for (int i = 0; i < N_CPUS; i++) {
        if ((bits & ~cpus[i].bits) == 0) {
            return cpus[i].name;
        }
    }
    return "?";
}

/* Prints the table of `kcheck --support`: every kernel of every op, and its requirements. */
static int support(const kc_options *o) {
    printf("| op | variant | needs | computes in | usable here |\n|---|---|---|---|---|\n");
    for (int s = 0; s < kc_suite_count; s++) {
        for (int k = 0; k < dvk_kernel_count; k++) {
            const dvk_kernel *kernel = dvk_kernels[k];
            if (!kc_suites[s]->only_cuda && strcmp(kernel->op, kc_suites[s]->op) == 0 &&
                (o->pattern == NULL || strstr(kernel->variant, o->pattern) != NULL)) {
                printf("| %s | %s | %s | %s | %s |\n", kernel->op, kernel->variant, needs(kernel->cpu),
                       kc_dtype_name(kernel->compute), (kernel->cpu & ~o->cpu) == 0 ? "yes" : "no");
            }
        }
    }
    return 0;
}

static int parse_cpu(const char *name, uint32_t *cpu) {
    for (int i = 0; i < N_CPUS; i++) {
        if (strcmp(name, cpus[i].name) == 0) {
            *cpu &= cpus[i].bits;
            return 1;
        }
    }
    fprintf(stderr, "kcheck: --cpu %s: unknown instruction set\n%s", name, usage);
    return 0;
}

enum { TEST, BENCH, SUPPORT, FIT };

static int parse(int argc, char **argv, kc_options *o, int *mode, int *cuda) {
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        const char *equals = strchr(a, '=');
        const size_t length = equals != NULL ? (size_t)(equals - a) : strlen(a);
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if ((length == 6 && memcmp(a, "--test", 6) == 0) || (length == 7 && memcmp(a, "--bench", 7) == 0)) {
            *mode = length == 6 ? TEST : BENCH;
            o->pattern = equals != NULL ? equals + 1 : NULL;
        } else if (length == 5 && memcmp(a, "--fit", 5) == 0) {
            *mode = FIT;
            o->pattern = equals != NULL ? equals + 1 : NULL;
        } else if (strcmp(a, "--support") == 0) {
            *mode = SUPPORT;
        } else if (strcmp(a, "--cuda") == 0) {
            *cuda = 1;
        } else if (strcmp(a, "--quick") == 0) {
            o->quick = 1;
        } else if (strcmp(a, "-v") == 0) {
            o->verbose = 1;
        } else if (strcmp(a, "--cpu") == 0 && next != NULL) {
            if (!parse_cpu(argv[++i], &o->cpu)) {
                return 0;
            }
        } else if (strcmp(a, "--sm") == 0 && next != NULL) {
            o->sm = (int)strtol(argv[++i], NULL, 10);
        } else if (strcmp(a, "--case") == 0 && next != NULL) {
            o->text = argv[++i];
        } else if (strcmp(a, "--seed") == 0 && next != NULL) {
            o->seed = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(a, "--csv") == 0 && next != NULL) {
            o->csv = argv[++i];
        } else {
            fputs(usage, stderr);
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    static int (*const modes[2][4])(const kc_options *) = {{kc_check, kc_bench, support, kc_fit_processor},
                                                           {kc_cuda_check, kc_cuda_bench, kc_cuda_support, kc_fit_gpu}};
    kc_options o = {.cpu = dvk_cpu_detect(), .seed = 1};
    int mode = TEST;
    int cuda = 0;
    return parse(argc, argv, &o, &mode, &cuda) ? modes[cuda][mode](&o) : 2;
}
