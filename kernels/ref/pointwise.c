/* pointwise.c - reference of "pointwise": y = epi(pro(x)). One unit is one row of one picture. y may be the memory of x
 * or of a residual: every element is read before it is written and never again. */
#include "kernels/kernel.h"
#include "kernels/ref/each.h"

static float pointwise_at(const void *args, int64_t n, int64_t y, int64_t x, int64_t c) {
    const dvk_pointwise_args *a = args;
    const float v = dvk_prologue_at(&a->pro, dvk_get(&a->x, n, y, x, c), n, c, a->y.c);
    return dvk_epilogue_at(&a->epi, v, n, y, x, c);
}

DVK_REF_EACH(pointwise, dvk_pointwise_args);
