/* winograd_input.c - reference of "winograd_input". One unit is one row of a picture of y. */
#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

#define MOST 65504.0f /* of f16 */

static float rounded(float v) {
    uint16_t bits = 0;
    dvk_store(&bits, DVK_F16, 0, v > MOST ? MOST : v < -MOST ? -MOST : v);
    return dvk_load(&bits, DVK_F16, 0);
}

/* Of column x of the row of y that is row `row` of the operand's; zero beyond the sides. */
static float operand_at(const dvk_winograd_input_args *a, int64_t n, int64_t row, int64_t x, int64_t c) {
    if (x < 0 || x >= a->x.w) {
        return 0.0f;
    }
    const float v = dvk_load(a->x.data, a->x.dtype, dvk_at(&a->x, n, row, x) + c);
    return rounded(dvk_prologue_at(&a->pro, v, n, c, a->x.c));
}

static float difference(const dvk_winograd_input_args *a, int64_t n, int64_t y, int64_t p, int64_t c) {
    static const int first[4] = {0, 1, 2, 1}, second[4] = {2, 2, 1, 3};
    const int64_t f = y % 4;
    const float u = operand_at(a, n, y / 4, 2 * p - 1 + first[f], c);
    const float v = operand_at(a, n, y / 4, 2 * p - 1 + second[f], c);
    return rounded(f == 1 ? u + v : u - v);
}

static int64_t winograd_units(const void *args) {
    const dvk_winograd_input_args *a = args;
    return a->y.n * a->y.h;
}

static void winograd_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_winograd_input_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h, y = unit % a->y.h;
        for (int64_t i = 0; i < a->y.w * a->y.c; i++) {
            const int64_t p = i / a->y.c, c = i % a->y.c;
            const float v = difference(a, n, y, p, c);
            for (int64_t k = 0; k <= (n == 0 ? a->repeats : 0); k++) {
                dvk_store(a->y.data, a->y.dtype, dvk_at(&a->y, n, y, p) + c + k * a->repeat_step, v);
            }
        }
    }
}

const dvk_kernel dvk_winograd_input_ref = {
    .op = "winograd_input", .variant = "ref", .compute = DVK_F32, .units = winograd_units, .run = winograd_run};
