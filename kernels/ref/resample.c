/* resample.c - references of the ops that move pixels: "upsample", "pixel_shuffle", "pixel_unshuffle" and "pad". One
 * unit is one output row. Values pass through float, which holds every f16 and bf16 exactly. */
#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

static float get(const dvk_view *v, int64_t n, int64_t y, int64_t x, int64_t c) {
    return dvk_load(v->data, v->dtype, dvk_at(v, n, y, x) + c);
}

static void put(const dvk_view *v, int64_t n, int64_t y, int64_t x, int64_t c, float value) {
    dvk_store(v->data, v->dtype, dvk_at(v, n, y, x) + c, value);
}

static int64_t units(const void *args) {
    const dvk_resample_args *a = args;
    return a->y.n * a->y.h;
}

static void upsample_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_resample_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h;
        const int64_t y = unit % a->y.h;
        for (int64_t x = 0; x < a->y.w; x++) {
            for (int64_t c = 0; c < a->y.c; c++) {
                put(&a->y, n, y, x, c, get(&a->x, n, y / a->r, x / a->r, c));
            }
        }
    }
}

static void shuffle_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_resample_args *a = args;
    const int64_t r = a->r;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h;
        const int64_t y = unit % a->y.h;
        for (int64_t x = 0; x < a->y.w; x++) {
            for (int64_t c = 0; c < a->y.c; c++) {
                float value = get(&a->x, n, y / r, x / r, c * r * r + y % r * r + x % r);
                if (a->res.data != NULL) {
                    value += get(&a->res, n, y / r, x / r, c);
                }
                put(&a->y, n, y, x, c, value);
            }
        }
    }
}

static void unshuffle_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_resample_args *a = args;
    const int64_t r = a->r;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h;
        const int64_t y = unit % a->y.h;
        for (int64_t x = 0; x < a->y.w; x++) {
            for (int64_t c = 0; c < a->y.c; c++) {
                const int64_t i = c / r % r;
                const int64_t j = c % r;
                put(&a->y, n, y, x, c, get(&a->x, n, y * r + i, x * r + j, c / (r * r)));
            }
        }
    }
}

/* The sample that stands at position i of an axis of `size` samples extended at both ends. */
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

static int64_t pad_units(const void *args) {
    const dvk_pad_args *a = args;
    return a->y.n * a->y.h;
}

static void pad_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_pad_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h;
        const int64_t y = unit % a->y.h - a->top;
        for (int64_t x = -(int64_t)a->left; x < a->y.w - a->left; x++) {
            const int outside = y < 0 || x < 0 || y >= a->x.h || x >= a->x.w;
            for (int64_t c = 0; c < a->y.c; c++) {
                const float value = outside && a->mode == DVK_PAD_ZERO
                                        ? 0.0f
                                        : get(&a->x, n, extended(y, a->x.h, a->mode), extended(x, a->x.w, a->mode), c);
                put(&a->y, n, y + a->top, x + a->left, c, value);
            }
        }
    }
}

const dvk_kernel dvk_upsample_ref = {
    .op = "upsample", .variant = "ref", .compute = DVK_F32, .units = units, .run = upsample_run};

const dvk_kernel dvk_pixel_shuffle_ref = {
    .op = "pixel_shuffle", .variant = "ref", .compute = DVK_F32, .units = units, .run = shuffle_run};

const dvk_kernel dvk_pixel_unshuffle_ref = {
    .op = "pixel_unshuffle", .variant = "ref", .compute = DVK_F32, .units = units, .run = unshuffle_run};

const dvk_kernel dvk_pad_ref = {.op = "pad", .variant = "ref", .compute = DVK_F32, .units = pad_units, .run = pad_run};
