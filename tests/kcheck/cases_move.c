/* cases_move.c - problems for the ops that move data: upsample, pixel_shuffle, pixel_unshuffle, pad, load and store.
 * Their results must be exact. */
#include <stdio.h>

#include "tests/kcheck/kcheck.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

static const kc_shape shapes[] =
    {/* small side: input of upsample and shuffle, output of unshuffle; c of the large side */
     {1, 1, 1, 1},  {1, 1, 1, 3},   {2, 3, 5, 1},   {1, 2, 3, 4},   {1, 3, 7, 16},
     {2, 5, 3, 17}, {1, 4, 9, 31},  {1, 9, 2, 32},  {1, 6, 11, 48}, {1, 5, 33, 3},
     {1, 3, 67, 3}, {1, 7, 100, 1}, {1, 2, 37, 64}, {1, 3, 40, 4},  {2, 2, 130, 3}};

enum { N_SHAPES = (int)(sizeof shapes / sizeof shapes[0]) };

typedef enum kind { UPSAMPLE, SHUFFLE, UNSHUFFLE } kind;

typedef struct resample_spec {
    kc_shape small; /* spatial size of the small side, channels of the large one */
    int64_t r;
    dvk_dtype xt, yt;
    int res; /* 0 none, 1 of y's type, 2 f32 */
    int slab;
    kc_fill fill;
} resample_spec;

static void resample_make(kc_problem *p, kind what, const resample_spec *s) {
    dvk_resample_args *a = &p->args.resample;
    const kc_shape *m = &s->small;
    const kc_shape large = {m->n, m->h * s->r, m->w * s->r, m->c};
    const kc_shape folded = {m->n, m->h, m->w, m->c * s->r * s->r};
    *a = (dvk_resample_args){.r = s->r};
    kc_view(p, &a->x, s->xt, what == UPSAMPLE ? *m : what == SHUFFLE ? folded : large, s->slab);
    kc_fill_view(p, &a->x, s->fill);
    kc_view(p, &a->y, s->yt, what == UNSHUFFLE ? folded : large, s->slab);
    if (what == SHUFFLE && s->res) {
        kc_view(p, &a->res, s->res == 1 ? s->yt : DVK_F32, *m, s->slab);
        kc_fill_view(p, &a->res, KC_NORMAL);
    }
    kc_output_view(p, &a->y);
    p->error_class = KC_EXACT;
    p->bytes = (double)(a->x.n * a->x.h * a->x.w * a->x.c) * (double)dvk_dtype_size(s->xt) +
               (double)(a->y.n * a->y.h * a->y.w * a->y.c) * (double)dvk_dtype_size(s->yt);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld -> %lldx%lldx%lld r %lld %s->%s res %d slab %d fill %d",
             (long long)a->x.n, (long long)a->x.h, (long long)a->x.w, (long long)a->x.c, (long long)a->y.h,
             (long long)a->y.w, (long long)a->y.c, (long long)s->r, kc_dtype_name(s->xt), kc_dtype_name(s->yt), s->res,
             s->slab, (int)s->fill);
}

static int resample_count(void) {
    return N_SHAPES * 4 * 9;
}

static void resample_case(kc_problem *p, kind what, int i) {
    const int j = i / N_SHAPES;
    const resample_spec s = {.small = shapes[i % N_SHAPES],
                             .r = 1 + j % 4,
                             .xt = dtypes[j / 4 % 3],
                             .yt = dtypes[(j / 4 + (j / 12 == 2)) % 3],
                             .res = j / 12 % 3,
                             .slab = i % 2,
                             .fill = (kc_fill)(i % 7 % KC_FILLS)};
    resample_make(p, what, &s);
}

enum { N_RESAMPLE_BENCHES = 3 };

static int resample_bench_count(void) {
    return 2 * N_RESAMPLE_BENCHES;
}

static void resample_bench(kc_problem *p, kind what, int i) {
    static const resample_spec of[3][N_RESAMPLE_BENCHES] = {
        [UPSAMPLE] = {{.small = {1, 128, 128, 512}, .r = 2},
                      {.small = {1, 540, 960, 64}, .r = 2},
                      {.small = {1, 270, 480, 64}, .r = 4}},
        [SHUFFLE] = {{.small = {1, 360, 640, 3}, .r = 4, .res = 1},
                     {.small = {1, 1080, 1920, 3}, .r = 2},
                     {.small = {1, 540, 960, 64}, .r = 2}},
        [UNSHUFFLE] = {{.small = {1, 540, 960, 3}, .r = 2},
                       {.small = {1, 270, 480, 3}, .r = 4},
                       {.small = {1, 270, 480, 64}, .r = 2}},
    };
    resample_spec s = of[what][i / 2];
    s.xt = s.yt = i % 2 ? DVK_BF16 : DVK_F32;
    resample_make(p, what, &s);
}

static void upsample_build(kc_problem *p, int i) {
    resample_case(p, UPSAMPLE, i);
}

static void upsample_bench(kc_problem *p, int i) {
    resample_bench(p, UPSAMPLE, i);
}

static void shuffle_build(kc_problem *p, int i) {
    resample_case(p, SHUFFLE, i);
}

static void shuffle_bench(kc_problem *p, int i) {
    resample_bench(p, SHUFFLE, i);
}

static void unshuffle_build(kc_problem *p, int i) {
    resample_case(p, UNSHUFFLE, i);
}

static void unshuffle_bench(kc_problem *p, int i) {
    resample_bench(p, UNSHUFFLE, i);
}

/* --- pad --- */

static void pad_make(kc_problem *p, const kc_shape *s, const int64_t more[4], int variety) {
    const int64_t up = more[2], left = more[3];
    const int64_t down = more[0] + up, right = more[1] + left;
    dvk_pad_args *a = &p->args.pad;
    const dvk_dtype xt = dtypes[variety % 3];
    const dvk_dtype yt = dtypes[(variety % 3 + (variety % 5 == 4)) % 3];
    *a = (dvk_pad_args){.mode = (dvk_pad_mode)(variety / 2 % 3)};
    a->top = (int32_t)up;
    a->left = (int32_t)left;
    kc_picture(p, &a->x, xt, *s, variety / 4 % 2);
    kc_fill_view(p, &a->x, (kc_fill)(variety % 7 % KC_FILLS));
    kc_output_picture(p, &a->y, yt, (kc_shape){s->n, s->h + down, s->w + right, s->c}, variety / 8 % 2);
    p->error_class = KC_EXACT;
    p->bytes = (double)(s->n * s->h * s->w * s->c) * (double)(dvk_dtype_size(xt) + dvk_dtype_size(yt));
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld +%lld +%lld at %lld,%lld %s->%s mode %d variety %d",
             (long long)s->n, (long long)s->h, (long long)s->w, (long long)s->c, (long long)down, (long long)right,
             (long long)up, (long long)left, kc_dtype_name(xt), kc_dtype_name(yt), (int)a->mode, variety);
}

static int pad_count(void) {
    return N_SHAPES * 32;
}

static void pad_build(kc_problem *p, int i) {
    static const int64_t amounts[8][4] = {{1, 0},       {0, 3},       {2, 1},           {9, 70},
                                          {1, 0, 2, 3}, {0, 0, 1, 0}, {18, 19, 18, 18}, {0, 3, 0, 7}};
    pad_make(p, &shapes[i % N_SHAPES], amounts[i / N_SHAPES % 8], i);
}

static int pad_bench_count(void) {
    return 2;
}

static void pad_bench(kc_problem *p, int i) {
    static const kc_shape picture = {1, 1079, 1919, 3};
    static const int64_t more[4] = {1, 1};
    pad_make(p, &picture, more, 2 + i); /* reflected; bf16 and f32 */
}

/* --- load and store --- */

typedef struct convert_spec {
    kc_shape size;
    dvk_dtype image, view;
    int layout; /* 0 interleaved, 1 planar, 2 a wider picture with a spare channel and a reversed order, 3 rows upside
                   down */
    int slab;
    int clamp;
    kc_fill fill;
} convert_spec;

static void image_make(kc_problem *p, const convert_spec *s, dvk_image *im) {
    const kc_shape *z = &s->size;
    const int64_t size = (int64_t)dvk_dtype_size(s->image);
    const int64_t spare = s->layout >= 2;
    *im = (dvk_image){.dtype = s->image, .channels = (int32_t)z->c, .n = z->n, .h = z->h, .w = z->w};
    im->identity_map = z->c > 4 || s->layout == 0;
    const int64_t row = z->w * (z->c + spare) + spare * 5;
    im->sc = s->layout == 1 ? z->h * (z->w + 3) * size : size;
    im->sw = s->layout == 1 ? size : (z->c + spare) * size;
    im->sh = s->layout == 1 ? (z->w + 3) * size : row * size;
    im->sn = s->layout == 1 ? z->c * im->sc : z->h * im->sh;
    for (int32_t c = 0; c < 4 && c < (int32_t)z->c; c++) {
        im->map[c] = s->layout == 2 ? (int32_t)z->c - 1 - c : c;
    }
    unsigned char *data = NULL;
    /* exactly up to the last accessible element */
    const int64_t extent = (z->n - 1) * im->sn + (z->h - 1) * im->sh + (z->w - 1) * im->sw + (z->c - 1) * im->sc + size;
    kc_alloc(p, (size_t)extent, &data);
    im->data = data;
    for (int64_t i = 0; i < extent / size && !p->unfilled; i++) {
        const uint64_t bits = kc_next(&p->rng);
        const float f = kc_uniform(&p->rng);
        if (s->image == DVK_U8) {
            data[i] = (unsigned char)bits;
        } else if (s->image == DVK_U16) {
            ((uint16_t *)(void *)data)[i] = (uint16_t)bits;
        } else {
            dvk_store(data, s->image, i, f);
        }
    }
    if (s->layout == 3) { /* bottom row first */
        im->data = data + (z->h - 1) * im->sh;
        im->sh = -im->sh;
    }
}

static void convert_make(kc_problem *p, const convert_spec *s, int store) {
    dvk_convert_args *a = &p->args.convert;
    const kc_shape *z = &s->size;
    const int is_float = s->image != DVK_U8 && s->image != DVK_U16;
    const float top = is_float ? 1.0f : s->image == DVK_U8 ? 255.0f : 65535.0f;
    *a = (dvk_convert_args){.mul = store ? 0.7f * top : 2.0f / top, .add = store ? 0.45f * top : -1.0f};
    a->clamp = s->clamp;
    a->lo = is_float ? -0.5f : 0.02f * top;
    a->hi = is_float ? 1.0f : top;
    image_make(p, s, &a->image);
    (store ? kc_picture : kc_output_picture)(p, &a->view, s->view, *z, s->slab);
    kc_fill_view(p, &a->view, s->fill);
    if (store) {
        kc_output_image(p, &a->image);
    }
    p->error_class = KC_EXACT;
    p->bytes = (double)(z->n * z->h * z->w * z->c) * (double)(dvk_dtype_size(s->image) + dvk_dtype_size(s->view));
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld image %s view %s layout %d slab %d clamp %d fill %d",
             (long long)z->n, (long long)z->h, (long long)z->w, (long long)z->c, kc_dtype_name(s->image),
             kc_dtype_name(s->view), s->layout, s->slab, s->clamp, (int)s->fill);
}

static const kc_shape pictures[] = {{1, 1, 1, 1},   {1, 1, 1, 3},  {1, 2, 5, 3},  {2, 3, 16, 4},
                                    {1, 3, 17, 1},  {1, 2, 33, 2}, {1, 3, 67, 3}, {1, 5, 100, 4},
                                    {1, 4, 31, 16}, {1, 2, 64, 3}, {2, 2, 47, 3}, {1, 2, 129, 1}};

enum { N_PICTURES = (int)(sizeof pictures / sizeof pictures[0]) };

static int convert_count(void) {
    return N_PICTURES * 5 * 3 * 4;
}

static void convert_case(kc_problem *p, int i, int store) {
    static const dvk_dtype images[] = {DVK_U8, DVK_U16, DVK_F32, DVK_F16, DVK_BF16};
    const int j = i / N_PICTURES;
    const convert_spec s = {.size = pictures[i % N_PICTURES],
                            .image = images[j % 5],
                            .view = dtypes[j / 5 % 3],
                            .layout = j / 15,
                            .slab = i / 3 % 2,
                            .clamp = i % 3 != 0,
                            .fill = (kc_fill)(i % 7 % KC_FILLS)};
    convert_make(p, &s, store);
}

static int convert_bench_count(void) {
    return 8;
}

static void convert_bench(kc_problem *p, int i, int store) {
    convert_spec s = {.size = {1, 2160, 3840, 3}, .clamp = 1};
    s.image = i / 2 % 2 ? DVK_F32 : DVK_U8;
    s.view = i % 2 ? DVK_BF16 : DVK_F32;
    s.layout = i / 4;
    convert_make(p, &s, store);
}

static void load_build(kc_problem *p, int i) {
    convert_case(p, i, 0);
}

static void load_bench(kc_problem *p, int i) {
    convert_bench(p, i, 0);
}

static void store_build(kc_problem *p, int i) {
    convert_case(p, i, 1);
}

static void store_bench(kc_problem *p, int i) {
    convert_bench(p, i, 1);
}

/* --- blend --- */

static void blend_make(kc_problem *p, const kc_shape *s, dvk_dtype t, int slab, kc_fill fill) {
    dvk_blend_args *a = &p->args.blend;
    kc_view(p, &a->x, t, *s, slab);
    kc_fill_view(p, &a->x, fill);
    kc_view(p, &a->y, DVK_F32, *s, slab);
    kc_fill_view(p, &a->y, KC_UNIFORM);
    a->wy = kc_floats(p, s->h, 0.0f, 1.0f);
    a->wx = kc_floats(p, s->w, 0.0f, 1.0f);
    kc_output_view(p, &a->y);
    p->error_class = KC_EXACT;
    p->bytes = (double)(s->n * s->h * s->w * s->c) * (double)(dvk_dtype_size(t) + 8);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld %s slab %d fill %d", (long long)s->n, (long long)s->h,
             (long long)s->w, (long long)s->c, kc_dtype_name(t), slab, (int)fill);
}

static int blend_count(void) {
    return N_SHAPES * 3;
}

static void blend_build(kc_problem *p, int i) {
    blend_make(p, &shapes[i % N_SHAPES], dtypes[i / N_SHAPES], i % 2, (kc_fill)(i % 7 % KC_FILLS));
}

static int blend_bench_count(void) {
    return 2;
}

static void blend_bench(kc_problem *p, int i) {
    blend_make(p, &(kc_shape){1, 2048, 2048, 3}, i ? DVK_F32 : DVK_BF16, 0, KC_UNIFORM);
}

const kc_suite kc_suite_upsample = {"upsample", resample_count, upsample_build, resample_bench_count, upsample_bench, 0,
                                    7};
const kc_suite kc_suite_pixel_shuffle = {
    "pixel_shuffle", resample_count, shuffle_build, resample_bench_count, shuffle_bench, 0, 8};
const kc_suite kc_suite_pixel_unshuffle = {
    "pixel_unshuffle", resample_count, unshuffle_build, resample_bench_count, unshuffle_bench, 0, 9};
const kc_suite kc_suite_pad = {"pad", pad_count, pad_build, pad_bench_count, pad_bench, 0, 10};
const kc_suite kc_suite_load = {"load", convert_count, load_build, convert_bench_count, load_bench, 0, 17};
const kc_suite kc_suite_store = {"store", convert_count, store_build, convert_bench_count, store_bench, 0, 18};
const kc_suite kc_suite_blend = {"blend", blend_count, blend_build, blend_bench_count, blend_bench, 0, 19};
