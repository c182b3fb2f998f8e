/* gate.c - references of "depthwise", "multiply", "mean", "max_pool" and "resize". One unit is one row of the result;
 * for "mean", one picture. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/each.h"

/* --- depthwise --- */

static float depthwise_sum(const dvk_depthwise_args *a, int64_t n, int64_t y, int64_t x, int64_t c) {
    const int64_t stride = a->stride > 0 ? a->stride : 1;
    double sum = 0.0;
    for (int64_t tap = 0; tap < (int64_t)a->kh * a->kw; tap++) {
        const int64_t iy = y * stride + tap / a->kw - a->pad_top;
        const int64_t ix = x * stride + tap % a->kw - a->pad_left;
        if (iy >= 0 && ix >= 0 && iy < a->x.h && ix < a->x.w) {
            const float v = dvk_prologue_at(&a->pro, dvk_get(&a->x, n, iy, ix, c), n, c, a->x.c);
            sum += (double)a->w[tap * a->x.c + c] * (double)v;
        }
    }
    return (float)sum;
}

/* paired: the activated sum of channel c times that of channel c of the second half. */
static float depthwise_pair(const dvk_depthwise_args *a, int64_t n, int64_t y, int64_t x, int64_t c) {
    const int64_t other = a->y.c + c;
    const float bias[2] = {a->epi.bias != NULL ? a->epi.bias[c] : 0.0f,
                           a->epi.bias != NULL ? a->epi.bias[other] : 0.0f};
    const float factor = dvk_activate(a->epi.act, depthwise_sum(a, n, y, x, c) + bias[0], 0.0f);
    return factor * (depthwise_sum(a, n, y, x, other) + bias[1]);
}

static float depthwise_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_depthwise_args *a = args;
    return a->paired ? depthwise_pair(a, n, y, x, c)
                     : dvk_epilogue_at(&a->epi, depthwise_sum(a, n, y, x, c), n, y, x, c);
}

DVK_REF_EACH(depthwise, dvk_depthwise_args);

/* --- multiply --- */

static float multiply_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_multiply_args *a = args;
    const float g = dvk_get(&a->g, n, a->g.h > 1 ? y : 0, a->g.w > 1 ? x : 0, a->g.c > 1 ? c : 0);
    const float v = dvk_get(&a->x, n, y, x, c) * dvk_activate(a->act, g, 0.0f);
    return dvk_epilogue_at(&a->epi, v, n, y, x, c);
}

DVK_REF_EACH(multiply, dvk_multiply_args);

/* --- mean, max_pool --- */

static int64_t mean_units(const void *args) {
    const dvk_pool_args *a = args;
    return a->y.n;
}

static void mean_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_pool_args *a = args;
    (void)scratch;
    for (int64_t n = first; n < last; n++) {
        for (int64_t c = 0; c < a->y.c; c++) {
            double sum = 0.0;
            for (int64_t i = 0; i < a->x.h * a->x.w; i++) {
                sum += (double)dvk_get(&a->x, n, i / a->x.w, i % a->x.w, c);
            }
            dvk_put(&a->y, n, 0, 0, c, (float)(sum / (double)(a->x.h * a->x.w)));
        }
    }
}

const dvk_kernel dvk_mean_ref = {
    .op = "mean", .variant = "ref", .compute = DVK_F32, .units = mean_units, .run = mean_run};

static float max_pool_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_pool_args *a = args;
    float most = dvk_get(&a->x, n, y * a->stride, x * a->stride, c);
    for (int64_t i = 1; i < (int64_t)a->k * a->k; i++) {
        const float v = dvk_get(&a->x, n, y * a->stride + i / a->k, x * a->stride + i % a->k, c);
        most = v > most || isnan(v) ? v : most;
    }
    return most;
}

DVK_REF_EACH(max_pool, dvk_pool_args);

/* --- resize --- */

typedef struct place { /* two samples of an axis and the weight of the second */
    int64_t i, j;
    double t;
} place;

static place place_of(int64_t out, int64_t from, int64_t to) {
    const double at = fmax(((double)out + 0.5) * (double)from / (double)to - 0.5, 0.0);
    place a = {.i = (int64_t)at};
    a.i = a.i < from - 1 ? a.i : from - 1;
    a.j = a.i < from - 1 ? a.i + 1 : a.i;
    a.t = at - (double)a.i;
    return a;
}

static float resize_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_pool_args *a = args;
    const place v = place_of(y, a->x.h, a->y.h);
    const place u = place_of(x, a->x.w, a->y.w);
    const double top =
        (1.0 - u.t) * (double)dvk_get(&a->x, n, v.i, u.i, c) + u.t * (double)dvk_get(&a->x, n, v.i, u.j, c);
    const double low =
        (1.0 - u.t) * (double)dvk_get(&a->x, n, v.j, u.i, c) + u.t * (double)dvk_get(&a->x, n, v.j, u.j, c);
    return (float)((1.0 - v.t) * top + v.t * low);
}

DVK_REF_EACH(resize, dvk_pool_args);
