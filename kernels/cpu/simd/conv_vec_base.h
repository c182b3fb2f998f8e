/* conv_vec_base.h - the vector type of the convolution templates for any processor: 4 floats in the vector extension of
 * gcc and clang. The compilers map it to the baseline of the processor (SSE2, NEON) or to scalars. It is not an array
 * in a struct: sanitizers would check each access to its elements in the innermost loop. */
#ifndef DVK_CONV_VEC_BASE_H
#define DVK_CONV_VEC_BASE_H

#include <math.h>
#include <string.h>

#include "kernels/dtype.h"

typedef float conv_vec __attribute__((vector_size(16)));
typedef int32_t conv_lanes __attribute__((vector_size(16))); /* result of a comparison: all bits set or none */

enum { CONV_VW = 4, CONV_MR = 6, CONV_NZ = 2 }; /* lanes; pixels and vectors of the micro-kernel */

#define CV_EACH(expression)                                                                                            \
    conv_vec r;                                                                                                        \
    for (int i = 0; i < CONV_VW; i++) {                                                                                \
        r[i] = (expression);                                                                                           \
    }                                                                                                                  \
    return r

static inline conv_vec cv_set1(float f) {
    return (conv_vec){f, f, f, f};
}

static inline conv_vec cv_load(const float *p) {
    conv_vec r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline void cv_store(float *p, conv_vec v) {
    memcpy(p, &v, sizeof v);
}

static inline conv_vec cv_add(conv_vec a, conv_vec b) {
    return a + b;
}

static inline conv_vec cv_sub(conv_vec a, conv_vec b) {
    return a - b;
}

static inline conv_vec cv_mul(conv_vec a, conv_vec b) {
    return a * b;
}

static inline conv_vec cv_fma(conv_vec a, conv_vec b, conv_vec c) { /* a * b + c */
    return a * b + c;
}

static inline conv_vec cv_fnma(conv_vec a, conv_vec b, conv_vec c) { /* c - a * b */
    return c - a * b;
}

static inline conv_vec cv_choose(conv_lanes where, conv_vec a, conv_vec b) {
    return (conv_vec)((where & (conv_lanes)a) | (~where & (conv_lanes)b));
}

/* Like the hardware, returns the second operand if one is NaN. */
static inline conv_vec cv_max(conv_vec a, conv_vec b) {
    return cv_choose(a > b, a, b);
}

static inline conv_vec cv_min(conv_vec a, conv_vec b) {
    return cv_choose(a < b, a, b);
}

/* x >= 0 ? a : b, b for NaN */
static inline conv_vec cv_select_ge0(conv_vec x, conv_vec a, conv_vec b) {
    return cv_choose(x >= cv_set1(0.0f), a, b);
}

static inline conv_vec cv_round(conv_vec a) {
    CV_EACH(rintf(a[i]));
}

/* 2^n for an integer n in [-126, 127]; for a NaN the result is arbitrary, and the other factor propagates the NaN */
static inline conv_vec cv_exp2i(conv_vec n) {
    CV_EACH(dvk_from_bits((uint32_t)((n[i] == n[i] ? (int32_t)n[i] : 0) + 127) << 23));
}

static inline conv_vec cv_div(conv_vec a, conv_vec b) {
    return a / b;
}

/* n elements from index k of an array of dtype t, zeros behind them */
static inline conv_vec cv_get(const void *p, dvk_dtype t, int64_t k, int64_t n) {
    CV_EACH(i < n ? dvk_load(p, t, k + i) : 0.0f);
}

static inline void cv_put(void *p, dvk_dtype t, int64_t k, int64_t n, conv_vec v) {
    for (int64_t i = 0; i < n; i++) {
        dvk_store(p, t, k + i, v[i]);
    }
}

static inline void cv_put2(void *p, dvk_dtype t, int64_t i, conv_vec v0, conv_vec v1) {
    cv_put(p, t, i, CONV_VW, v0);
    cv_put(p, t, i + CONV_VW, CONV_VW, v1);
}

#undef CV_EACH

#endif
