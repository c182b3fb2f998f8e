/* conv_8bit_host.h - support tests of the kernels with 8-bit products, and the scales of their weights. */
#ifndef DVK_CUDA_CONV_8BIT_HOST_H
#define DVK_CUDA_CONV_8BIT_HOST_H

#include "kernels/cuda/conv/conv_host.h"

static inline double conv_most_of(double a, double b) {
    return a > b ? a : b;
}

/* Supports convolutions between layers, of f16. First and last ones have few channels, or other value ranges. The
 * result of a norm is bounded and E4M3 takes it without a scale. Other inputs are scaled, which needs an activation
 * that commutes with the scale. */
static inline int conv_8bit_serves(const dvk_conv2d_args *a, dvk_dtype compute, int32_t channels) {
    const dvk_prologue *pro = &a->pro;
    return a->compute == compute && a->x.dtype == DVK_F16 && a->y.dtype == DVK_F16 && a->x.c % channels == 0 &&
           a->y.c % channels == 0 && a->x.c >= 32 && a->y.c >= 32 && a->epi.shuffle <= 1 && a->kh == a->kw &&
           (a->kh == 1 || a->kh == 3) && a->epi.gate <= 1 &&
           (pro->act == DVK_ACT_NONE || pro->act == DVK_ACT_RELU || (pro->act == DVK_ACT_SILU && pro->scale != NULL));
}

/* The largest |weight| of an output channel; NaN if one is NaN. */
static inline float conv_8bit_largest(const dvk_conv2d_args *a, const conv_shape *s, const float *w, int64_t o,
                                      int32_t phase) {
    float most = 0.0f;
    for (int64_t i = 0; i < s->c_in; i++) {
        for (int32_t tap = 0; tap < s->kh * s->kw; tap++) {
            const float v = conv_weight(a, s, w, o, i, phase, tap);
            most = v > most ? v : -v > most ? -v : v != v ? v : most;
        }
    }
    return most;
}

/* The power of two by which an output channel's weights are divided, so that the largest is between 128 and 256. */
static inline float conv_fp8_unit(float most) {
    const uint32_t exponent = dvk_bits(most) >> 23;
    return exponent > 7 && exponent < 255 ? dvk_from_bits((exponent - 7) << 23) : 1.0f;
}

#endif
