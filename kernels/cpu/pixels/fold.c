/* fold.c - "fold" and "unfold" between views of one type: runs of channels, copied as bytes. */
#include <string.h>

#include "kernels/costs/cpu_costs.h"
#include "kernels/dtype.h"
#include "kernels/kernel.h"

enum { UNIT = 131072 }; /* approximate elements of a unit */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t rows_of(const dvk_view *y) {
    const int64_t rows = UNIT / (y->w * y->c);
    return rows < 1 ? 1 : least(rows, y->h);
}

static int64_t per_picture(const dvk_view *y) {
    return (y->h + rows_of(y) - 1) / rows_of(y);
}

static int64_t units(const void *args) {
    const dvk_fold_args *a = args;
    return a->y.n * per_picture(&a->y);
}

static double cost(const void *args) {
    const dvk_fold_args *a = args;
    return (double)(a->y.n * a->y.h * a->y.w) * (CPU_COST(fold, pixel) + CPU_COST(fold, channel) * (double)a->y.c);
}

static int supports(const void *args) {
    const dvk_fold_args *a = args;
    return a->x.dtype == a->y.dtype;
}

static unsigned char *at(const dvk_view *v, int64_t n, int64_t y, int64_t x) {
    return (unsigned char *)v->data + (n * v->sn + y * v->sh + x * v->sw) * (int64_t)dvk_dtype_size(v->dtype);
}

/* Copies values [from, from + count) of the r x r pixels of place (y, x). */
static void copy_values(const dvk_fold_args *a, int64_t n, int64_t y, int64_t x, int64_t from, int64_t count,
                        unsigned char *to) {
    const int64_t size = (int64_t)dvk_dtype_size(a->x.dtype);
    while (count > 0) {
        const int64_t pixel = from / a->x.c;
        const int64_t c = from % a->x.c;
        const int64_t run = least(count, a->x.c - c);
        const int64_t iy = (y * a->r - a->top + pixel / a->r + a->x.h) % a->x.h;
        const int64_t ix = (x * a->r - a->left + pixel % a->r + a->x.w) % a->x.w;
        memcpy(to, at(&a->x, n, iy, ix) + c * size, (size_t)(run * size));
        from += run;
        count -= run;
        to += run * size;
    }
}

static void fold_row(const dvk_fold_args *a, int64_t n, int64_t y) {
    const int64_t size = (int64_t)dvk_dtype_size(a->x.dtype);
    const int64_t padded = a->y.c / a->heads;
    const int64_t dim = a->r * a->r * a->x.c / a->heads;
    for (int64_t x = 0; x < a->y.w; x++) {
        for (int64_t head = 0; head < a->heads; head++) {
            unsigned char *to = at(&a->y, n, y, x) + head * padded * size;
            copy_values(a, n, y, x, head * dim, dim, to);
            memset(to + dim * size, 0, (size_t)((padded - dim) * size));
        }
    }
}

static void unfold_row(const dvk_fold_args *a, int64_t n, int64_t y) {
    const size_t bytes = (size_t)a->y.c * dvk_dtype_size(a->y.dtype);
    const int64_t iy = (y + a->top) % a->y.h;
    for (int64_t x = 0; x < a->y.w; x++) {
        const int64_t ix = (x + a->left) % a->y.w;
        const size_t pixel = (size_t)(iy % a->r * a->r + ix % a->r);
        memcpy(at(&a->y, n, y, x), at(&a->x, n, iy / a->r, ix / a->r) + pixel * bytes, bytes);
    }
}

static void each_row(const dvk_fold_args *a, int64_t first, int64_t last,
                     void (*row)(const dvk_fold_args *a, int64_t n, int64_t y)) {
    const int64_t rows = rows_of(&a->y);
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t y0 = unit % per_picture(&a->y) * rows;
        for (int64_t y = y0; y < least(y0 + rows, a->y.h); y++) {
            row(a, unit / per_picture(&a->y), y);
        }
    }
}

static void fold_run(const void *args, int64_t first, int64_t last, void *scratch) {
    (void)scratch;
    each_row(args, first, last, fold_row);
}

static void unfold_run(const void *args, int64_t first, int64_t last, void *scratch) {
    (void)scratch;
    each_row(args, first, last, unfold_row);
}

const dvk_kernel dvk_fold_base = {.op = "fold",
                                  .variant = "cpu/base",
                                  .compute = DVK_F32,
                                  .supports = supports,
                                  .cost = cost,
                                  .units = units,
                                  .run = fold_run};

const dvk_kernel dvk_unfold_base = {.op = "unfold",
                                    .variant = "cpu/base",
                                    .compute = DVK_F32,
                                    .supports = supports,
                                    .cost = cost,
                                    .units = units,
                                    .run = unfold_run};
