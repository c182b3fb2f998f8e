/* conv_down.c - reference of "conv_down": two rows of y, each pixel from its window, then the row of z from them. */
#include "kernels/conv_down.h"
#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

enum { SIDE = 3, HALF = 2, TAPS = SIDE * SIDE };

static int64_t units(const void *args) {
    const dvk_conv_down_args *a = args;
    return a->y.n * ((a->y.h + 1) / HALF);
}

static double bend(double v, float slope) {
    return v >= 0.0 ? v : (double)slope * v;
}

/* One channel of a pixel of side x side x c values, and their weights. */
static float channel(const double *window, int64_t count, const float *w, const float *b, float slope, int64_t o) {
    double sum = b != NULL ? (double)b[o] : 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)w[o * count + i] * window[i];
    }
    return (float)bend(sum, slope);
}

/* Reads side x side pixels from (y, x) on in the order of the weights: [c][side][side]. */
static void read(const dvk_view *v, int64_t n, int64_t y, int64_t x, int64_t side, double *window) {
    for (int64_t tap = 0; tap < side * side; tap++) {
        const int64_t at = dvk_at(v, n, y + tap / side, x + tap % side);
        for (int64_t c = 0; c < v->c; c++) {
            window[c * side * side + tap] = (double)dvk_load(v->data, v->dtype, at + c);
        }
    }
}

static size_t scratch_bytes(const void *args) {
    const dvk_conv_down_args *a = args;
    return (size_t)((a->x.c + a->y.c) * TAPS) * sizeof(double);
}

static void rows(const dvk_conv_down_args *a, int64_t n, int64_t half, double *window) {
    for (int64_t y = HALF * half; y < HALF * half + HALF && y < a->y.h; y++) {
        for (int64_t x = 0; x < a->y.w; x++) {
            read(&a->x, n, y, x, SIDE, window);
            for (int64_t o = 0; o < a->y.c; o++) {
                dvk_store(a->y.data, a->y.dtype, dvk_at(&a->y, n, y, x) + o,
                          channel(window, a->x.c * TAPS, a->w, a->b, a->slope, o));
            }
        }
    }
    for (int64_t x = 0; half < a->z.h && x < a->z.w; x++) {
        read(&a->y, n, HALF * half, HALF * x, HALF, window);
        for (int64_t o = 0; o < a->z.c; o++) {
            dvk_store(a->z.data, a->z.dtype, dvk_at(&a->z, n, half, x) + o,
                      channel(window, a->y.c * HALF * HALF, a->w_down, a->b_down, a->slope_down, o));
        }
    }
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_conv_down_args *a = args;
    const int64_t per = (a->y.h + 1) / HALF;
    for (int64_t i = first; i < last; i++) {
        rows(a, i / per, i % per, scratch);
    }
}

const dvk_kernel dvk_conv_down_ref = {.op = "conv_down",
                                      .variant = "ref",
                                      .compute = DVK_F32,
                                      .units = units,
                                      .scratch_bytes = scratch_bytes,
                                      .run = run};
