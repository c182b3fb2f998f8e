/* excite.c - reference of "excite"; see kernels/excite.h. */
#include <math.h>

#include "kernels/dtype.h"
#include "kernels/excite.h"
#include "kernels/kernel.h"

static int64_t units(const void *args) {
    (void)args;
    return 1;
}

static size_t scratch_bytes(const void *args) {
    const dvk_excite_args *a = args;
    return (size_t)(a->c + a->hidden) * sizeof(double);
}

static double dot(const float *w, const float *b, int64_t row, const double *x, int64_t n) {
    double sum = b != NULL ? (double)b[row] : 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)w[row * n + i] * x[i];
    }
    return sum;
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_excite_args *a = args;
    double *mean = scratch, *hidden = mean + a->c;
    if (first == last) {
        return;
    }
    for (int64_t c = 0; c < a->c; c++) {
        mean[c] = 0.0;
        for (int64_t row = 0; row < a->rows; row++) {
            mean[c] += (double)a->sums[row * a->c + c];
        }
        mean[c] /= (double)a->pixels;
    }
    for (int64_t k = 0; k < a->hidden; k++) {
        hidden[k] = fmax(dot(a->w_in, a->b_in, k, mean, a->c), 0.0);
    }
    for (int64_t c = 0; c < a->c; c++) {
        a->scale[c] = (float)(1.0 / (1.0 + exp(-dot(a->w_out, a->b_out, c, hidden, a->hidden))));
    }
    for (int64_t i = 0; i < a->count; i++) {
        const int64_t c = (int64_t)dvk_load(a->channel, a->dtype, i);
        dvk_store(a->scaled, a->dtype, i, dvk_load(a->w, a->dtype, i) * a->scale[c]);
    }
}

const dvk_kernel dvk_excite_ref = {
    .op = "excite", .variant = "ref", .compute = DVK_F32, .units = units, .scratch_bytes = scratch_bytes, .run = run};
