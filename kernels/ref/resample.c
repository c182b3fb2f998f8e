/* resample.c - references of the ops that rearrange pixels: "upsample", "pixel_shuffle", "pixel_unshuffle", "fold",
 * "unfold" and "pad". One unit is one output row. Values pass through float, which holds every f16 and bf16 exactly. */
#include "kernels/kernel.h"
#include "kernels/ref/each.h"

static float upsample_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_resample_args *a = args;
    return dvk_get(&a->x, n, y / a->r, x / a->r, c);
}

static float pixel_shuffle_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_resample_args *a = args;
    const int64_t r = a->r;
    const float value = dvk_get(&a->x, n, y / r, x / r, c * r * r + y % r * r + x % r);
    return a->res.data != NULL ? value + dvk_get(&a->res, n, y / r, x / r, c) : value;
}

static float pixel_unshuffle_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_resample_args *a = args;
    const int64_t r = a->r;
    return dvk_get(&a->x, n, y * r + c / r % r, x * r + c % r, c / (r * r));
}

static float fold_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_fold_args *a = args;
    const int64_t padded = a->y.c / a->heads;
    const int64_t dim = a->r * a->r * a->x.c / a->heads;
    const int64_t i = c / padded * dim + c % padded;
    const int64_t pixel = i / a->x.c;
    const int64_t iy = (y * a->r - a->top + pixel / a->r + a->x.h) % a->x.h;
    const int64_t ix = (x * a->r - a->left + pixel % a->r + a->x.w) % a->x.w;
    return c % padded < dim ? dvk_get(&a->x, n, iy, ix, i % a->x.c) : 0.0f;
}

static float unfold_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_fold_args *a = args;
    const int64_t r = a->r;
    const int64_t iy = (y + a->top) % a->y.h;
    const int64_t ix = (x + a->left) % a->y.w;
    return dvk_get(&a->x, n, iy / r, ix / r, (iy % r * r + ix % r) * a->y.c + c);
}

/* Index of the sample at position i of an axis of `size` samples that is extended at both ends. */
static int64_t extended(int64_t i, int64_t size, dvk_pad_mode mode) {
    if (mode == DVK_PAD_EDGE) {
        return i < 0 ? 0 : i < size ? i : size - 1;
    }
    if (i < 0) {
        return -i < size ? -i : size - 1;
    }
    const int64_t mirror = i < size ? i : 2 * size - 2 - i;
    return mirror > 0 ? mirror : 0;
}

static float pad_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_pad_args *a = args;
    const int64_t iy = y - a->top;
    const int64_t ix = x - a->left;
    const int outside = iy < 0 || ix < 0 || iy >= a->x.h || ix >= a->x.w;
    return outside && a->mode == DVK_PAD_ZERO
               ? 0.0f
               : dvk_get(&a->x, n, extended(iy, a->x.h, a->mode), extended(ix, a->x.w, a->mode), c);
}

DVK_REF_EACH(upsample, dvk_resample_args);
DVK_REF_EACH(pixel_shuffle, dvk_resample_args);
DVK_REF_EACH(pixel_unshuffle, dvk_resample_args);
DVK_REF_EACH(fold, dvk_fold_args);
DVK_REF_EACH(unfold, dvk_fold_args);
DVK_REF_EACH(pad, dvk_pad_args);
