/* each.h - loops of references that compute element by element. One unit is a row of the result. */
#ifndef DVK_REF_EACH_H
#define DVK_REF_EACH_H

#include "kernels/ref/scalar.h"

static inline float dvk_get(const dvk_view *v, int64_t n, int64_t y, int64_t x, int64_t c) {
    return dvk_load(v->data, v->dtype, dvk_at(v, n, y, x) + c);
}

static inline void dvk_put(const dvk_view *v, int64_t n, int64_t y, int64_t x, int64_t c, float value) {
    dvk_store(v->data, v->dtype, dvk_at(v, n, y, x) + c, value);
}

/* Every element is read before it is written. The result may alias an input if `element` reads only its own position. */
static inline void dvk_each(const void *args, const dvk_view *to, int64_t first, int64_t last,
                            float (*element)(const void *args, int64_t n, int64_t y, int64_t x, int64_t c)) {
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / to->h;
        const int64_t y = unit % to->h;
        for (int64_t x = 0; x < to->w; x++) {
            for (int64_t c = 0; c < to->c; c++) {
                dvk_put(to, n, y, x, c, element(args, n, y, x, c));
            }
        }
    }
}

/* Defines dvk_<op>_ref for arguments of type `type` with result y. <op>_at(args, n, y, x, c) computes one element. */
#define DVK_REF_EACH(op_, type)                                                                                        \
    static int64_t op_##_units(const void *args) {                                                                     \
        const type *a = args;                                                                                          \
        return a->y.n * a->y.h;                                                                                        \
    }                                                                                                                  \
    static void op_##_run(const void *args, int64_t first, int64_t last, void *scratch) {                              \
        const type *a = args;                                                                                          \
        (void)scratch;                                                                                                 \
        dvk_each(args, &a->y, first, last, op_##_at);                                                                  \
    }                                                                                                                  \
    const dvk_kernel dvk_##op_##_ref = {                                                                               \
        .op = #op_, .variant = "ref", .compute = DVK_F32, .units = op_##_units, .run = op_##_run}

#endif
