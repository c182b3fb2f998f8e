/* winograd_input.c - reference of "winograd_input". One unit is one row of a picture of x. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

#define MOST 65504.0f /* of f16 */

static float rounded(float v) {
    uint16_t bits = 0;
    dvk_store(&bits, DVK_F16, 0, v > MOST ? MOST : v < -MOST ? -MOST : v);
    return dvk_load(&bits, DVK_F16, 0);
}

/* Value at column x of row `row`; zero beyond the sides. */
static float operand_at(const dvk_winograd_input_args *a, int64_t n, int64_t row, int64_t x, int64_t c) {
    if (x < 0 || x >= a->x.w) {
        return 0.0f;
    }
    const float v = dvk_load(a->x.data, a->x.dtype, dvk_at(&a->x, n, row, x) + c);
    return rounded(dvk_prologue_at(&a->pro, v, n, c, a->x.c));
}

/* Transform of a quad's pixels d. */
static void transform(const float *d, float *v) {
    const float even1 = fmaf(-2.25f, d[2], d[4]), odd1 = fmaf(-2.25f, d[1], d[3]);
    const float even2 = fmaf(-0.5625f, d[2], d[4]), odd2 = fmaf(-0.5625f, d[1], d[3]);
    v[0] = fmaf(1.265625f, d[0], fmaf(-2.8125f, d[2], d[4]));
    v[1] = fmaf(0.75f, odd1, even1);
    v[2] = fmaf(-0.75f, odd1, even1);
    v[3] = fmaf(1.5f, odd2, even2);
    v[4] = fmaf(-1.5f, odd2, even2);
    v[5] = fmaf(1.265625f, d[1], fmaf(-2.8125f, d[3], d[5]));
}

static void quad(const dvk_winograd_input_args *a, int64_t n, int64_t row, int64_t q, int64_t c) {
    float d[DVK_WINOGRAD_LINES], v[DVK_WINOGRAD_LINES];
    for (int64_t i = 0; i < DVK_WINOGRAD_LINES; i++) {
        d[i] = operand_at(a, n, row, DVK_WINOGRAD_PIXELS * q - 1 + i, c);
    }
    transform(d, v);
    for (int64_t line = 0; line < DVK_WINOGRAD_LINES; line++) {
        const int64_t at = dvk_at(&a->y, n, DVK_WINOGRAD_LINES * row + line, q) + c;
        for (int64_t k = 0; k <= (n == 0 ? a->repeats : 0); k++) {
            dvk_store(a->y.data, a->y.dtype, at + k * a->repeat_step, rounded(v[line]));
        }
    }
}

/* Writes `kept`, which the next slice of a clip reads untransformed. */
static void keep_row(const dvk_winograd_input_args *a, int64_t n, int64_t row) {
    const int64_t to = n - (a->x.n - a->kept.n);
    for (int64_t i = 0; i < a->x.w * a->x.c && to >= 0 && row < a->kept.h; i++) {
        const int64_t x = i / a->x.c, c = i % a->x.c;
        dvk_store(a->kept.data, a->kept.dtype, dvk_at(&a->kept, to, row, x) + c, operand_at(a, n, row, x, c));
    }
}

static int64_t winograd_units(const void *args) {
    const dvk_winograd_input_args *a = args;
    return a->x.n * a->x.h;
}

static void winograd_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_winograd_input_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        for (int64_t i = 0; i < a->y.w * a->y.c; i++) {
            quad(a, unit / a->x.h, unit % a->x.h, i / a->y.c, i % a->y.c);
        }
        keep_row(a, unit / a->x.h, unit % a->x.h);
    }
}

const dvk_kernel dvk_winograd_input_ref = {
    .op = "winograd_input", .variant = "ref", .compute = DVK_F32, .units = winograd_units, .run = winograd_run};
