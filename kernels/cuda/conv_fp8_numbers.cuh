/* conv_fp8_numbers.cuh - pairs of f16 and what becomes of them on the way to E4M3. To be included behind the numbers of
 * either kind of convolution. */
#ifndef DVK_CUDA_CONV_FP8_NUMBERS_CUH
#define DVK_CUDA_CONV_FP8_NUMBERS_CUH

/* Four of f16 to four of E4M3, the first in the lowest byte; what is too large becomes 448. */
CONV_DEVICE uint32_t pack_e4m3(uint32_t low, uint32_t high) {
    uint32_t r;
    asm("{\n.reg .b16 a, b;\ncvt.rn.satfinite.e4m3x2.f16x2 a, %1;\ncvt.rn.satfinite.e4m3x2.f16x2 b, %2;\n"
        "mov.b32 %0, {a, b};\n}"
        : "=r"(r)
        : "r"(low), "r"(high));
    return r;
}

CONV_DEVICE uint32_t fma_f16(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

CONV_DEVICE uint32_t product_f16(uint32_t a, uint32_t b) {
    uint32_t r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

CONV_DEVICE uint32_t larger_f16(uint32_t a, uint32_t b) { /* NaN wins */
    uint32_t r;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* Of SiLU: half of the argument comes in. */
template <int ACT> CONV_DEVICE uint32_t act_f16(uint32_t x) {
    if (ACT == CONV_SILU) {
        uint32_t t;
        asm("tanh.approx.f16x2 %0, %1;" : "=r"(t) : "r"(x));
        return fma_f16(x, t, x);
    }
    return ACT == CONV_RELU ? larger_f16(x, 0) : x;
}

CONV_DEVICE float power_of_two(int e) {
    return __int_as_float((e + 127) << 23);
}

/* The power of two to divide by, so that the largest value, bits of f16, comes to between 2^room and twice that. */
CONV_DEVICE int power_for(uint32_t most, int room) {
    const uint32_t bits = __float_as_uint(__half2float(__ushort_as_half((uint16_t)most)));
    return max((int)(bits >> 23) - 127 - room, -15); /* its inverse is a number of f16, up to 2^15 */
}

#endif
