/* dtype.h - scalar conversions between the storage types. Round to nearest even; NaN stays NaN. */
#ifndef DVK_DTYPE_H
#define DVK_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/op.h"

static inline size_t dvk_dtype_size(dvk_dtype t) {
    return t == DVK_F32 ? 4 : t == DVK_U8 ? 1 : t == DVK_NONE ? 0 : 2;
}

static inline uint32_t dvk_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float dvk_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float dvk_bf16_to_f32(uint16_t h) {
    return dvk_from_bits((uint32_t)h << 16);
}

static inline uint16_t dvk_f32_to_bf16(float f) {
    const uint32_t u = dvk_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float dvk_f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    const uint32_t exponent = rest & 0x0f800000u;
    if (exponent == 0x0f800000u) { /* inf, NaN */
        return dvk_from_bits(sign | rest | 0x70000000u);
    }
    if (exponent == 0) { /* zero, denormal: let the FPU normalise */
        return dvk_from_bits(sign | dvk_bits(dvk_from_bits(rest + 0x38800000u) - dvk_from_bits(0x38800000u)));
    }
    return dvk_from_bits(sign | (rest + 0x38000000u));
}

static inline uint16_t dvk_f32_to_f16(float f) {
    const uint32_t u = dvk_bits(f);
    const uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    const uint32_t a = u & 0x7fffffffu;
    if (a >= 0x7f800000u) {
        return (uint16_t)(sign | (a > 0x7f800000u ? 0x7e00u : 0x7c00u));
    }
    if (a >= 0x477ff000u) { /* rounds to 65536 or above */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (a < 0x38800000u) { /* denormal result: add the FPU's own rounding constant */
        return (uint16_t)(sign | (dvk_bits(dvk_from_bits(a) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}

/* E4M3: sign, four bits of exponent, three of mantissa; no infinity, 0x7f is NaN, the largest number 448. */
static inline float dvk_e4m3_to_f32(uint8_t h) {
    const uint32_t sign = (uint32_t)(h & 0x80u) << 24, rest = h & 0x7fu;
    if (rest == 0x7fu) {
        return dvk_from_bits(sign | 0x7fc00000u);
    }
    if (rest < 8u) { /* zero, denormal: units of 2^-9 */
        return dvk_from_bits(sign | dvk_bits((float)rest * 0.001953125f));
    }
    return dvk_from_bits(sign | ((rest << 20) + 0x3c000000u));
}

/* Saturates: values above 448 and infinity become 448. */
static inline uint8_t dvk_f32_to_e4m3(float f) {
    const uint32_t u = dvk_bits(f);
    const uint8_t sign = (uint8_t)((u >> 24) & 0x80u);
    const uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u) {
        return (uint8_t)(sign | 0x7fu);
    }
    if (a >= 0x43e00000u) { /* 448 */
        return (uint8_t)(sign | 0x7eu);
    }
    if (a < 0x3c800000u) { /* denormal result: 2^-9 is the last bit of 2^14 */
        return (uint8_t)(sign | (dvk_bits(dvk_from_bits(a) + 16384.0f) - 0x46800000u));
    }
    return (uint8_t)(sign | ((a - 0x3c000000u + 0x7ffffu + ((a >> 20) & 1u)) >> 20));
}

/* Element i of an array of f32, bf16 or f16. */
static inline float dvk_load(const void *p, dvk_dtype t, int64_t i) {
    return t == DVK_F32    ? ((const float *)p)[i]
           : t == DVK_BF16 ? dvk_bf16_to_f32(((const uint16_t *)p)[i])
                           : dvk_f16_to_f32(((const uint16_t *)p)[i]);
}

static inline void dvk_store(void *p, dvk_dtype t, int64_t i, float v) {
    if (t == DVK_F32) {
        ((float *)p)[i] = v;
    } else {
        ((uint16_t *)p)[i] = t == DVK_BF16 ? dvk_f32_to_bf16(v) : dvk_f32_to_f16(v);
    }
}

#endif
