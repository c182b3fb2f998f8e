/* blend.c - reference of "blend". One unit is one row of one picture. Every product and every sum is rounded once. */
#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

static int64_t units(const void *args) {
    const dvk_blend_args *a = args;
    return a->y.n * a->y.h;
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_blend_args *a = args;
    float *to = a->y.data;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h;
        const int64_t y = unit % a->y.h;
        for (int64_t x = 0; x < a->y.w; x++) {
            const float weight = a->wy[y] * a->wx[x];
            const int64_t from = dvk_at(&a->x, n, y, x);
            const int64_t at = dvk_at(&a->y, n, y, x);
            for (int64_t c = 0; c < a->y.c; c++) {
                to[at + c] += weight * dvk_load(a->x.data, a->x.dtype, from + c);
            }
        }
    }
}

const dvk_kernel dvk_blend_ref = {.op = "blend", .variant = "ref", .compute = DVK_F32, .units = units, .run = run};
