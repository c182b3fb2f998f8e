/* cases_window.c - problems for window_attention and channel_attention: the shapes of SwinIR, DRCT, HAT, DAT and
 * OmniSR, with frames larger than the picture, and windows that are no multiple of a vector. */
#include <math.h>
#include <stdio.h>

#include "tests/kcheck/cases.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

typedef struct window_spec {
    int64_t n, h, w, heads, dim;
    int32_t wh, ww, kh, kw; /* kh 0: equal to wh */
    int32_t shift_y, shift_x, grid;
    int32_t cut_y, cut_x;
    int64_t ph, pw; /* 0: the least multiple of the window */
    float head_dim; /* without padding; 0: dim */
} window_spec;

static const window_spec windows[] = {
    {.n = 1, .h = 16, .w = 24, .heads = 6, .dim = 32, .wh = 8, .ww = 8, .head_dim = 30},
    {.n = 1, .h = 16, .w = 24, .heads = 6, .dim = 32, .wh = 8, .ww = 8, .shift_y = 4, .shift_x = 4, .head_dim = 30},
    {.n = 2, .h = 13, .w = 19, .heads = 6, .dim = 16, .wh = 8, .ww = 8, .shift_y = 4, .shift_x = 4, .head_dim = 10},
    {.n = 1, .h = 14, .w = 21, .heads = 3, .dim = 32, .wh = 7, .ww = 7, .shift_y = 3, .shift_x = 3, .head_dim = 30},
    {.n = 1, .h = 32, .w = 32, .heads = 6, .dim = 32, .wh = 16, .ww = 16, .head_dim = 30},
    {.n = 1, .h = 32, .w = 48, .heads = 4, .dim = 56, .wh = 16, .ww = 16, .shift_y = 8, .shift_x = 8, .head_dim = 53},
    {.n = 1, .h = 20, .w = 31, .heads = 2, .dim = 128, .wh = 16, .ww = 16, .head_dim = 122},
    {.n = 1, .h = 16, .w = 48, .heads = 6, .dim = 48, .wh = 16, .ww = 16, .shift_y = 8, .shift_x = 8, .head_dim = 46},
    {.n = 1, .h = 32, .w = 16, .heads = 4, .dim = 80, .wh = 16, .ww = 16, .head_dim = 77},
    {.n = 1, .h = 32, .w = 48, .heads = 6, .dim = 32, .wh = 16, .ww = 16, .kh = 24, .kw = 24, .head_dim = 30},
    {.n = 2, .h = 25, .w = 17, .heads = 2, .dim = 24, .wh = 16, .ww = 16, .kh = 24, .kw = 24, .head_dim = 23},
    {.n = 1, .h = 32, .w = 64, .heads = 3, .dim = 32, .wh = 8, .ww = 32, .head_dim = 30},
    {.n = 1, .h = 64, .w = 32, .heads = 3, .dim = 32, .wh = 32, .ww = 8, .shift_y = 16, .shift_x = 4, .head_dim = 30},
    {.n = 1,
     .h = 37,
     .w = 50,
     .heads = 3,
     .dim = 32,
     .wh = 8,
     .ww = 32,
     .shift_y = 4,
     .shift_x = 16,
     .ph = 64,
     .pw = 64},
    {.n = 1,
     .h = 19,
     .w = 35,
     .heads = 3,
     .dim = 32,
     .wh = 16,
     .ww = 8,
     .shift_y = 8,
     .shift_x = 4,
     .ph = 32,
     .pw = 48},
    {.n = 1, .h = 24, .w = 40, .heads = 4, .dim = 16, .wh = 8, .ww = 8, .grid = 1},
    {.n = 2, .h = 16, .w = 8, .heads = 4, .dim = 16, .wh = 8, .ww = 8, .grid = 1},
    {.n = 1, .h = 36, .w = 24, .heads = 3, .dim = 20, .wh = 12, .ww = 12, .shift_y = 6, .shift_x = 6},
    {.n = 1, .h = 9, .w = 11, .heads = 1, .dim = 8, .wh = 3, .ww = 5, .kh = 5, .kw = 7},
    {.n = 1, .h = 1, .w = 1, .heads = 2, .dim = 8, .wh = 8, .ww = 8, .shift_y = 4, .shift_x = 4},
    {.n = 1, .h = 5, .w = 7, .heads = 1, .dim = 3, .wh = 1, .ww = 1},
    {.n = 1,
     .h = 22,
     .w = 33,
     .heads = 6,
     .dim = 32,
     .wh = 11,
     .ww = 11,
     .shift_y = 6,
     .shift_x = 6,
     .cut_y = 5,
     .head_dim = 30},
    {.n = 2,
     .h = 16,
     .w = 24,
     .heads = 2,
     .dim = 24,
     .wh = 8,
     .ww = 8,
     .shift_y = 4,
     .shift_x = 4,
     .cut_y = 3,
     .cut_x = 5},
    {.n = 1,
     .h = 11,
     .w = 22,
     .heads = 3,
     .dim = 16,
     .wh = 11,
     .ww = 11,
     .shift_y = 6,
     .shift_x = 6,
     .cut_y = 5,
     .cut_x = 5},
    {.n = 1, .h = 24, .w = 24, .heads = 1, .dim = 40, .wh = 24, .ww = 24},
};

enum { N_WINDOWS = (int)(sizeof windows / sizeof windows[0]) };

static int64_t rounded_up(int64_t v, int64_t step) {
    return (v + step - 1) / step * step;
}

/* q, k and v: slices of one picture, as from a projection, or three pictures. */
static void queries_keys_values(kc_problem *p, dvk_view to[3], const dvk_dtype types[3], kc_shape s, int together,
                                kc_fill fill) {
    if (together) {
        dvk_view all;
        kc_view(p, &all, types[0], (kc_shape){s.n, s.h, s.w, 3 * s.c}, together - 1);
        kc_fill_view(p, &all, fill);
        for (int i = 0; i < 3; i++) {
            to[i] = all;
            to[i].c = s.c;
            to[i].data = (char *)all.data + (size_t)(i * s.c) * dvk_dtype_size(all.dtype);
        }
        return;
    }
    for (int i = 0; i < 3; i++) {
        kc_view(p, &to[i], types[i], s, i % 2);
        kc_fill_view(p, &to[i], i == 0 ? fill : KC_NORMAL); /* a NaN in a query affects only that query */
    }
}

static void build_window(kc_problem *p, const window_spec *of, const dvk_dtype types[4], int together, int biased,
                         kc_fill fill) {
    dvk_window_attention_args *a = &p->args.window;
    const kc_shape s = {of->n, of->h, of->w, of->heads * of->dim};
    const double dim = of->head_dim > 0.0f ? (double)of->head_dim : (double)of->dim;
    *a = (dvk_window_attention_args){.heads = of->heads,
                                     .ph = of->ph > 0 ? of->ph : rounded_up(of->h, of->wh),
                                     .pw = of->pw > 0 ? of->pw : rounded_up(of->w, of->ww),
                                     .wh = of->wh,
                                     .ww = of->ww,
                                     .kh = of->kh > 0 ? of->kh : of->wh,
                                     .kw = of->kw > 0 ? of->kw : of->ww,
                                     .shift_y = of->shift_y,
                                     .shift_x = of->shift_x,
                                     .grid = of->grid,
                                     .cut_y = of->cut_y,
                                     .cut_x = of->cut_x,
                                     .scale = (float)(1.0 / sqrt(dim))};
    dvk_view qkv[3];
    queries_keys_values(p, qkv, types, s, together, fill);
    a->q = qkv[0];
    a->k = qkv[1];
    a->v = qkv[2];
    const int64_t table = of->heads * (a->wh + a->kh - 1) * (a->ww + a->kw - 1);
    a->bias = biased ? kc_floats(p, table, -1.0f, 1.0f) : NULL;
    kc_view(p, &a->y, types[3], s, together == 2);
    kc_output_view(p, &a->y);
    p->error_class = KC_SOFTMAX;
    p->flops = 4.0 * (double)(s.n * a->ph * a->pw * s.c) * (double)(a->kh * a->kw);
    p->bytes = (double)(s.n * s.h * s.w * s.c) * 4.0 * (double)dvk_dtype_size(types[0]);
    snprintf(p->text, sizeof p->text,
             "%lldx%lldx%lld heads %lld dim %lld window %dx%d keys %dx%d shift %d,%d%s%s %s%s%s%s", (long long)s.n,
             (long long)s.h, (long long)s.w, (long long)of->heads, (long long)of->dim, a->wh, a->ww, a->kh, a->kw,
             a->shift_y, a->shift_x, a->grid ? " grid" : "", biased ? "" : " no bias", kc_dtype_name(a->q.dtype),
             kc_dtype_name(a->k.dtype), kc_dtype_name(a->v.dtype), kc_dtype_name(types[3]));
}

static int window_count(void) {
    return N_WINDOWS * 3 * 2;
}

static void window_build(kc_problem *p, int i) {
    const dvk_dtype t = dtypes[i / N_WINDOWS % 3];
    const int together = (i + i / N_WINDOWS) % 3;
    const dvk_dtype types[4] = {t, i % 5 == 4 ? DVK_F32 : t, i % 7 == 6 ? DVK_BF16 : t, i % 11 == 10 ? DVK_F32 : t};
    const kc_fill fill = together == 0 && i % 2 ? KC_NAN : i % 2 ? KC_NORMAL : KC_UNIFORM;
    build_window(p, &windows[i % N_WINDOWS], types, together, i % 6 != 5, fill);
}

/* SwinIR, DRCT's five blocks, HAT's overlapping one and DAT's two halves at 512 x 512; and 16 tiles of 64 x 64. */
static const window_spec window_benches[] = {
    {.n = 1, .h = 512, .w = 512, .heads = 6, .dim = 32, .wh = 8, .ww = 8, .shift_y = 4, .shift_x = 4, .head_dim = 30},
    {.n = 1, .h = 512, .w = 512, .heads = 6, .dim = 32, .wh = 16, .ww = 16, .head_dim = 30},
    {.n = 1, .h = 512, .w = 512, .heads = 4, .dim = 56, .wh = 16, .ww = 16, .shift_y = 8, .shift_x = 8, .head_dim = 53},
    {.n = 1, .h = 512, .w = 512, .heads = 2, .dim = 128, .wh = 16, .ww = 16, .head_dim = 122},
    {.n = 1, .h = 512, .w = 512, .heads = 6, .dim = 48, .wh = 16, .ww = 16, .shift_y = 8, .shift_x = 8, .head_dim = 46},
    {.n = 1, .h = 512, .w = 512, .heads = 4, .dim = 80, .wh = 16, .ww = 16, .head_dim = 77},
    {.n = 1, .h = 512, .w = 512, .heads = 6, .dim = 32, .wh = 16, .ww = 16, .kh = 24, .kw = 24, .head_dim = 30},
    {.n = 1, .h = 512, .w = 512, .heads = 3, .dim = 32, .wh = 8, .ww = 32, .shift_y = 4, .shift_x = 16, .head_dim = 30},
    {.n = 1, .h = 512, .w = 512, .heads = 3, .dim = 32, .wh = 32, .ww = 8, .head_dim = 30},
    {.n = 1, .h = 512, .w = 512, .heads = 4, .dim = 16, .wh = 8, .ww = 8, .grid = 1},
    {.n = 16, .h = 64, .w = 64, .heads = 6, .dim = 32, .wh = 8, .ww = 8, .shift_y = 4, .shift_x = 4, .head_dim = 30},
    {.n = 16, .h = 64, .w = 64, .heads = 6, .dim = 32, .wh = 16, .ww = 16, .head_dim = 30},
};

enum { N_WINDOW_BENCHES = (int)(sizeof window_benches / sizeof window_benches[0]) };

static int window_bench_count(void) {
    return 2 * N_WINDOW_BENCHES;
}

static void window_bench_build(kc_problem *p, int i) {
    const dvk_dtype t = i % 2 ? DVK_F32 : DVK_BF16;
    build_window(p, &window_benches[i / 2], (dvk_dtype[4]){t, t, t, t}, 1, 1, KC_NORMAL);
}

/* --- channel attention --- */

typedef struct channel_spec {
    kc_shape shape; /* c: of one head, with its padding */
    int64_t heads, dim;
    int32_t wh, ww, grid;
} channel_spec;

static const channel_spec channels[] = {
    {{1, 16, 24, 32}, 6, 30, 0, 0, 0}, {{2, 13, 7, 16}, 3, 10, 0, 0, 0},  {{1, 61, 45, 32}, 2, 32, 0, 0, 0},
    {{1, 16, 24, 16}, 4, 16, 8, 8, 0}, {{1, 24, 16, 16}, 4, 16, 8, 8, 1}, {{1, 1, 1, 8}, 1, 5, 0, 0, 0},
    {{2, 8, 12, 24}, 2, 23, 4, 6, 0},  {{1, 8, 12, 40}, 1, 40, 4, 6, 1},  {{1, 100, 97, 8}, 2, 6, 0, 0, 0},
    {{1, 9, 11, 72}, 2, 70, 0, 0, 0},  {{3, 50, 45, 32}, 2, 30, 0, 0, 0}, {{3, 16, 24, 16}, 2, 16, 8, 8, 1},
};

enum { N_CHANNELS = (int)(sizeof channels / sizeof channels[0]) };

static void build_channel(kc_problem *p, const channel_spec *of, const dvk_dtype types[4], int together) {
    dvk_channel_attention_args *a = &p->args.channel;
    const kc_shape s = {of->shape.n, of->shape.h, of->shape.w, of->heads * of->shape.c};
    *a = (dvk_channel_attention_args){
        .heads = of->heads, .dim = of->dim, .wh = of->wh, .ww = of->ww, .grid = of->grid, .eps = 1e-12f};
    dvk_view qkv[3];
    queries_keys_values(p, qkv, types, s, together, KC_NORMAL);
    a->q = qkv[0];
    a->k = qkv[1];
    a->v = qkv[2];
    a->temperature = kc_floats(p, of->heads, 0.5f, 4.0f);
    kc_view(p, &a->y, types[3], s, together == 2);
    kc_output_view(p, &a->y);
    p->error_class = KC_SOFTMAX;
    p->flops = 4.0 * (double)(s.n * s.h * s.w * s.c) * (double)of->shape.c;
    p->bytes = (double)(s.n * s.h * s.w * s.c) * 4.0 * (double)dvk_dtype_size(types[0]);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lld heads %lld dim %lld of %lld window %dx%d%s %s%s%s%s",
             (long long)s.n, (long long)s.h, (long long)s.w, (long long)of->heads, (long long)of->dim,
             (long long)of->shape.c, a->wh, a->ww, a->grid ? " grid" : "", kc_dtype_name(a->q.dtype),
             kc_dtype_name(a->k.dtype), kc_dtype_name(a->v.dtype), kc_dtype_name(types[3]));
}

static int channel_count(void) {
    return N_CHANNELS * 3 * 2;
}

static void channel_build(kc_problem *p, int i) {
    const dvk_dtype t = dtypes[i / N_CHANNELS % 3];
    const dvk_dtype types[4] = {t, i % 5 == 4 ? DVK_F32 : t, i % 7 == 6 ? DVK_BF16 : t, i % 11 == 10 ? DVK_F32 : t};
    build_channel(p, &channels[i % N_CHANNELS], types, (i + i / N_CHANNELS) % 3);
}

static const channel_spec channel_benches[] = {
    {{1, 512, 512, 32}, 6, 30, 0, 0, 0},
    {{1, 512, 512, 16}, 4, 16, 8, 8, 0},
    {{1, 512, 512, 16}, 4, 16, 8, 8, 1},
    {{16, 64, 64, 32}, 6, 30, 0, 0, 0},
};

enum { N_CHANNEL_BENCHES = (int)(sizeof channel_benches / sizeof channel_benches[0]) };

static int channel_bench_count(void) {
    return 2 * N_CHANNEL_BENCHES;
}

static void channel_bench_build(kc_problem *p, int i) {
    const dvk_dtype t = i % 2 ? DVK_F32 : DVK_BF16;
    build_channel(p, &channel_benches[i / 2], (dvk_dtype[4]){t, t, t, t}, 1);
}

const kc_suite kc_suite_window_attention = {
    "window_attention", window_count, window_build, window_bench_count, window_bench_build, 0, 5};
const kc_suite kc_suite_channel_attention = {
    "channel_attention", channel_count, channel_build, channel_bench_count, channel_bench_build, 0, 6};
