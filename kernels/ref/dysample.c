/* dysample.c - reference of "dysample": every output pixel is sampled bilinearly, with a separate position for each
 * group of channels. One unit is one row of the result. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/each.h"

typedef struct place {
    double y, x;
} place;

static double clamped(double v, int64_t size) {
    return fmin(fmax(v, 0.0), (double)(size - 1)); /* NaN becomes 0 */
}

/* Sample position of output pixel (oy, ox) in group g. */
static place place_of(const dvk_dysample_args *a, int64_t n, int64_t oy, int64_t ox, int64_t g) {
    const int64_t r = a->r;
    const int64_t h = oy / r, w = ox / r, i = oy % r, j = ox % r;
    const int64_t pixel = dvk_at(&a->offset, n, h, w);
    const int64_t dx = (g * r + i) * r + j;
    const int64_t dy = dx + a->groups * r * r;
    const double ahead_x = (double)(2 * j - r + 1) / (double)(2 * r);
    const double ahead_y = (double)(2 * i - r + 1) / (double)(2 * r);
    return (place){
        .y = clamped((double)h + ahead_y + (double)dvk_load(a->offset.data, a->offset.dtype, pixel + dy), a->x.h),
        .x = clamped((double)w + ahead_x + (double)dvk_load(a->offset.data, a->offset.dtype, pixel + dx), a->x.w)};
}

static double sample(const dvk_view *v, int64_t n, place at, int64_t c) {
    const int64_t y = (int64_t)at.y, x = (int64_t)at.x;
    const int64_t below = y < v->h - 1 ? y + 1 : y, right = x < v->w - 1 ? x + 1 : x;
    const double ty = at.y - (double)y, tx = at.x - (double)x;
    const double top = (1.0 - tx) * (double)dvk_get(v, n, y, x, c) + tx * (double)dvk_get(v, n, y, right, c);
    const double low = (1.0 - tx) * (double)dvk_get(v, n, below, x, c) + tx * (double)dvk_get(v, n, below, right, c);
    return (1.0 - ty) * top + ty * low;
}

static float dysample_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_dysample_args *a = args;
    const int64_t width = a->x.c / a->groups; /* channels of a group */
    const int64_t terms = a->x.c / a->y.c;    /* 1, or one of each group */
    double sum = 0.0;
    for (int64_t k = 0; k < terms; k++) {
        const int64_t channel = c + k * a->y.c;
        sum += sample(&a->x, n, place_of(a, n, y, x, channel / width), channel);
    }
    return (float)sum;
}

DVK_REF_EACH(dysample, dvk_dysample_args);
