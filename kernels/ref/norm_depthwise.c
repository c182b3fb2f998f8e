/* norm_depthwise.c - reference of "norm_depthwise", in double. The 1x1 convolution of a pixel is computed again for
 * each of its neighbours. One unit is one row. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/norm_depthwise.h"
#include "kernels/ref/scalar.h"

static int64_t units(const void *args) {
    const dvk_norm_depthwise_args *a = args;
    return a->y.n * a->y.h;
}

static size_t scratch_bytes(const void *args) {
    const dvk_norm_depthwise_args *a = args;
    return (size_t)(a->x.c + a->hidden) * sizeof(double);
}

static void normalise(const dvk_norm_depthwise_args *a, int64_t at, double *u) {
    double mean = 0.0, var = 0.0;
    for (int64_t c = 0; c < a->x.c; c++) {
        u[c] = (double)dvk_load(a->x.data, a->x.dtype, at + c);
        mean += u[c] / (double)a->x.c;
    }
    for (int64_t c = 0; c < a->x.c; c++) {
        var += (u[c] - mean) * (u[c] - mean) / (double)a->x.c;
    }
    for (int64_t c = 0; c < a->x.c && !a->plain; c++) {
        u[c] = (u[c] - mean) / sqrt(var + (double)a->eps);
        u[c] = u[c] * (a->gamma != NULL ? (double)a->gamma[c] : 1.0) + (a->beta != NULL ? (double)a->beta[c] : 0.0);
    }
}

static double dot(const float *w, const float *bias, int64_t row, const double *v, int64_t count) {
    double sum = bias != NULL ? (double)bias[row] : 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)w[row * count + i] * v[i];
    }
    return sum;
}

static double activated(dvk_act act, double v) {
    return act == DVK_ACT_NONE ? v : (double)dvk_activate(act, (float)v, 0.0f);
}

/* d of one pixel; u: scratch for x's channels. */
static void depthwise(const dvk_norm_depthwise_args *a, int64_t n, int64_t y, int64_t x, double *u, double *d) {
    for (int64_t k = 0; k < a->hidden; k++) {
        d[k] = a->b_depth != NULL ? (double)a->b_depth[k] : 0.0;
    }
    for (int64_t tap = 0; tap < 9; tap++) {
        const int64_t iy = y + tap / 3 - 1, ix = x + tap % 3 - 1;
        if (iy < 0 || ix < 0 || iy >= a->x.h || ix >= a->x.w) {
            continue;
        }
        normalise(a, dvk_at(&a->x, n, iy, ix), u);
        for (int64_t k = 0; k < a->hidden; k++) {
            const double v = dot(a->w_in, a->b_in, k, u, a->x.c);
            d[k] += (double)a->w_depth[tap * a->hidden + k] * activated(a->act_in, v);
        }
    }
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_norm_depthwise_args *a = args;
    double *u = scratch, *d = u + a->x.c;
    const int64_t half = a->hidden / 2;
    for (int64_t i = first * a->y.w; i < last * a->y.w; i++) {
        const int64_t n = i / (a->y.h * a->y.w), y = i / a->y.w % a->y.h, x = i % a->y.w;
        const int64_t to = dvk_at(&a->y, n, y, x);
        depthwise(a, n, y, x, u, d);
        for (int64_t k = 0; k < half && a->w_out != NULL; k++) {
            d[k] = activated(a->act, d[k]) * d[half + k];
        }
        for (int64_t c = 0; c < a->y.c; c++) {
            double v = a->w_out != NULL ? dot(a->w_out, a->b_out, c, d, half) : activated(a->act, d[c]);
            v += a->res.data != NULL ? (double)dvk_load(a->res.data, a->res.dtype, dvk_at(&a->res, n, y, x) + c) : 0.0;
            dvk_store(a->y.data, a->y.dtype, to + c, (float)v);
        }
    }
}

const dvk_kernel dvk_norm_depthwise_ref = {.op = "norm_depthwise",
                                           .variant = "ref",
                                           .compute = DVK_F32,
                                           .units = units,
                                           .scratch_bytes = scratch_bytes,
                                           .run = run};
