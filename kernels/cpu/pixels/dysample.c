/* dysample.c - "dysample" in portable C. The sample position of a pixel is computed once for all channels of a group. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/dtype.h"
#include "kernels/kernel.h"

enum { UNIT = 16384 }; /* approximate samples of a unit */

typedef struct corners { /* element indices of channel 0, and weights */
    int64_t at[4];
    float weight[4];
} corners;

static int64_t rows_of(const dvk_dysample_args *a) {
    const int64_t rows = 1 + UNIT / (a->y.w * a->x.c);
    return rows < a->y.h ? rows : a->y.h;
}

static int64_t units(const void *args) {
    const dvk_dysample_args *a = args;
    return a->y.n * ((a->y.h + rows_of(a) - 1) / rows_of(a));
}

static double cost(const void *args) {
    const dvk_dysample_args *a = args;
    return (double)(a->y.n * a->y.h * a->y.w) *
           (CPU_COST(dysample, group) * (double)a->groups + CPU_COST(dysample, channel) * (double)a->x.c);
}

/* Splits a position on an axis of `size` samples into two neighbours and a weight; NaN becomes 0. */
static float split(float place, int64_t size, int64_t *first, int64_t *second) {
    const float most = (float)(size - 1);
    const float in = place > 0.0f ? (place < most ? place : most) : 0.0f;
    *first = (int64_t)in;
    *second = *first < size - 1 ? *first + 1 : *first;
    return in - (float)*first;
}

static corners corners_of(const dvk_dysample_args *a, int64_t n, int64_t oy, int64_t ox, int64_t g) {
    const dvk_view *x = &a->x, *d = &a->offset;
    const int64_t r = a->r, h = oy / r, w = ox / r, i = oy % r, j = ox % r;
    const int64_t pixel = n * d->sn + h * d->sh + w * d->sw + (g * r + i) * r + j;
    const float step = 0.5f / (float)r;
    const float ahead_x = (float)(2 * j - r + 1) * step, ahead_y = (float)(2 * i - r + 1) * step;
    int64_t left, right, top, low;
    const float tx = split((float)w + (ahead_x + dvk_load(d->data, d->dtype, pixel)), x->w, &left, &right);
    const float ty =
        split((float)h + (ahead_y + dvk_load(d->data, d->dtype, pixel + a->groups * r * r)), x->h, &top, &low);
    const int64_t first = n * x->sn + top * x->sh, second = n * x->sn + low * x->sh;
    return (corners){{first + left * x->sw, first + right * x->sw, second + left * x->sw, second + right * x->sw},
                     {(1.0f - ty) * (1.0f - tx), (1.0f - ty) * tx, ty * (1.0f - tx), ty * tx}};
}

static float sample(const dvk_view *x, const corners *k, int64_t c) {
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        sum += k->weight[i] * dvk_load(x->data, x->dtype, k->at[i] + c);
    }
    return sum;
}

/* One pixel: groups side by side, or all added to the first. */
static void make_pixel(const dvk_dysample_args *a, int64_t n, int64_t oy, int64_t ox) {
    const dvk_view *y = &a->y;
    const int64_t at = n * y->sn + oy * y->sh + ox * y->sw;
    const int64_t width = a->x.c / a->groups;
    const int sums = y->c < a->x.c;
    float total[16] = {0};
    for (int64_t g = 0; g < a->groups; g++) {
        const corners k = corners_of(a, n, oy, ox, g);
        for (int64_t c = 0; c < width; c++) {
            const float v = sample(&a->x, &k, g * width + c);
            if (sums) {
                total[c] += v;
            } else {
                dvk_store(y->data, y->dtype, at + g * width + c, v);
            }
        }
    }
    for (int64_t c = 0; sums && c < width; c++) {
        dvk_store(y->data, y->dtype, at + c, total[c]);
    }
}

static int supports(const void *args) {
    const dvk_dysample_args *a = args;
    return a->x.c / a->groups <= 16;
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_dysample_args *a = args;
    const int64_t rows = rows_of(a);
    const int64_t per_picture = (a->y.h + rows - 1) / rows;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t y0 = unit % per_picture * rows;
        for (int64_t y = y0; y < y0 + rows && y < a->y.h; y++) {
            for (int64_t x = 0; x < a->y.w; x++) {
                make_pixel(a, unit / per_picture, y, x);
            }
        }
    }
}

const dvk_kernel dvk_dysample_base = {.op = "dysample",
                                      .variant = "cpu/base",
                                      .compute = DVK_F32,
                                      .supports = supports,
                                      .cost = cost,
                                      .units = units,
                                      .run = run};
