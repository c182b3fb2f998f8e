/* cases_winograd.c - problems for conv2d_winograd and conv2d_winograd_band: pictures that end anywhere in a tile,
 * frames side by side in the channels, residuals, statistics. Also the layers of video autoencoders that a GPU is timed
 * on. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "tests/kcheck/cases.h"

typedef struct winograd_spec {
    int64_t n, h, w, slots, cin, cout;
    int own; /* x is a slice of a wider picture */
    int epilogue;
    int64_t stats_groups;
    kc_fill fill;
    int64_t first, rows; /* of a band; rows 0: all */
} winograd_spec;

static const winograd_spec specs[] = {
    {1, 24, 32, 1, 64, 128, 0, EPI_PLAIN, 0, KC_UNIFORM, 0, 0},
    {1, 1, 4, 1, 64, 128, 0, EPI_BIAS, 0, KC_UNIFORM, 0, 0},
    {1, 5, 5, 1, 128, 64, 0, EPI_BIAS, 0, KC_NORMAL, 0, 0},
    {2, 25, 33, 1, 64, 96, 1, EPI_RES, 0, KC_UNIFORM, 0, 0},
    {1, 26, 47, 3, 128, 128, 0, EPI_RES, 0, KC_NORMAL, 0, 0},
    {1, 48, 17, 3, 64, 256, 1, EPI_RES_IN_PLACE, 0, KC_UNIFORM, 0, 0},
    {3, 7, 18, 1, 256, 136, 0, EPI_BIAS, 0, KC_UNIFORM, 0, 0},
    {1, 49, 64, 3, 64, 128, 0, EPI_BIAS, 32, KC_UNIFORM, 0, 0},
    {2, 23, 31, 1, 128, 128, 0, EPI_RES, 32, KC_UNIFORM, 0, 0},
    {1, 50, 35, 2, 128, 256, 1, EPI_PLAIN, 32, KC_NORMAL, 0, 0},
    {1, 30, 34, 1, 64, 512, 0, EPI_RES_IN_PLACE, 32, KC_UNIFORM, 0, 0},
    {1, 9, 130, 3, 512, 64, 0, EPI_BIAS, 8, KC_UNIFORM, 0, 0},
    {1, 100, 16, 1, 64, 128, 0, EPI_RES, 0, KC_LARGE, 0, 0},
    {1, 27, 20, 1, 64, 128, 0, EPI_BIAS, 0, KC_DENORMAL, 0, 0},
    {1, 24, 20, 1, 64, 128, 0, EPI_RES, 0, KC_NAN, 0, 0},
    {1, 24, 20, 1, 64, 128, 0, EPI_RES, 0, KC_INF, 0, 0},
    {1, 300, 700, 1, 64, 128, 0, EPI_RES, 32, KC_UNIFORM, 0, 0},
};

enum { N_SPECS = (int)(sizeof specs / sizeof specs[0]) };

static void add_residual(kc_problem *p, dvk_epilogue *e, const dvk_view *y, int epilogue) {
    e->n_res = 1;
    e->beta[0] = 0.75f;
    if (epilogue == EPI_RES_IN_PLACE) {
        e->res[0] = *y;
    } else {
        kc_view(p, &e->res[0], y->dtype, (kc_shape){y->n, y->h, y->w, y->c}, (int)kc_below(&p->rng, 2));
    }
    kc_fill_view(p, &e->res[0], KC_UNIFORM);
}

/* Fills with the transform of a picture, so that large products cancel to small sums, as in a network. */
static void fill_transformed(kc_problem *p, const dvk_view *v, int64_t w, kc_fill fill) {
    const dvk_kernel *k = dvk_find("winograd_input", "ref");
    const int64_t h = v->h / DVK_WINOGRAD_LINES, row = w * v->c;
    dvk_winograd_input_args a = {.y = *v};
    a.x = (dvk_view){.dtype = DVK_F16, .n = v->n, .h = h, .w = w, .c = v->c, .sn = h * row, .sh = row, .sw = v->c};
    a.x.data = p->unfilled ? NULL : calloc((size_t)(v->n * h * row), dvk_dtype_size(DVK_F16));
    if (a.x.data != NULL) {
        kc_fill_view(p, &a.x, fill);
        k->run(&a, 0, k->units(&a), NULL);
    }
    free(a.x.data);
}

static void make(kc_problem *p, const winograd_spec *s, dvk_dtype t) {
    dvk_conv2d_args *a = &p->args.conv;
    const int64_t c = s->slots * s->cin;
    const dvk_winograd_band_args band = {.conv.y.h = s->h, .first = s->first, .rows = s->rows};
    const int64_t x_rows = s->rows > 0 ? dvk_band_to(&band) - dvk_band_from(&band) : s->h;
    *a = (dvk_conv2d_args){
        .kh = 3, .kw = 3, .stride = 1, .pad_top = 1, .pad_left = 1, .upsample = 1, .compute = DVK_F16};
    kc_view(p, &a->x, DVK_F16,
            (kc_shape){s->n, DVK_WINOGRAD_LINES * x_rows, (s->w + DVK_WINOGRAD_PIXELS - 1) / DVK_WINOGRAD_PIXELS, c},
            s->own);
    fill_transformed(p, &a->x, s->w, s->fill);
    kc_view(p, &a->y, t, (kc_shape){s->n, s->h, s->w, s->cout}, s->own);
    a->epi = (dvk_epilogue){.alpha = s->epilogue == EPI_RES ? 0.5f : 1.0f};
    if (s->epilogue != EPI_PLAIN) {
        a->epi.bias = kc_floats(p, s->cout, -1.0f, 1.0f);
    }
    if (s->epilogue == EPI_RES || s->epilogue == EPI_RES_IN_PLACE) {
        add_residual(p, &a->epi, &a->y, s->epilogue);
    }
    p->stats_groups = s->stats_groups;
    const float spread = c > 128 ? 0.035f : 0.07f;
    p->w_source = kc_floats(p, s->cout * c * 9, -spread, spread);
    p->buffers[p->n_buffers - 1].host_only = 1; /* kernels receive it packed */
    p->w_slot = &a->w;
    dvk_view y = a->y;
    if (s->rows > 0) {
        p->args.band.first = p->stats_first = s->first;
        p->args.band.rows = p->stats_rows = y.h = s->rows;
        y.data = (char *)y.data + s->first * y.sh * (int64_t)dvk_dtype_size(t);
    }
    kc_output_view(p, &y);
    p->error_class = KC_SUMS;
    p->only_nan_positions = s->fill == KC_NAN;
    p->no_compare = s->fill == KC_INF;
    p->flops = 2.0 * (double)(s->n * y.h * s->w * s->cout) * (double)(c * 9); /* of the equivalent convolution */
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lld %lldx%lld->%lld %s epi %d stats %d slab %d fill %d band %d %d",
             (long long)s->n, (long long)s->h, (long long)s->w, (long long)s->slots, (long long)s->cin,
             (long long)s->cout, kc_dtype_name(t), s->epilogue, (int)s->stats_groups, s->own, (int)s->fill,
             (int)s->first, (int)s->rows);
}

static int count(void) {
    return 2 * N_SPECS;
}

static void build(kc_problem *p, int i) {
    make(p, &specs[i % N_SPECS], i / N_SPECS ? DVK_F16 : DVK_BF16);
}

static const winograd_spec benches[] = {
    {1, 1088, 1920, 3, 128, 128, 0, EPI_RES, 32, KC_UNIFORM, 0, 0},
    {1, 1088, 1920, 3, 256, 128, 0, EPI_BIAS, 32, KC_UNIFORM, 0, 0},
    {1, 544, 960, 3, 256, 256, 0, EPI_RES, 32, KC_UNIFORM, 0, 0},
    {1, 544, 960, 3, 512, 256, 0, EPI_BIAS, 0, KC_UNIFORM, 0, 0},
    {1, 272, 480, 3, 512, 512, 0, EPI_RES, 0, KC_UNIFORM, 0, 0},
    {1, 136, 240, 3, 512, 512, 0, EPI_RES, 0, KC_UNIFORM, 0, 0},
    {1, 1024, 1024, 1, 128, 128, 0, EPI_RES, 0, KC_UNIFORM, 0, 0},
    {1, 512, 512, 1, 256, 256, 0, EPI_RES, 0, KC_UNIFORM, 0, 0},
    {1, 256, 256, 1, 512, 512, 0, EPI_RES, 0, KC_UNIFORM, 0, 0},
};

static int bench_count(void) {
    return (int)(sizeof benches / sizeof benches[0]);
}

static void bench_build(kc_problem *p, int i) {
    make(p, &benches[i], DVK_BF16);
}

const kc_suite kc_suite_conv2d_winograd = {"conv2d_winograd", count, build, bench_count, bench_build, 1, 60};

/* ---- bands of rows ---- */

static const winograd_spec bands[] = {
    {1, 48, 32, 1, 64, 128, 0, EPI_BIAS, 0, KC_UNIFORM, 12, 24},
    {1, 30, 17, 1, 128, 64, 0, EPI_RES, 0, KC_NORMAL, 0, 12},
    {2, 49, 33, 3, 64, 96, 1, EPI_RES_IN_PLACE, 0, KC_UNIFORM, 24, 12},
    {4, 50, 40, 1, 64, 128, 0, EPI_BIAS, 32, KC_UNIFORM, 36, 14},
    {3, 61, 35, 1, 64, 256, 1, EPI_RES, 32, KC_NORMAL, 12, 36},
    {2, 37, 70, 1, 64, 128, 0, EPI_RES_IN_PLACE, 32, KC_UNIFORM, 36, 1},
    {2, 26, 20, 1, 64, 128, 0, EPI_PLAIN, 32, KC_UNIFORM, 0, 26},
};

enum { N_BANDS = (int)(sizeof bands / sizeof bands[0]) };

static int band_count(void) {
    return 2 * N_BANDS;
}

static void band_build(kc_problem *p, int i) {
    make(p, &bands[i % N_BANDS], i / N_BANDS ? DVK_F16 : DVK_BF16);
}

/* Encoding four frames of 1280 x 720 and 1920 x 1088. */
static const winograd_spec band_benches[] = {
    {4, 720, 1280, 3, 128, 128, 0, EPI_RES, 32, KC_UNIFORM, 48, 48},
    {4, 720, 1280, 3, 128, 128, 0, EPI_RES, 0, KC_UNIFORM, 48, 48},
    {4, 720, 1280, 3, 128, 128, 0, EPI_BIAS, 32, KC_UNIFORM, 48, 48},
    {4, 720, 1280, 3, 128, 128, 0, EPI_BIAS, 0, KC_UNIFORM, 48, 48},
    {4, 720, 1280, 3, 128, 128, 0, EPI_RES, 32, KC_UNIFORM, 0, 720},
    {4, 720, 1280, 3, 128, 128, 0, EPI_RES, 0, KC_UNIFORM, 0, 720},
    {4, 720, 1280, 3, 128, 128, 0, EPI_BIAS, 32, KC_UNIFORM, 0, 720},
    {4, 720, 1280, 3, 128, 128, 0, EPI_BIAS, 0, KC_UNIFORM, 0, 720},
    {4, 1088, 1920, 3, 128, 128, 0, EPI_RES, 32, KC_UNIFORM, 72, 72},
};

static int band_bench_count(void) {
    return (int)(sizeof band_benches / sizeof band_benches[0]);
}

static void band_bench_build(kc_problem *p, int i) {
    make(p, &band_benches[i], DVK_BF16);
}

const kc_suite kc_suite_conv2d_winograd_band = {"conv2d_winograd_band", band_count, band_build, band_bench_count,
                                                band_bench_build,       1,          66};
