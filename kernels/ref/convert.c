/* convert.c - references of "load" and "store" between a caller's picture of any layout and a view. One unit is one
 * row. mul and add are two roundings, never one FMA, because integers must be identical in every variant. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

static unsigned char *image_at(const dvk_image *im, int64_t n, int64_t y, int64_t x, int64_t c) {
    const int64_t channel = im->identity_map ? c : im->map[c];
    return (unsigned char *)im->data + n * im->sn + y * im->sh + x * im->sw + channel * im->sc;
}

static float image_read(const dvk_image *im, const unsigned char *p) {
    if (im->dtype == DVK_U8) {
        return (float)*p;
    }
    if (im->dtype == DVK_U16) {
        uint16_t u = 0;
        memcpy(&u, p, sizeof u);
        return (float)u;
    }
    float f = 0.0f; /* large enough for every type; memcpy, because a caller's strides may be unaligned */
    memcpy(&f, p, dvk_dtype_size(im->dtype));
    return dvk_load(&f, im->dtype, 0);
}

/* Clamps an integer to the range of its type, also if the caller's clamp is off or wider. */
static double rounded(const dvk_convert_args *a, float v) {
    const double top = a->image.dtype == DVK_U8 ? 255.0 : 65535.0;
    const double lo = a->clamp && a->lo > 0.0f ? (double)a->lo : 0.0;
    const double hi = a->clamp && (double)a->hi < top ? (double)a->hi : top;
    if (!((double)v > lo)) { /* below, or NaN */
        return rint(lo);
    }
    return rint((double)v < hi ? (double)v : hi);
}

static void image_write(const dvk_convert_args *a, unsigned char *p, float v) {
    if (a->image.dtype == DVK_U8) {
        *p = (unsigned char)rounded(a, v);
        return;
    }
    if (a->image.dtype == DVK_U16) {
        const uint16_t u = (uint16_t)rounded(a, v);
        memcpy(p, &u, sizeof u);
        return;
    }
    if (a->clamp) {
        v = v < a->lo ? a->lo : v > a->hi ? a->hi : v;
    }
    float f = 0.0f;
    dvk_store(&f, a->image.dtype, 0, v);
    memcpy(p, &f, dvk_dtype_size(a->image.dtype));
}

static int64_t units(const void *args) {
    const dvk_convert_args *a = args;
    return a->view.n * a->view.h;
}

static void load_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_convert_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->view.h;
        const int64_t y = unit % a->view.h;
        for (int64_t x = 0; x < a->view.w; x++) {
            for (int64_t c = 0; c < a->view.c; c++) {
                const float v = image_read(&a->image, image_at(&a->image, n, y, x, c));
                dvk_store(a->view.data, a->view.dtype, dvk_at(&a->view, n, y, x) + c, v * a->mul + a->add);
            }
        }
    }
}

static void store_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_convert_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->view.h;
        const int64_t y = unit % a->view.h;
        for (int64_t x = 0; x < a->view.w; x++) {
            for (int64_t c = 0; c < a->view.c; c++) {
                const float v = dvk_load(a->view.data, a->view.dtype, dvk_at(&a->view, n, y, x) + c);
                image_write(a, image_at(&a->image, n, y, x, c), v * a->mul + a->add);
            }
        }
    }
}

const dvk_kernel dvk_load_ref = {.op = "load", .variant = "ref", .compute = DVK_F32, .units = units, .run = load_run};

const dvk_kernel dvk_store_ref = {
    .op = "store", .variant = "ref", .compute = DVK_F32, .units = units, .run = store_run};
