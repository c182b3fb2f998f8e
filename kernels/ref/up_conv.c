/* up_conv.c - reference of "up_conv": the sum m is computed again for every pixel of the result. */
#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"
#include "kernels/up_conv.h"

enum { SIDE = 3 };

static int64_t units(const void *args) {
    const dvk_up_conv_args *a = args;
    return a->y.n * a->y.h;
}

static size_t scratch_bytes(const void *args) {
    const dvk_up_conv_args *a = args;
    return (size_t)(SIDE * SIDE * a->res.c) * sizeof(double);
}

static double bend(double v, float slope) {
    return v >= 0.0 ? v : (double)slope * v;
}

/* A pixel of the sum m. */
static void sum_of(const dvk_up_conv_args *a, int64_t n, int64_t y, int64_t x, double *out) {
    const int64_t from = dvk_at(&a->x, n, y / 2, x / 2), add = dvk_at(&a->res, n, y, x);
    float rounded;
    for (int64_t c = 0; c < a->res.c; c++) {
        const int64_t row = 4 * c + y % 2 * 2 + x % 2;
        double sum = a->b_up != NULL ? (double)a->b_up[row] : 0.0;
        for (int64_t i = 0; i < a->x.c; i++) {
            const double v = (double)dvk_load(a->x.data, a->x.dtype, from + i);
            sum += (double)a->w_up[row * a->x.c + i] * v * (a->scale != NULL ? (double)a->scale[i] : 1.0);
        }
        sum = bend(sum, a->slope_up) + (double)dvk_load(a->res.data, a->res.dtype, add + c);
        dvk_store(&rounded, a->y.dtype, 0, (float)sum);
        out[c] = (double)dvk_load(&rounded, a->y.dtype, 0);
    }
}

static void pixel(const dvk_up_conv_args *a, int64_t n, int64_t y, int64_t x, double *window) {
    for (int64_t tap = 0; tap < SIDE * SIDE; tap++) {
        sum_of(a, n, y + tap / SIDE, x + tap % SIDE, window + tap * a->res.c);
    }
    for (int64_t o = 0; o < a->y.c; o++) {
        double sum = a->b != NULL ? (double)a->b[o] : 0.0;
        for (int64_t i = 0; i < a->res.c * SIDE * SIDE; i++) {
            sum +=
                (double)a->w[o * a->res.c * SIDE * SIDE + i] * window[i % (SIDE * SIDE) * a->res.c + i / (SIDE * SIDE)];
        }
        dvk_store(a->y.data, a->y.dtype, dvk_at(&a->y, n, y, x) + o, (float)bend(sum, a->slope));
    }
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_up_conv_args *a = args;
    for (int64_t row = first; row < last; row++) {
        for (int64_t x = 0; x < a->y.w; x++) {
            pixel(a, row / a->y.h, row % a->y.h, x, scratch);
        }
    }
}

const dvk_kernel dvk_up_conv_ref = {
    .op = "up_conv", .variant = "ref", .compute = DVK_F32, .units = units, .scratch_bytes = scratch_bytes, .run = run};
