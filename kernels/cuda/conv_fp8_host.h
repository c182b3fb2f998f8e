/* conv_fp8_host.h - what the two kernels with products of E4M3 take, and how their weights are scaled. */
#ifndef DVK_CUDA_CONV_FP8_HOST_H
#define DVK_CUDA_CONV_FP8_HOST_H

#include "kernels/cuda/conv_host.h"

static inline double conv_most_of(double a, double b) {
    return a > b ? a : b;
}

/* A norm's result is bounded and needs no scale; anything else is scaled by a power of two before an act that keeps it. */
static inline int conv_fp8_converts(const dvk_prologue *pro) {
    return pro->act == DVK_ACT_NONE || pro->act == DVK_ACT_RELU || (pro->act == DVK_ACT_SILU && pro->scale != NULL);
}

/* Convolutions between layers, of f16: first and last ones have few channels, or other values. */
static inline int conv_fp8_serves(const dvk_conv2d_args *a) {
    return a->compute == DVK_FP8 && a->x.dtype == DVK_F16 && a->y.dtype == DVK_F16 && a->x.c % 32 == 0 &&
           a->y.c % 32 == 0 && a->x.c >= 32 && a->y.c >= 32 && a->epi.shuffle <= 1 && a->kh == a->kw &&
           (a->kh == 1 || a->kh == 3) && a->epi.gate <= 1 && conv_fp8_converts(&a->pro);
}

/* The power of two that an output channel's weights are divided by: the largest comes to between 128 and 256. */
static inline float conv_fp8_unit(const dvk_conv2d_args *a, const conv_shape *s, const float *w, int64_t o,
                                  int32_t phase) {
    float most = 0.0f;
    for (int64_t i = 0; i < s->c_in; i++) {
        for (int32_t tap = 0; tap < s->kh * s->kw; tap++) {
            const float v = conv_weight(a, s, w, o, i, phase, tap);
            most = v > most ? v : -v > most ? -v : most;
        }
    }
    const uint32_t exponent = dvk_bits(most) >> 23;
    return exponent > 7 && exponent < 255 ? dvk_from_bits((exponent - 7) << 23) : 1.0f;
}

#endif
