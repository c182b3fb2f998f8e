/* cases_down.c - problems for "conv_down": pictures smaller than a tile, pictures slightly larger than a multiple of
 * tiles, parts of larger pictures, and odd sizes that only the reference supports. */
#include <stdio.h>

#include "tests/kcheck/cases.h"

typedef struct down_spec {
    int64_t n, h, w; /* of y */
    int biases, slab;
    float slopes[2];
    kc_fill fill;
} down_spec;

enum { IN = 32, CHANNELS = 64, TAPS = 9 };

static void make(kc_problem *p, const down_spec *s, dvk_dtype t) {
    dvk_conv_down_args *a = &p->args.conv_down;
    *a = (dvk_conv_down_args){.slope = s->slopes[0], .slope_down = s->slopes[1]};
    kc_view(p, &a->x, t, (kc_shape){s->n, s->h + 2, s->w + 2, IN}, s->slab);
    kc_view(p, &a->y, t, (kc_shape){s->n, s->h, s->w, CHANNELS}, s->slab);
    kc_view(p, &a->z, t, (kc_shape){s->n, s->h / 2, s->w / 2, CHANNELS}, s->slab);
    kc_fill_view(p, &a->x, s->fill);
    a->w = kc_floats(p, CHANNELS * IN * TAPS, -0.1f, 0.1f);
    a->w_down = kc_floats(p, 4 * CHANNELS * CHANNELS, -0.1f, 0.1f);
    if (s->biases) {
        a->b = kc_floats(p, CHANNELS, -0.5f, 0.5f);
        a->b_down = kc_floats(p, CHANNELS, -0.5f, 0.5f);
    }
    kc_output_view(p, &a->y);
    kc_output_view(p, &a->z);
    p->error_class = KC_SOFTMAX; /* a rounding between two sums */
    const double pixels = (double)(s->n * s->h * s->w), size = (double)dvk_dtype_size(t);
    p->flops = 2.0 * pixels * (double)(CHANNELS * (IN * TAPS + CHANNELS));
    p->bytes = size * pixels * (double)(IN + CHANNELS + CHANNELS / 4);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%d to %d, down %s biases %d slopes %g %g slab %d fill %d",
             (long long)s->n, (long long)s->h, (long long)s->w, (int)IN, (int)CHANNELS, kc_dtype_name(t), s->biases,
             (double)s->slopes[0], (double)s->slopes[1], s->slab, (int)s->fill);
}

static const down_spec specs[] = {
    {1, 2, 2, 1, 0, {0.1f, 0.1f}, KC_UNIFORM},    {1, 34, 10, 0, 0, {0.1f, 0.0f}, KC_UNIFORM},
    {1, 36, 18, 1, 1, {0.1f, 0.1f}, KC_NORMAL},   {2, 18, 28, 1, 1, {0.0f, 0.2f}, KC_UNIFORM},
    {1, 70, 42, 1, 0, {1.0f, 0.1f}, KC_UNIFORM},  {1, 40, 15, 1, 1, {0.3f, 1.0f}, KC_UNIFORM},
    {1, 7, 24, 0, 0, {0.1f, 0.1f}, KC_UNIFORM},   {3, 6, 64, 1, 0, {0.1f, 0.3f}, KC_UNIFORM},
    {1, 2, 6406, 1, 1, {0.1f, 0.2f}, KC_UNIFORM}, /* more than six tiles per multiprocessor */
};

enum { N_SPECS = (int)(sizeof specs / sizeof specs[0]) };

static int count(void) {
    return 2 * N_SPECS;
}

static void build(kc_problem *p, int i) {
    make(p, &specs[i / 2], i % 2 ? DVK_BF16 : DVK_F16);
}

/* Real-CUGAN's second network, of pictures of 1280x720 and 1920x1080. */
static const down_spec benches[] = {
    {1, 1472, 2592, 1, 0, {0.1f, 0.1f}, KC_UNIFORM},
    {1, 2192, 3872, 1, 0, {0.1f, 0.1f}, KC_UNIFORM},
};

static int bench_count(void) {
    return (int)(sizeof benches / sizeof benches[0]);
}

static void bench_build(kc_problem *p, int i) {
    make(p, &benches[i], DVK_F16);
}

const kc_suite kc_suite_conv_down = {"conv_down", count, build, bench_count, bench_build, 1, 65};
