/* cases_up.c - problems for "up_conv": pictures smaller than a tile, pictures slightly larger than a multiple of tiles,
 * residuals that are parts of larger pictures. */
#include <stdio.h>

#include "tests/kcheck/cases.h"

typedef struct up_spec {
    int64_t n, h, w, c; /* h, w: of x */
    int biases, scales, slab;
    float slopes[2];
    kc_fill fill;
} up_spec;

enum { CHANNELS = 64, TAPS = 9 };

static void make(kc_problem *p, const up_spec *s, dvk_dtype t) {
    dvk_up_conv_args *a = &p->args.up_conv;
    *a = (dvk_up_conv_args){.slope_up = s->slopes[0], .slope = s->slopes[1]};
    kc_view(p, &a->x, t, (kc_shape){s->n, s->h, s->w, CHANNELS}, s->slab);
    kc_view(p, &a->res, t, (kc_shape){s->n, 2 * s->h, 2 * s->w, CHANNELS}, s->slab);
    kc_view(p, &a->y, t, (kc_shape){s->n, 2 * s->h - 2, 2 * s->w - 2, s->c}, s->slab);
    kc_fill_view(p, &a->x, s->fill);
    kc_fill_view(p, &a->res, s->fill);
    a->w_up = kc_floats(p, 4 * CHANNELS * CHANNELS, -0.2f, 0.2f);
    a->w = kc_floats(p, s->c * CHANNELS * TAPS, -0.1f, 0.1f);
    if (s->biases) {
        a->b_up = kc_floats(p, 4 * CHANNELS, -0.5f, 0.5f);
        a->b = kc_floats(p, s->c, -0.5f, 0.5f);
    }
    if (s->scales) {
        a->scale = kc_floats(p, CHANNELS, 0.0f, 1.0f);
    }
    kc_output_view(p, &a->y);
    p->error_class = KC_SOFTMAX; /* a rounding between two sums */
    const double pixels = (double)(s->n * 4 * s->h * s->w), size = (double)dvk_dtype_size(t);
    p->flops = 2.0 * pixels * (double)(CHANNELS * (CHANNELS + TAPS * s->c));
    p->bytes = size * pixels * (double)(CHANNELS + CHANNELS / 4 + s->c);
    snprintf(p->text, sizeof p->text,
             "%lldx%lldx%lldx%d up to %lld %s biases %d scales %d slopes %g %g slab %d fill %d", (long long)s->n,
             (long long)s->h, (long long)s->w, (int)CHANNELS, (long long)s->c, kc_dtype_name(t), s->biases, s->scales,
             (double)s->slopes[0], (double)s->slopes[1], s->slab, (int)s->fill);
}

static const up_spec specs[] = {
    {1, 2, 2, 64, 1, 1, 0, {0.1f, 0.1f}, KC_UNIFORM},     {1, 17, 5, 64, 1, 0, 0, {0.1f, 0.0f}, KC_UNIFORM},
    {1, 18, 9, 64, 0, 1, 1, {0.1f, 0.1f}, KC_NORMAL},     {2, 9, 14, 64, 1, 1, 1, {0.0f, 0.2f}, KC_UNIFORM},
    {1, 35, 21, 64, 1, 1, 0, {1.0f, 0.1f}, KC_UNIFORM},   {1, 20, 7, 40, 1, 1, 1, {0.3f, 1.0f}, KC_UNIFORM},
    {1, 132, 132, 64, 1, 1, 1, {0.1f, 0.2f}, KC_UNIFORM}, /* more than two tiles per multiprocessor */
};

enum { N_SPECS = (int)(sizeof specs / sizeof specs[0]) };

static int count(void) {
    return 2 * N_SPECS;
}

static void build(kc_problem *p, int i) {
    make(p, &specs[i / 2], i % 2 ? DVK_BF16 : DVK_F16);
}

/* Real-CUGAN's second network, of pictures of 1280x720 and 1920x1080. */
static const up_spec benches[] = {
    {1, 722, 1282, 64, 1, 1, 0, {0.1f, 0.1f}, KC_UNIFORM},
    {1, 1082, 1922, 64, 1, 1, 0, {0.1f, 0.1f}, KC_UNIFORM},
};

static int bench_count(void) {
    return (int)(sizeof benches / sizeof benches[0]);
}

static void bench_build(kc_problem *p, int i) {
    make(p, &benches[i], DVK_F16);
}

const kc_suite kc_suite_up_conv = {"up_conv", count, build, bench_count, bench_build, 1, 64};
