/* norm_tmpl.h - "group_norm_stats" on vectors, compiled once for each instruction set by a file that has included a
 * conv_vec_*.h. A strip of pixels is read twice. The first pass, in memory order, computes the mean per channel. The
 * second pass reads the cache and sums the differences from that mean, so that a large mean costs no precision. Strips
 * are merged in double. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/conv/conv_common.h"

enum {
    GN_STRIP_BYTES = 24576, /* per strip: most of an L1 cache */
    GN_STRIP = 64,          /* maximum pixels of a strip */
    GN_VECTORS = 4          /* vectors of channels at a time: hides the latency of sums */
};

typedef struct gn_sums {    /* per channel */
    double *first, *second; /* sum of x, and of x squared */
    float *strip;           /* sum of x over one strip */
} gn_sums;

static int64_t gn_chunks(const dvk_group_norm_stats_args *a) {
    return conv_ceil_div(a->x.h, DVK_NORM_CHUNK_ROWS);
}

static int64_t gn_units(const void *args) {
    const dvk_group_norm_stats_args *a = args;
    return a->x.n * gn_chunks(a);
}

static size_t gn_scratch_bytes(const void *args) {
    const dvk_group_norm_stats_args *a = args;
    return (size_t)a->x.c * (2 * sizeof(double) + sizeof(float));
}

static double gn_cost(const void *args) {
    const dvk_group_norm_stats_args *a = args;
    return (double)(a->x.n * a->x.h * a->x.w * a->x.c) * CPU_COST(group_norm_stats, element);
}

CONV_INLINE void gn_add(const dvk_view *v, float *sums, int64_t at, int64_t c, int64_t lanes) {
    cv_put(sums, DVK_F32, c, lanes, cv_add(cv_get(sums, DVK_F32, c, lanes), cv_get(v->data, v->dtype, at + c, lanes)));
}

static void gn_strip_sums(const dvk_view *v, float *sums, int64_t at, int64_t pixels) {
    memset(sums, 0, (size_t)v->c * sizeof(float));
    for (int64_t i = 0; i < pixels; i++, at += v->sw) {
        int64_t c = 0;
        for (; c + CONV_VW <= v->c; c += CONV_VW) {
            gn_add(v, sums, at, c, CONV_VW);
        }
        if (c < v->c) {
            gn_add(v, sums, at, c, v->c - c);
        }
    }
}

/* Channels [c, c + lanes) and so on, `vectors` times, of `pixels` pixels from element index `at`. */
CONV_INLINE void gn_around_mean(const dvk_view *v, const gn_sums *sums, int64_t at, int64_t pixels, int64_t c,
                                int vectors, int64_t lanes) {
    conv_vec centre[GN_VECTORS];
    conv_vec left[GN_VECTORS];
    conv_vec square[GN_VECTORS];
    for (int j = 0; j < vectors; j++) {
        const conv_vec sum = cv_get(sums->strip, DVK_F32, c + j * CONV_VW, lanes);
        centre[j] = cv_mul(sum, cv_set1(1.0f / (float)pixels));
        left[j] = square[j] = cv_set1(0.0f);
    }
    for (int64_t i = 0; i < pixels; i++) {
        for (int j = 0; j < vectors; j++) {
            const conv_vec d = cv_sub(cv_get(v->data, v->dtype, at + i * v->sw + c + j * CONV_VW, lanes), centre[j]);
            left[j] = cv_add(left[j], d);
            square[j] = cv_fma(d, d, square[j]);
        }
    }
    const double count = (double)pixels;
    for (int j = 0; j < vectors; j++) {
        float of[3][CONV_VW];
        cv_store(of[0], centre[j]);
        cv_store(of[1], left[j]);
        cv_store(of[2], square[j]);
        for (int64_t k = 0; k < lanes; k++) {
            const double mean = (double)of[0][k];
            const double rest = (double)of[1][k];
            sums->first[c + j * CONV_VW + k] += mean * count + rest;
            sums->second[c + j * CONV_VW + k] += (double)of[2][k] + 2.0 * mean * rest + mean * mean * count;
        }
    }
}

static void gn_row(const dvk_view *v, const gn_sums *sums, int64_t at) {
    const int64_t pixel_bytes = v->c * (int64_t)dvk_dtype_size(v->dtype);
    const int64_t strip = conv_max(4, conv_min(GN_STRIP, GN_STRIP_BYTES / pixel_bytes));
    for (int64_t x = 0; x < v->w; x += strip) {
        const int64_t pixels = conv_min(strip, v->w - x);
        const int64_t from = at + x * v->sw;
        gn_strip_sums(v, sums->strip, from, pixels);
        int64_t c = 0;
        for (; c + GN_VECTORS * CONV_VW <= v->c; c += GN_VECTORS * CONV_VW) {
            gn_around_mean(v, sums, from, pixels, c, GN_VECTORS, CONV_VW);
        }
        for (; c + CONV_VW <= v->c; c += CONV_VW) {
            gn_around_mean(v, sums, from, pixels, c, 1, CONV_VW);
        }
        if (c < v->c) {
            gn_around_mean(v, sums, from, pixels, c, 1, v->c - c);
        }
    }
}

static void gn_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_group_norm_stats_args *a = args;
    const int64_t chunks = gn_chunks(a);
    const int64_t width = a->x.c / a->groups;
    gn_sums sums = {.first = scratch, .second = (double *)scratch + a->x.c};
    sums.strip = (float *)(void *)(sums.second + a->x.c);
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t y0 = unit % chunks * DVK_NORM_CHUNK_ROWS;
        const int64_t y1 = conv_min(y0 + DVK_NORM_CHUNK_ROWS, a->x.h);
        memset(scratch, 0, gn_scratch_bytes(args));
        for (int64_t y = y0; y < y1; y++) {
            gn_row(&a->x, &sums, unit / chunks * a->x.sn + y * a->x.sh);
        }
        const double count = (double)((y1 - y0) * a->x.w * width);
        for (int64_t g = 0; g < a->groups; g++) {
            double total = 0.0;
            double squares = 0.0;
            for (int64_t c = g * width; c < (g + 1) * width; c++) {
                total += sums.first[c];
                squares += sums.second[c];
            }
            const double m2 = squares - total / count * total;
            float *out = a->partial + (unit * a->groups + g) * 2;
            out[0] = (float)(total / count);
            out[1] = m2 < 0.0 ? 0.0f : (float)m2;
        }
    }
}
