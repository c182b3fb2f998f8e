/* cases_mixer.c - problems for the neighbours of a depthwise convolution: the product of the two halves of its
 * channels, and norm_depthwise. */
#include <stdio.h>

#include "kernels/dtype.h"
#include "tests/kcheck/cases.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

/* --- depthwise, for CUDA only: products of the two halves of the channels --- */

static void paired_make(kc_problem *p, const kc_shape *shape, int32_t k, dvk_act act, dvk_dtype t, int slab) {
    dvk_depthwise_args *a = &p->args.depthwise;
    const kc_shape wide = {shape->n, shape->h, shape->w, 2 * shape->c};
    *a = (dvk_depthwise_args){.kh = k, .kw = k, .pad_top = k / 2, .pad_left = k / 2, .paired = 1};
    a->epi = (dvk_epilogue){.alpha = 1.0f, .act = act};
    kc_view(p, &a->x, t, wide, slab);
    kc_fill_view(p, &a->x, KC_NORMAL);
    kc_view(p, &a->y, t, *shape, slab);
    a->w = kc_floats(p, (int64_t)k * k * wide.c, -0.5f, 0.5f);
    if (act != DVK_ACT_NONE) {
        a->epi.bias = kc_floats(p, wide.c, -1.0f, 1.0f);
    }
    kc_output_view(p, &a->y);
    p->error_class = KC_SUMS;
    p->bytes = kc_view_bytes(&a->x) + kc_view_bytes(&a->y);
    p->flops = 2.0 * (double)(shape->n * shape->h * shape->w * wide.c) * (double)(k * k);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld paired k%d %s act %d slab %d", (long long)shape->n,
             (long long)shape->h, (long long)shape->w, (long long)shape->c, (int)k, kc_dtype_name(t), (int)act, slab);
}

static const kc_shape pairs[] = {{1, 1, 1, 8}, {2, 9, 17, 24}, {1, 8, 16, 32}, {1, 33, 35, 64}, {1, 19, 70, 128}};

enum { N_PAIRS = (int)(sizeof pairs / sizeof pairs[0]) };

static int paired_count(void) {
    return N_PAIRS * 8;
}

static void paired_build(kc_problem *p, int i) {
    const int j = i / N_PAIRS;
    paired_make(p, &pairs[i % N_PAIRS], j % 4 < 2 ? 3 : 5, j / 4 ? DVK_ACT_GELU : DVK_ACT_NONE,
                j % 2 ? DVK_BF16 : DVK_F16, i % 3 == 1);
}

static int paired_bench_count(void) {
    return 1;
}

static void paired_bench(kc_problem *p, int i) {
    (void)i;
    paired_make(p, &(kc_shape){1, 512, 512, 64}, 3, DVK_ACT_GELU, DVK_BF16, 0);
}

/* --- norm_depthwise --- */

typedef struct mixer_spec {
    kc_shape shape;
    int64_t hidden;
    int gated, biases, res, slab;
    dvk_act act;
    int plain;
    float mean; /* of x */
} mixer_spec;

static void lift(const dvk_view *v, float by) {
    for (int64_t i = 0; i < v->n * v->h * v->w; i++) {
        const int64_t at = i / (v->h * v->w) * v->sn + i / v->w % v->h * v->sh + i % v->w * v->sw;
        for (int64_t c = 0; c < v->c; c++) {
            dvk_store(v->data, v->dtype, at + c, dvk_load(v->data, v->dtype, at + c) + by);
        }
    }
}

static void mixer_make(kc_problem *p, const mixer_spec *s, dvk_dtype t) {
    dvk_norm_depthwise_args *a = &p->args.norm_depthwise;
    const int64_t c = s->shape.c, out = s->gated ? c : s->hidden;
    *a = (dvk_norm_depthwise_args){.hidden = s->hidden, .eps = 1e-5f, .act = s->act, .plain = s->plain};
    a->act_in = s->plain ? s->act : DVK_ACT_NONE;
    kc_view(p, &a->x, t, s->shape, s->slab);
    kc_fill_view(p, &a->x, KC_NORMAL);
    if (s->mean > 0.0f) {
        lift(&a->x, s->mean);
    }
    kc_view(p, &a->y, t, (kc_shape){s->shape.n, s->shape.h, s->shape.w, out}, s->slab);
    a->w_in = kc_floats(p, s->hidden * c, -0.2f, 0.2f);
    a->w_depth = kc_floats(p, 9 * s->hidden, -0.5f, 0.5f);
    if (s->gated) {
        a->w_out = kc_floats(p, out * s->hidden / 2, -0.2f, 0.2f);
    }
    if (s->biases) {
        a->gamma = s->plain ? NULL : kc_floats(p, c, 0.5f, 1.5f);
        a->beta = s->plain ? NULL : kc_floats(p, c, -0.5f, 0.5f);
        a->b_in = kc_floats(p, s->hidden, -0.5f, 0.5f);
        a->b_depth = kc_floats(p, s->hidden, -0.5f, 0.5f);
        a->b_out = s->gated ? kc_floats(p, out, -0.5f, 0.5f) : NULL;
    }
    if (s->res) {
        kc_view(p, &a->res, t, (kc_shape){s->shape.n, s->shape.h, s->shape.w, out}, 0);
        kc_fill_view(p, &a->res, KC_UNIFORM);
    }
    kc_output_view(p, &a->y);
    p->error_class = KC_SOFTMAX; /* three intermediate roundings */
    p->bytes = kc_view_bytes(&a->x) + kc_view_bytes(&a->y) + (s->res ? kc_view_bytes(&a->res) : 0.0);
    p->flops = 2.0 * (double)(s->shape.n * s->shape.h * s->shape.w) *
               (double)(s->hidden * (c + 9) + (s->gated ? out * s->hidden / 2 : 0));
    snprintf(p->text, sizeof p->text,
             "%lldx%lldx%lldx%lld hidden %lld gated %d biases %d res %d %s act %d slab %d plain %d mean %g",
             (long long)s->shape.n, (long long)s->shape.h, (long long)s->shape.w, (long long)c, (long long)s->hidden,
             s->gated, s->biases, s->res, kc_dtype_name(t), (int)s->act, s->slab, s->plain, (double)s->mean);
}

static const mixer_spec mixers[] = {
    {{1, 1, 1, 64}, 128, 1, 0, 0, 0, DVK_ACT_GELU, 0, 0},   {{1, 13, 21, 64}, 128, 1, 0, 1, 0, DVK_ACT_GELU, 0, 0},
    {{2, 9, 17, 64}, 128, 1, 1, 1, 1, DVK_ACT_GELU, 0, 0},  {{1, 8, 16, 64}, 192, 0, 0, 0, 0, DVK_ACT_NONE, 0, 0},
    {{2, 11, 35, 64}, 192, 0, 1, 0, 1, DVK_ACT_NONE, 0, 0}, {{1, 20, 18, 64}, 64, 0, 1, 0, 0, DVK_ACT_NONE, 0, 0},
    {{1, 17, 5, 64}, 128, 1, 1, 0, 0, DVK_ACT_NONE, 0, 0},  {{1, 5, 4, 24}, 48, 1, 1, 1, 0, DVK_ACT_SILU, 0, 0},
    {{1, 1, 1, 64}, 64, 0, 0, 0, 0, DVK_ACT_GELU, 1, 0},    {{2, 15, 31, 64}, 64, 0, 1, 0, 1, DVK_ACT_GELU, 1, 0},
    {{1, 6, 60, 64}, 256, 0, 1, 0, 0, DVK_ACT_NONE, 0, 0},  {{1, 70, 30, 64}, 128, 1, 1, 1, 0, DVK_ACT_GELU, 0, 0},
    {{1, 9, 30, 64}, 128, 1, 1, 0, 0, DVK_ACT_GELU, 0, 40},
};

static int mixer_count(void) {
    return 3 * (int)(sizeof mixers / sizeof mixers[0]);
}

static void mixer_build(kc_problem *p, int i) {
    mixer_make(p, &mixers[i / 3], dtypes[i % 3]);
}

static int mixer_bench_count(void) {
    return 3;
}

static void mixer_bench(kc_problem *p, int i) {
    const int64_t hidden[3] = {128, 192, 64};
    const mixer_spec s = {{1, 512, 512, 64}, hidden[i], !i, 1, !i, 0, i == 1 ? DVK_ACT_NONE : DVK_ACT_GELU, i == 2, 0};
    mixer_make(p, &s, DVK_BF16);
}

const kc_suite kc_suite_norm_depthwise = {"norm_depthwise", mixer_count, mixer_build, mixer_bench_count,
                                          mixer_bench,      0,           40};
const kc_suite kc_suite_cuda_depthwise = {"depthwise", paired_count, paired_build, paired_bench_count, paired_bench, 1,
                                          39};
