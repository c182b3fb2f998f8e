/* main.c - kcheck: tests, times and lists every kernel of this build, the CPU's or, with --cuda, the GPU's. The only
 * list of ops with cases is here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kcheck/kcheck.h"

/* A suite's number seeds its problems: new ones go to the end, so that the others' stay what they are. */
const kc_suite *const kc_suites[] = {
    &kc_suite_conv2d,
    &kc_suite_pointwise,
    &kc_suite_group_norm_stats,
    &kc_suite_group_norm_finish,
    &kc_suite_attention,
    &kc_suite_window_attention,
    &kc_suite_channel_attention,
    &kc_suite_upsample,
    &kc_suite_pixel_shuffle,
    &kc_suite_pixel_unshuffle,
    &kc_suite_pad,
    &kc_suite_depthwise,
    &kc_suite_multiply,
    &kc_suite_mean,
    &kc_suite_max_pool,
    &kc_suite_resize,
    &kc_suite_dysample,
    &kc_suite_load,
    &kc_suite_store,
    &kc_suite_blend,
    &kc_suite_load_yuv,
    &kc_suite_store_yuv,
    &kc_suite_linear,
    &kc_suite_embed,
    &kc_suite_row_norm,
    &kc_suite_row_convert,
    &kc_suite_gather_rows,
    &kc_suite_add_rows,
    &kc_suite_argmax,
    &kc_suite_candidates,
    &kc_suite_patches,
    &kc_suite_rope,
    &kc_suite_rope_table,
    &kc_suite_rope_qkv,
    &kc_suite_attention_kv,
    &kc_suite_paged_rope,
    &kc_suite_paged_attention_kv,
    &kc_suite_attention_new,
    &kc_suite_cuda_conv2d,
    &kc_suite_cuda_depthwise,
    &kc_suite_norm_depthwise,
    &kc_suite_cuda_group_norm_stats,
    &kc_suite_cuda_group_norm_finish,
    &kc_suite_cuda_attention,
    &kc_suite_cuda_pointwise,
    &kc_suite_cuda_linear,
    &kc_suite_cuda_linear_changed,
    &kc_suite_cuda_attention_kv,
    &kc_suite_similarity,
    &kc_suite_mix,
    &kc_suite_order,
    &kc_suite_gather,
    &kc_suite_scatter,
    &kc_suite_refine,
    &kc_suite_fold,
    &kc_suite_unfold,
    &kc_suite_cuda_small_conv2d,
    &kc_suite_norm_mlp,
    &kc_suite_norm_window,
    &kc_suite_winograd_input,
    &kc_suite_conv2d_winograd,
    &kc_suite_attention_out,
    &kc_suite_next_token,
    &kc_suite_excite,
    &kc_suite_up_conv,
    &kc_suite_conv_down,
    &kc_suite_conv2d_winograd_band,
};
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
    "usage: kcheck [--test[=PATTERN] | --bench[=PATTERN] | --support] [--cpu NAME] [--seed N] [--csv FILE] [-v]\n"
    "       kcheck --cuda [--test[=PATTERN] | --bench[=PATTERN] | --support] [--sm N] [--quick] [--seed N]\n"
    "              [--case TEXT] [-v]\n"
    "  PATTERN  part of \"op variant\", such as \"conv2d cpu/avx512\", \"cpu/avx2\" or \"cuda/mma bf16\"\n"
    "  NAME     use no more than: baseline, avx2, avx512, avx512vnni, avx512bf16, amx\n"
    "  --case   times only problems whose description has TEXT in it\n"
    "  --sm N   take the kernels that a device of compute capability N (75, 80, ...) would\n"
    "  --quick  a few small cases of each op, for runs under compute-sanitizer\n";

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

/* The table of docs/ops.md: every variant of every op, and what it needs. */
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
    fprintf(stderr, "kcheck: --cpu: no such set: %s\n%s", name, usage);
    return 0;
}

enum { TEST, BENCH, SUPPORT };

static int parse(int argc, char **argv, kc_options *o, int *mode, int *cuda) {
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        const char *equals = strchr(a, '=');
        const size_t length = equals != NULL ? (size_t)(equals - a) : strlen(a);
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if ((length == 6 && memcmp(a, "--test", 6) == 0) || (length == 7 && memcmp(a, "--bench", 7) == 0)) {
            *mode = length == 6 ? TEST : BENCH;
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
    static int (*const modes[2][3])(const kc_options *) = {{kc_check, kc_bench, support},
                                                           {kc_cuda_check, kc_cuda_bench, kc_cuda_support}};
    kc_options o = {.cpu = dvk_cpu_detect(), .seed = 1};
    int mode = TEST;
    int cuda = 0;
    return parse(argc, argv, &o, &mode, &cuda) ? modes[cuda][mode](&o) : 2;
}
