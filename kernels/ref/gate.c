/* gate.c - references of "depthwise", "multiply", "mean", "max_pool" and "resize". One unit is one row of the result; of a
 * mean, one picture. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

static float get(const dvk_view *v, int64_t n, int64_t y, int64_t x, int64_t c) {
    return dvk_load(v->data, v->dtype, dvk_at(v, n, y, x) + c);
}

static void put(const dvk_view *v, int64_t n, int64_t y, int64_t x, int64_t c, float value) {
    dvk_store(v->data, v->dtype, dvk_at(v, n, y, x) + c, value);
}

/* --- depthwise --- */

static int64_t depthwise_units(const void *args) {
    const dvk_depthwise_args *a = args;
    return a->y.n * a->y.h;
}

static float depthwise_at(const dvk_depthwise_args *a, int64_t n, int64_t y, int64_t x, int64_t c) {
    double sum = 0.0;
    for (int64_t tap = 0; tap < (int64_t)a->kh * a->kw; tap++) {
        const int64_t iy = y + tap / a->kw - a->pad_top;
        const int64_t ix = x + tap % a->kw - a->pad_left;
        if (iy >= 0 && ix >= 0 && iy < a->x.h && ix < a->x.w) {
            const float v = dvk_prologue_at(&a->pro, get(&a->x, n, iy, ix, c), n, c, a->x.c);
            sum += (double)a->w[tap * a->x.c + c] * (double)v;
        }
    }
    return (float)sum;
}

/* paired: the activated sum of channel c times that of its partner. */
static float depthwise_pair(const dvk_depthwise_args *a, int64_t n, int64_t y, int64_t x, int64_t c) {
    const int64_t other = a->y.c + c;
    const float bias[2] = {a->epi.bias != NULL ? a->epi.bias[c] : 0.0f,
                           a->epi.bias != NULL ? a->epi.bias[other] : 0.0f};
    const float factor = dvk_activate(a->epi.act, depthwise_at(a, n, y, x, c) + bias[0], 0.0f);
    return factor * (depthwise_at(a, n, y, x, other) + bias[1]);
}

static void depthwise_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_depthwise_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h;
        const int64_t y = unit % a->y.h;
        for (int64_t x = 0; x < a->y.w; x++) {
            for (int64_t c = 0; c < a->y.c; c++) {
                put(&a->y, n, y, x, c,
                    a->paired ? depthwise_pair(a, n, y, x, c)
                              : dvk_epilogue_at(&a->epi, depthwise_at(a, n, y, x, c), n, y, x, c));
            }
        }
    }
}

/* --- multiply --- */

static int64_t multiply_units(const void *args) {
    const dvk_multiply_args *a = args;
    return a->y.n * a->y.h;
}

static void multiply_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_multiply_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h;
        const int64_t y = unit % a->y.h;
        const int64_t gy = a->g.h > 1 ? y : 0;
        for (int64_t x = 0; x < a->y.w; x++) {
            for (int64_t c = 0; c < a->y.c; c++) {
                const float g = get(&a->g, n, gy, a->g.w > 1 ? x : 0, a->g.c > 1 ? c : 0);
                const float v = get(&a->x, n, y, x, c) * dvk_activate(a->act, g, 0.0f);
                put(&a->y, n, y, x, c, dvk_epilogue_at(&a->epi, v, n, y, x, c));
            }
        }
    }
}

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
                sum += (double)get(&a->x, n, i / a->x.w, i % a->x.w, c);
            }
            put(&a->y, n, 0, 0, c, (float)(sum / (double)(a->x.h * a->x.w)));
        }
    }
}

static int64_t row_units(const void *args) {
    const dvk_pool_args *a = args;
    return a->y.n * a->y.h;
}

static void max_pool_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_pool_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h;
        const int64_t y = unit % a->y.h;
        for (int64_t x = 0; x < a->y.w; x++) {
            for (int64_t c = 0; c < a->y.c; c++) {
                float most = get(&a->x, n, y * a->stride, x * a->stride, c);
                for (int64_t i = 1; i < (int64_t)a->k * a->k; i++) {
                    const float v = get(&a->x, n, y * a->stride + i / a->k, x * a->stride + i % a->k, c);
                    most = v > most || isnan(v) ? v : most;
                }
                put(&a->y, n, y, x, c, most);
            }
        }
    }
}

/* --- resize --- */

typedef struct axis_at { /* two samples and the weight of the second */
    int64_t i, j;
    double t;
} axis_at;

static axis_at resize_at(int64_t out, int64_t from, int64_t to) {
    const double at = fmax(((double)out + 0.5) * (double)from / (double)to - 0.5, 0.0);
    axis_at a = {.i = (int64_t)at};
    a.i = a.i < from - 1 ? a.i : from - 1;
    a.j = a.i < from - 1 ? a.i + 1 : a.i;
    a.t = at - (double)a.i;
    return a;
}

static void resize_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_pool_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h;
        const int64_t y = unit % a->y.h;
        const axis_at v = resize_at(y, a->x.h, a->y.h);
        for (int64_t x = 0; x < a->y.w; x++) {
            const axis_at u = resize_at(x, a->x.w, a->y.w);
            for (int64_t c = 0; c < a->y.c; c++) {
                const double top =
                    (1.0 - u.t) * (double)get(&a->x, n, v.i, u.i, c) + u.t * (double)get(&a->x, n, v.i, u.j, c);
                const double low =
                    (1.0 - u.t) * (double)get(&a->x, n, v.j, u.i, c) + u.t * (double)get(&a->x, n, v.j, u.j, c);
                put(&a->y, n, y, x, c, (float)((1.0 - v.t) * top + v.t * low));
            }
        }
    }
}

const dvk_kernel dvk_depthwise_ref = {
    .op = "depthwise", .variant = "ref", .compute = DVK_F32, .units = depthwise_units, .run = depthwise_run};

const dvk_kernel dvk_multiply_ref = {
    .op = "multiply", .variant = "ref", .compute = DVK_F32, .units = multiply_units, .run = multiply_run};

const dvk_kernel dvk_mean_ref = {
    .op = "mean", .variant = "ref", .compute = DVK_F32, .units = mean_units, .run = mean_run};

const dvk_kernel dvk_max_pool_ref = {
    .op = "max_pool", .variant = "ref", .compute = DVK_F32, .units = row_units, .run = max_pool_run};

const dvk_kernel dvk_resize_ref = {
    .op = "resize", .variant = "ref", .compute = DVK_F32, .units = row_units, .run = resize_run};
