/* cases_gate.c - problems for depthwise, multiply, mean, max_pool, resize and dysample. */
#include <stdio.h>

#include "tests/kcheck/cases.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

static const kc_shape shapes[] = {
    {1, 1, 1, 1},   {1, 1, 1, 3},    {2, 3, 5, 1},    {1, 2, 3, 4},   {1, 3, 7, 16},   {2, 5, 3, 17},
    {1, 4, 9, 31},  {1, 9, 2, 32},   {1, 3, 11, 48},  {1, 13, 7, 64}, {2, 9, 4, 96},   {1, 17, 5, 128},
    {1, 2, 3, 180}, {1, 3, 20, 360}, {1, 37, 90, 12}, {1, 1, 300, 7}, {1, 33, 35, 24}, {1, 19, 70, 64},
};

enum { N_SHAPES = (int)(sizeof shapes / sizeof shapes[0]) };

static void residual(kc_problem *p, dvk_epilogue *e, const dvk_view *y, dvk_dtype dtype) {
    dvk_view *r = &e->res[e->n_res];
    e->beta[e->n_res++] = 0.25f + kc_uniform(&p->rng);
    kc_view(p, r, dtype, (kc_shape){y->n, y->h, y->w, y->c}, (int)(kc_next(&p->rng) % 2));
    kc_fill_view(p, r, KC_UNIFORM);
}

/* Bias, every activation, none to two residuals, the activation last. */
static void epilogue(kc_problem *p, dvk_epilogue *e, const dvk_view *y, int variety) {
    *e = (dvk_epilogue){.alpha = variety % 4 == 1 ? 0.2f : 1.0f, .slope = 0.1f};
    if (variety % 2 == 1) {
        e->bias = kc_floats(p, y->c, -1.0f, 1.0f);
    }
    if (variety % 3 != 0) {
        e->act = (dvk_act)(variety / 2 % (DVK_ACT_MISH + 1));
    }
    if (e->act == DVK_ACT_PRELU) {
        e->slopes = kc_floats(p, y->c, -0.5f, 0.5f);
    }
    if (variety % 5 > 2) {
        residual(p, e, y, y->dtype);
    }
    if (variety % 5 > 3) {
        residual(p, e, y, dtypes[kc_below(&p->rng, 3)]);
    }
    e->act_last = variety % 7 == 3;
}

static int epilogue_text(char *out, size_t size, const dvk_epilogue *e) {
    return snprintf(out, size, "bias %d act %d%s res %d", e->bias != NULL, (int)e->act, e->act_last ? " last" : "",
                    (int)e->n_res);
}

/* The steps of f16 near zero are larger than the tolerance of sums. */
static kc_fill fill_for(int i, dvk_dtype yt) {
    const kc_fill fill = (kc_fill)(i % 11 % KC_FILLS);
    return fill == KC_DENORMAL && yt == DVK_F16 ? KC_NORMAL : fill;
}

/* --- depthwise --- */

typedef struct depthwise_spec {
    kc_shape shape;           /* of x */
    int32_t k, valid, stride; /* stride 0: 1 */
    dvk_dtype xt, yt;
    int variety, norm, slab;
    kc_fill fill;
} depthwise_spec;

static void depthwise_make(kc_problem *p, const depthwise_spec *s) {
    dvk_depthwise_args *a = &p->args.depthwise;
    const int32_t pad = s->valid ? 0 : (s->k - 1) / 2;
    const int64_t step = s->stride > 0 ? s->stride : 1;
    const kc_shape out = {s->shape.n, (s->shape.h + 2 * pad - s->k) / step + 1,
                          (s->shape.w + 2 * pad - s->k) / step + 1, s->shape.c};
    *a = (dvk_depthwise_args){.kh = s->k, .kw = s->k, .pad_top = pad, .pad_left = pad, .stride = s->stride};
    kc_view(p, &a->x, s->xt, s->shape, s->slab);
    kc_fill_view(p, &a->x, s->fill);
    kc_output_picture(p, &a->y, s->yt, out, s->slab);
    const float spread = 2.0f / (float)s->k;
    a->w = kc_floats(p, (int64_t)s->k * s->k * s->shape.c, -spread, spread);
    if (s->norm) {
        a->pro.scale = kc_floats(p, s->shape.n * s->shape.c, 0.5f, 1.5f);
        a->pro.shift = kc_floats(p, s->shape.n * s->shape.c, -0.5f, 0.5f);
        a->pro.act = s->norm > 1 ? DVK_ACT_SILU : DVK_ACT_NONE;
    }
    epilogue(p, &a->epi, &a->y, s->variety);
    kc_fill fill = s->fill;
    if (s->stride > 0 && kc_bounded_unit(&a->epi, fill) > 0.0) { /* some of these cancel to rounding errors */
        fill = KC_NORMAL;
        kc_fill_view(p, &a->x, fill);
    }
    p->outputs[0].unit = kc_bounded_unit(&a->epi, fill);
    p->error_class = KC_SUMS;
    p->no_compare = fill == KC_INF;
    p->bytes = kc_view_bytes(&a->x) + kc_view_bytes(&a->y);
    p->flops = 2.0 * (double)(out.n * out.h * out.w * out.c) * (double)(s->k * s->k);
    char end[64];
    epilogue_text(end, sizeof end, &a->epi);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld k%d%s by %d %s->%s %s norm %d slab %d fill %d",
             (long long)s->shape.n, (long long)s->shape.h, (long long)s->shape.w, (long long)s->shape.c, (int)s->k,
             s->valid ? " valid" : "", (int)step, kc_dtype_name(s->xt), kc_dtype_name(s->yt), end, s->norm, s->slab,
             (int)fill);
}

enum { ROUNDS = 36, STRIDED = 12 };

static int depthwise_count(void) {
    return N_SHAPES * (ROUNDS + STRIDED);
}

static void depthwise_build(kc_problem *p, int i) {
    static const int32_t sides[6] = {3, 3, 5, 1, 7, 3};
    const int j = i / N_SHAPES;
    depthwise_spec s = {.shape = shapes[i % N_SHAPES], .k = sides[j % 6], .variety = i, .slab = i / 2 % 2};
    s.xt = dtypes[j % 3];
    s.yt = dtypes[j % 4 == 1 ? (j + 1) % 3 : j % 3];
    s.valid = j % 5 == 2 && s.shape.h >= s.k && s.shape.w >= s.k;
    s.norm = j % 7 == 3 ? 1 + i % 2 : 0;
    if (j >= ROUNDS) { /* the downscaling window of RGT, and strides with a remainder */
        s.k = j % 2 ? 4 : 3;
        s.stride = j % 2 ? 4 : 2 + j / 2 % 2;
        s.valid = s.shape.h >= s.k && s.shape.w >= s.k;
        s.k = s.valid || s.k == 3 ? s.k : 1;
        s.norm = 0;
    }
    s.fill = fill_for(i, s.yt);
    depthwise_make(p, &s);
}

static const depthwise_spec depthwise_benches[] = {
    {.shape = {1, 256, 256, 64}, .k = 3, .variety = 5},  /* OmniSR */
    {.shape = {1, 256, 256, 180}, .k = 3, .variety = 5}, /* DAT */
    {.shape = {1, 256, 256, 360}, .k = 3, .variety = 0}, /* its gated half */
    {.shape = {1, 256, 256, 64}, .k = 5, .variety = 0},
};

static int depthwise_bench_count(void) {
    return 2 * (int)(sizeof depthwise_benches / sizeof depthwise_benches[0]);
}

static void depthwise_bench(kc_problem *p, int i) {
    depthwise_spec s = depthwise_benches[i / 2];
    s.xt = s.yt = i % 2 ? DVK_BF16 : DVK_F32;
    depthwise_make(p, &s);
}

/* --- multiply --- */

typedef struct multiply_spec {
    kc_shape shape;
    int one_pixel, one_channel, in_place; /* in_place: 1 x, 2 the gate, 3 a residual */
    dvk_dtype xt, gt, yt;
    dvk_act act;
    int variety, slab;
    kc_fill fill;
} multiply_spec;

static void multiply_in_place(kc_problem *p, dvk_multiply_args *a, int which, kc_fill fill) {
    dvk_view *same = which == 1 ? &a->x : which == 2 ? &a->g : &a->epi.res[0];
    if (which == 3) {
        a->epi.n_res = a->epi.n_res > 0 ? a->epi.n_res : 1;
        a->epi.beta[0] = -0.5f;
    }
    *same = a->y;
    kc_fill_view(p, same, fill);
}

static void multiply_make(kc_problem *p, const multiply_spec *s) {
    dvk_multiply_args *a = &p->args.multiply;
    const kc_shape *m = &s->shape;
    const kc_shape gate = {m->n, s->one_pixel ? 1 : m->h, s->one_pixel ? 1 : m->w, s->one_channel ? 1 : m->c};
    *a = (dvk_multiply_args){.act = s->act};
    kc_view(p, &a->x, s->xt, *m, s->slab);
    kc_fill_view(p, &a->x, s->fill);
    kc_view(p, &a->g, s->gt, gate, s->slab);
    kc_fill_view(p, &a->g, s->fill == KC_INF || s->fill == KC_NAN ? s->fill : KC_NORMAL);
    kc_view(p, &a->y, s->yt, *m, s->slab && s->variety % 3);
    epilogue(p, &a->epi, &a->y, s->variety);
    if (s->in_place > 0) {
        multiply_in_place(p, a, s->in_place, s->fill == KC_LARGE ? KC_UNIFORM : s->fill);
    }
    kc_output_view(p, &a->y);
    p->outputs[0].unit = kc_bounded_unit(&a->epi, s->fill);
    p->error_class = KC_POINTWISE;
    p->no_compare = s->fill == KC_INF;
    p->bytes = kc_view_bytes(&a->x) + kc_view_bytes(&a->g) + kc_view_bytes(&a->y);
    char end[64];
    epilogue_text(end, sizeof end, &a->epi);
    snprintf(p->text, sizeof p->text,
             "%lldx%lldx%lldx%lld by %lldx%lldx%lld act %d %s,%s->%s in place %d %s slab %d fill %d", (long long)m->n,
             (long long)m->h, (long long)m->w, (long long)m->c, (long long)gate.h, (long long)gate.w, (long long)gate.c,
             (int)s->act, kc_dtype_name(s->xt), kc_dtype_name(s->gt), kc_dtype_name(s->yt), s->in_place, end, s->slab,
             (int)s->fill);
}

static int multiply_count(void) {
    return N_SHAPES * ROUNDS;
}

static void multiply_build(kc_problem *p, int i) {
    static const dvk_act acts[] = {DVK_ACT_NONE,    DVK_ACT_SIGMOID, DVK_ACT_GELU, DVK_ACT_TANH,
                                   DVK_ACT_SIGMOID, DVK_ACT_SILU,    DVK_ACT_MISH};
    const int j = i / N_SHAPES;
    multiply_spec s = {.shape = shapes[i % N_SHAPES], .act = acts[i % 7], .variety = i / 3, .slab = i / 2 % 2};
    s.one_pixel = j % 4 == 1;
    s.one_channel = j % 5 == 2;
    s.xt = dtypes[j % 3];
    s.gt = dtypes[j % 4 == 3 ? (j + 2) % 3 : j % 3];
    s.yt = dtypes[j % 6 == 1 ? (j + 1) % 3 : j % 3];
    s.fill = fill_for(i, s.yt);
    if (s.act == DVK_ACT_GELU && s.fill == KC_LARGE) { /* close to zero its error is that of a difference */
        s.fill = KC_NORMAL;
    }
    const int one_type = s.xt == s.yt && s.gt == s.yt;
    s.in_place = one_type && j % 9 < 3 ? 1 + j % 3 : 0;
    if (s.in_place == 2 && (s.one_pixel || s.one_channel)) {
        s.in_place = 1;
    }
    multiply_make(p, &s);
}

static const multiply_spec multiply_benches[] = {
    {.shape = {1, 256, 256, 64}, .act = DVK_ACT_SIGMOID},                    /* RealPLKSR */
    {.shape = {1, 256, 256, 64}, .act = DVK_ACT_SIGMOID, .one_pixel = 1},    /* squeeze and excitation */
    {.shape = {1, 256, 256, 180}, .act = DVK_ACT_SIGMOID, .one_channel = 1}, /* DAT */
    {.shape = {1, 256, 256, 64}, .act = DVK_ACT_GELU},                       /* OmniSR */
};

static int multiply_bench_count(void) {
    return 2 * (int)(sizeof multiply_benches / sizeof multiply_benches[0]);
}

static void multiply_bench(kc_problem *p, int i) {
    multiply_spec s = multiply_benches[i / 2];
    s.xt = s.gt = s.yt = i % 2 ? DVK_BF16 : DVK_F32;
    multiply_make(p, &s);
}

/* --- mean, max_pool, resize --- */

typedef struct pool_spec {
    kc_shape shape, to; /* to: h and w of a resize */
    int32_t k, stride;
    dvk_dtype xt, yt;
    kc_class error_class;
    int slab;
    kc_fill fill;
} pool_spec;

static void pool_make(kc_problem *p, const pool_spec *s, int64_t h, int64_t w) {
    dvk_pool_args *a = &p->args.pool;
    *a = (dvk_pool_args){.k = s->k, .stride = s->stride};
    kc_view(p, &a->x, s->xt, s->shape, s->slab);
    kc_fill_view(p, &a->x, s->fill);
    kc_view(p, &a->y, s->yt, (kc_shape){s->shape.n, h, w, s->shape.c}, s->slab);
    kc_output_view(p, &a->y);
    p->error_class = s->error_class;
    p->no_compare = s->fill == KC_INF && s->error_class != KC_EXACT;
    p->bytes = kc_view_bytes(&a->x) + kc_view_bytes(&a->y);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld -> %lldx%lld k%d s%d %s->%s slab %d fill %d",
             (long long)s->shape.n, (long long)s->shape.h, (long long)s->shape.w, (long long)s->shape.c, (long long)h,
             (long long)w, (int)s->k, (int)s->stride, kc_dtype_name(s->xt), kc_dtype_name(s->yt), s->slab,
             (int)s->fill);
}

static pool_spec pool_case(int i, kc_class error_class) {
    const int j = i / N_SHAPES;
    const dvk_dtype yt = dtypes[j % 4 == 1 ? (j + 1) % 3 : j % 3];
    return (pool_spec){.shape = shapes[i % N_SHAPES],
                       .xt = dtypes[j % 3],
                       .yt = yt,
                       .error_class = error_class,
                       .slab = i / 2 % 2,
                       .fill = fill_for(i, yt)};
}

enum { POOL_ROUNDS = 12, N_POOL_BENCHES = 2 };

static int pool_count(void) {
    return N_SHAPES * POOL_ROUNDS;
}

static int pool_bench_count(void) {
    return 2 * N_POOL_BENCHES;
}

static pool_spec pool_bench_case(int i, kc_class error_class) {
    static const kc_shape of[N_POOL_BENCHES] = {{1, 256, 256, 64}, {1, 256, 256, 16}};
    const dvk_dtype t = i % 2 ? DVK_BF16 : DVK_F32;
    return (pool_spec){.shape = of[i / 2], .xt = t, .yt = t, .error_class = error_class};
}

static void mean_build(kc_problem *p, int i) {
    const pool_spec s = pool_case(i, KC_SMALL_SUMS);
    pool_make(p, &s, 1, 1);
    p->outputs[0].unit = s.fill == KC_LARGE ? (s.xt == DVK_F16 ? 50.0 : 1e4) : 1.0; /* for a sum that cancels */
}

static void mean_bench(kc_problem *p, int i) {
    const pool_spec s = pool_bench_case(i, KC_SMALL_SUMS);
    pool_make(p, &s, 1, 1);
}

static void max_pool_make(kc_problem *p, pool_spec s, int32_t k, int32_t stride) {
    s.k = k <= s.shape.h && k <= s.shape.w ? k : 1;
    s.stride = stride;
    pool_make(p, &s, (s.shape.h - s.k) / stride + 1, (s.shape.w - s.k) / stride + 1);
}

static void max_pool_build(kc_problem *p, int i) {
    static const int32_t sides[4][2] = {{7, 3}, {2, 2}, {3, 1}, {2, 1}};
    const int j = i / N_SHAPES % 4;
    max_pool_make(p, pool_case(i, KC_EXACT), sides[j][0], sides[j][1]);
}

static void max_pool_bench(kc_problem *p, int i) {
    max_pool_make(p, pool_bench_case(i, KC_EXACT), 7, 3);
}

static void resize_build(kc_problem *p, int i) {
    static const int64_t sizes[5][2] = {{1, 1}, {7, 9}, {24, 17}, {3, 40}, {61, 2}};
    const pool_spec s = pool_case(i, KC_SUMS);
    const int j = (i + i / N_SHAPES) % 5;
    pool_make(p, &s, sizes[j][0], sizes[j][1]);
}

static void resize_bench(kc_problem *p, int i) {
    pool_spec s = pool_bench_case(i, KC_SUMS);
    s.shape.h = s.shape.w = 41;
    pool_make(p, &s, 256, 256);
}

/* --- dysample --- */

typedef struct dysample_spec {
    int64_t h, w, groups, width, r; /* width: channels of a group */
    int sum;
    dvk_dtype xt, ot, yt;
    int slab;
    kc_fill fill; /* of the offsets; KC_LARGE exceeds every edge */
} dysample_spec;

static void dysample_make(kc_problem *p, const dysample_spec *s) {
    dvk_dysample_args *a = &p->args.dysample;
    const kc_shape in = {1 + s->slab, s->h, s->w, s->groups * s->width};
    const kc_shape offsets = {in.n, s->h, s->w, 2 * s->groups * s->r * s->r};
    *a = (dvk_dysample_args){.groups = s->groups, .r = s->r};
    kc_view(p, &a->x, s->xt, in, s->slab);
    kc_fill_view(p, &a->x, KC_UNIFORM);
    kc_view(p, &a->offset, s->ot, offsets, s->slab);
    kc_fill_view(p, &a->offset, s->fill);
    kc_view(p, &a->y, s->yt, (kc_shape){in.n, s->h * s->r, s->w * s->r, s->sum ? s->width : in.c}, s->slab);
    kc_output_view(p, &a->y);
    p->error_class = KC_SUMS;
    /* far from 0, f32 has no fractions */
    p->no_compare = s->fill == KC_INF || s->fill == KC_NAN || s->fill == KC_LARGE;
    p->bytes = kc_view_bytes(&a->x) + kc_view_bytes(&a->offset) + kc_view_bytes(&a->y);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld groups %lld r %lld%s %s,%s->%s slab %d fill %d",
             (long long)in.n, (long long)s->h, (long long)s->w, (long long)in.c, (long long)s->groups, (long long)s->r,
             s->sum ? " sum" : "", kc_dtype_name(s->xt), kc_dtype_name(s->ot), kc_dtype_name(s->yt), s->slab,
             (int)s->fill);
}

static int dysample_count(void) {
    return 180;
}

static void dysample_build(kc_problem *p, int i) {
    static const int64_t sizes[6][2] = {{1, 1}, {2, 3}, {7, 5}, {9, 12}, {1, 33}, {17, 1}};
    static const int64_t channels[5][3] = {
        {4, 3, 2}, {3, 1, 1}, {3, 3, 3}, {4, 3, 4}, {4, 12, 4}}; /* groups, width, r */
    const int64_t *c = channels[i / 6 % 5];
    dysample_spec s = {.h = sizes[i % 6][0], .w = sizes[i % 6][1], .groups = c[0], .width = c[1], .r = c[2]};
    s.sum = i / 30 % 2;
    s.xt = dtypes[i / 60];
    s.ot = dtypes[(i / 60 + (i % 7 == 3)) % 3];
    s.yt = i % 3 ? s.xt : DVK_F32;
    s.slab = i % 2;
    s.fill = fill_for(i, s.yt);
    dysample_make(p, &s);
}

static int dysample_bench_count(void) {
    return 4;
}

static void dysample_bench(kc_problem *p, int i) {
    dysample_spec s = {.h = 256, .w = 256, .groups = 4, .width = 3, .r = i / 2 ? 2 : 4, .sum = 1, .yt = DVK_F32};
    s.xt = DVK_F32;
    s.ot = i % 2 ? DVK_BF16 : DVK_F32;
    dysample_make(p, &s);
}

const kc_suite kc_suite_depthwise = {
    "depthwise", depthwise_count, depthwise_build, depthwise_bench_count, depthwise_bench, 0, 11};
const kc_suite kc_suite_multiply = {"multiply", multiply_count, multiply_build, multiply_bench_count, multiply_bench, 0,
                                    12};
const kc_suite kc_suite_mean = {"mean", pool_count, mean_build, pool_bench_count, mean_bench, 0, 13};
const kc_suite kc_suite_max_pool = {"max_pool", pool_count, max_pool_build, pool_bench_count, max_pool_bench, 0, 14};
const kc_suite kc_suite_resize = {"resize", pool_count, resize_build, pool_bench_count, resize_bench, 0, 15};
const kc_suite kc_suite_dysample = {"dysample", dysample_count, dysample_build, dysample_bench_count, dysample_bench, 0,
                                    16};
