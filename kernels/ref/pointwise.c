/* pointwise.c - reference of "pointwise": y = epi(pro(x)). One unit is one row of one picture. y may be the memory of x
 * or of a residual: every element is read before it is written and never again. */
#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

static int64_t units(const void *args) {
    const dvk_pointwise_args *a = args;
    return a->y.n * a->y.h;
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_pointwise_args *a = args;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / a->y.h;
        const int64_t y = unit % a->y.h;
        for (int64_t x = 0; x < a->y.w; x++) {
            for (int64_t c = 0; c < a->y.c; c++) {
                const float stored = dvk_load(a->x.data, a->x.dtype, dvk_at(&a->x, n, y, x) + c);
                const float v = dvk_prologue_at(&a->pro, stored, n, c, a->y.c);
                dvk_store(a->y.data, a->y.dtype, dvk_at(&a->y, n, y, x) + c, dvk_epilogue_at(&a->epi, v, n, y, x, c));
            }
        }
    }
}

const dvk_kernel dvk_pointwise_ref = {
    .op = "pointwise", .variant = "ref", .compute = DVK_F32, .units = units, .run = run};
