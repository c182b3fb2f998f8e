/* cases_winograd_input.c - problems for "winograd_input": frames side by side in a pixel, as a convolution over time
 * reads them. The first frame also fills the places before it. */
#include <stdio.h>

#include "tests/kcheck/cases.h"

typedef struct transform_spec {
    kc_shape shape; /* of x */
    int64_t slots;  /* of a pixel, in frames: more than n */
    int64_t repeats;
    int prologue; /* PRO_* */
    int64_t kept; /* of the pictures, the last ones */
    int64_t less; /* rows that are not kept */
} transform_spec;

static const transform_spec specs[] = {
    {{1, 1, 1, 8}, 1, 0, PRO_NONE, 0, 0},          {{1, 3, 2, 8}, 3, 2, PRO_NONE, 1, 0},
    {{1, 2, 3, 64}, 1, 0, PRO_NORM_SILU, 0, 0},    {{2, 5, 7, 24}, 4, 2, PRO_NORM_SILU, 2, 0},
    {{1, 4, 8, 128}, 3, 0, PRO_NORM_SILU, 0, 0},   {{3, 2, 9, 64}, 5, 2, PRO_NORM, 2, 0},
    {{1, 9, 31, 72}, 2, 1, PRO_SILU, 1, 0},        {{2, 1, 32, 256}, 2, 0, PRO_NONE, 0, 0},
    {{1, 3, 33, 512}, 3, 0, PRO_NORM_SILU, 0, 0},  {{1, 2, 65, 16}, 3, 0, PRO_RELU, 0, 0},
    {{4, 3, 40, 96}, 6, 2, PRO_NORM_SILU, 0, 0},   {{1, 7, 127, 40}, 1, 0, PRO_NONE, 0, 0},
    {{1, 67, 70, 384}, 1, 0, PRO_NONE, 0, 0},      {{5, 33, 64, 64}, 7, 2, PRO_NORM_SILU, 2, 0},
    {{1, 2, 1930, 32}, 3, 2, PRO_NORM_SILU, 0, 0}, {{1, 6, 21, 32}, 2, 0, PRO_NORM, 0, 0},
    {{4, 3, 66, 128}, 6, 0, PRO_NORM_SILU, 2, 0},  {{1, 2, 1930, 32}, 3, 2, PRO_RELU, 1, 0},
    {{4, 9, 40, 64}, 6, 0, PRO_NORM_SILU, 2, 2},   {{2, 5, 70, 32}, 4, 2, PRO_NONE, 2, 3},
};

enum { N_SPECS = (int)(sizeof specs / sizeof specs[0]) };

static const dvk_dtype dtypes[3] = {DVK_BF16, DVK_F16, DVK_F32};

static void make(kc_problem *p, const transform_spec *of, dvk_dtype t, kc_fill fill, int slab) {
    static const dvk_act acts[PRO_KINDS] = {
        [PRO_NORM_SILU] = DVK_ACT_SILU, [PRO_SILU] = DVK_ACT_SILU, [PRO_RELU] = DVK_ACT_RELU};
    const kc_shape *s = &of->shape;
    const int64_t quads = (s->w + DVK_WINOGRAD_PIXELS - 1) / DVK_WINOGRAD_PIXELS;
    const int norm = of->prologue == PRO_NORM || of->prologue == PRO_NORM_SILU;
    dvk_winograd_input_args *a = &p->args.winograd_input;
    *a = (dvk_winograd_input_args){.pro.act = acts[of->prologue], .repeats = of->repeats, .repeat_step = -s->c};
    kc_view(p, &a->x, t, *s, slab);
    kc_fill_view(p, &a->x, fill);
    dvk_view all;
    kc_view(p, &all, DVK_F16, (kc_shape){1, DVK_WINOGRAD_LINES * s->h, quads, of->slots * s->c}, slab);
    a->y = all;
    a->y.data = (char *)all.data + (of->slots - s->n) * s->c * 2;
    a->y.n = s->n;
    a->y.c = s->c;
    a->y.sn = s->c;
    if (norm) {
        a->pro.scale = kc_floats(p, s->n * s->c, 0.5f, 1.5f);
        a->pro.shift = kc_floats(p, s->n * s->c, -0.5f, 0.5f);
    }
    dvk_view written = all;
    written.data = (char *)a->y.data - of->repeats * s->c * 2;
    written.c = (s->n + of->repeats) * s->c;
    kc_output_view(p, &written);
    if (of->kept > 0) { /* these are side by side, too */
        kc_view(p, &all, DVK_F16, (kc_shape){1, s->h - of->less, s->w, of->kept * s->c}, slab);
        kc_output_view(p, &all);
        a->kept = all;
        a->kept.n = of->kept;
        a->kept.c = s->c;
        a->kept.sn = s->c;
    }
    /* rounding before a subtraction */
    p->error_class = of->prologue == PRO_NONE || of->prologue == PRO_RELU ? KC_EXACT : KC_SCALED_SUMS;
    p->no_compare = fill == KC_INF && of->prologue != PRO_NONE;
    p->bytes =
        (double)(s->n * s->h * s->w * s->c) * (double)dvk_dtype_size(t) +
        (double)(DVK_WINOGRAD_LINES * s->h * quads * written.c + of->kept * (s->h - of->less) * s->w * s->c) * 2.0;
    snprintf(p->text, sizeof p->text,
             "%lldx%lldx%lldx%lld %s into %lld repeats %lld pro %d kept %d less %d slab %d fill %d", (long long)s->n,
             (long long)s->h, (long long)s->w, (long long)s->c, kc_dtype_name(t), (long long)of->slots,
             (long long)of->repeats, of->prologue, (int)of->kept, (int)of->less, slab, (int)fill);
}

static int count(void) {
    return N_SPECS * KC_FILLS;
}

static void build(kc_problem *p, int i) {
    const int j = i / N_SPECS;
    make(p, &specs[i % N_SPECS], dtypes[(i + j) % 3], (kc_fill)j, i % 2);
}

/* The decoder of SeedVR2 at 1920 x 1088: a frame after its norm, two frames of the state, the first frame. */
static const transform_spec benches[] = {
    {{1, 1088, 1920, 128}, 3, 0, PRO_NORM_SILU, 0, 0}, {{1, 1088, 1920, 256}, 3, 0, PRO_NORM_SILU, 0, 0},
    {{1, 544, 960, 256}, 3, 0, PRO_NORM_SILU, 0, 0},   {{1, 544, 960, 512}, 3, 0, PRO_NORM_SILU, 0, 0},
    {{1, 272, 480, 512}, 3, 0, PRO_NORM_SILU, 0, 0},   {{1, 136, 240, 512}, 3, 0, PRO_NORM_SILU, 0, 0},
    {{2, 1088, 1920, 128}, 3, 0, PRO_NONE, 0, 0},      {{1, 1088, 1920, 128}, 3, 2, PRO_NORM_SILU, 0, 0},
    {{1, 1088, 1920, 128}, 3, 0, PRO_NORM_SILU, 1, 0}, {{4, 544, 960, 256}, 6, 0, PRO_NORM_SILU, 2, 0},
};

static int bench_count(void) {
    return (int)(sizeof benches / sizeof benches[0]);
}

static void bench_build(kc_problem *p, int i) {
    make(p, &benches[i], benches[i].prologue == PRO_NONE ? DVK_F16 : DVK_BF16, KC_UNIFORM, 0);
}

const kc_suite kc_suite_winograd_input = {"winograd_input", count, build, bench_count, bench_build, 1, 59};
