/* move_rows.c - references of "gather_rows" and "add_rows". */
#include <string.h>

#include "kernels/kernel.h"
#include "kernels/lm.h"

static int64_t gather_units(const void *args) {
    const dvk_gather_rows_args *a = args;
    return a->m;
}

static void gather_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_gather_rows_args *a = args;
    (void)scratch;
    for (int64_t i = first; i < last; i++) {
        memcpy(a->y + i * a->dim, a->x + a->order[i] * a->dim, (size_t)a->dim * sizeof *a->y);
    }
}

static int64_t add_units(const void *args) {
    const dvk_add_rows_args *a = args;
    return a->m;
}

static void add_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_add_rows_args *a = args;
    (void)scratch;
    for (int64_t i = first; i < last; i++) {
        float *y = a->y + i * a->dim;
        for (int64_t k = i * a->taps; k < (i + 1) * a->taps; k++) {
            if (a->row[k] < 0) {
                continue;
            }
            const float weight = a->weight != NULL ? a->weight[k] : 1.0f;
            const float *x = a->x + a->row[k] * a->dim;
            for (int64_t j = 0; j < a->dim; j++) {
                y[j] += weight * x[j];
            }
        }
    }
}

const dvk_kernel dvk_gather_rows_ref = {
    .op = "gather_rows", .variant = "ref", .compute = DVK_F32, .units = gather_units, .run = gather_run};

const dvk_kernel dvk_add_rows_ref = {
    .op = "add_rows", .variant = "ref", .compute = DVK_F32, .units = add_units, .run = add_run};
