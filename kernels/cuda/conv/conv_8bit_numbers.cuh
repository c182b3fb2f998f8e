/* conv_8bit_numbers.cuh - pairs of f16 and their conversion to 8 bits. Include it after conv_common.cuh or
 * conv_wgmma_numbers.cuh. */
#ifndef DVK_CUDA_CONV_8BIT_NUMBERS_CUH
#define DVK_CUDA_CONV_8BIT_NUMBERS_CUH

/* Converts four f16 to four E4M3, the first in the lowest byte; values above 448 become 448. */
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

#if __CUDA_ARCH__ >= 800
CONV_DEVICE uint32_t larger_f16(uint32_t a, uint32_t b) { /* NaN wins */
    uint32_t r;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
#endif

/* Maximum of non-negative numbers by their bits; NaN is the largest. */
CONV_DEVICE uint32_t larger_magnitude(uint32_t a, uint32_t b) {
#if __CUDA_ARCH__ >= 800
    return larger_f16(a, b);
#else
    return __vmaxu2(a, b);
#endif
}

CONV_DEVICE uint32_t relu_f16(uint32_t x) {
#if __CUDA_ARCH__ >= 800
    return larger_f16(x, 0);
#else
    uint32_t r; /* 1 if x >= 0 or NaN, otherwise 0 */
    asm("set.geu.f16x2.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(0));
    return x & (r >> 10 & 0x00010001u) * 0xffffu;
#endif
}

/* Converts four f16 to four 8-bit integers, the first in the lowest byte. `factor`, in both halves, brings them to at
 * most 127. The f16 numbers between 1024 and 2048 are the integers. */
CONV_DEVICE uint32_t pack_s8(uint32_t low, uint32_t high, uint32_t factor) {
    const uint32_t middle = 0x66006600u; /* 1536 */
    return __byte_perm(fma_f16(low, factor, middle), fma_f16(high, factor, middle), 0x6420);
}

/* SiLU of twice the argument. */
template <int ACT> CONV_DEVICE uint32_t act_f16(uint32_t x) {
    if (ACT == CONV_SILU) {
        uint32_t t;
        asm("tanh.approx.f16x2 %0, %1;" : "=r"(t) : "r"(x));
        return fma_f16(x, t, x);
    }
    return ACT == CONV_RELU ? relu_f16(x) : x;
}

CONV_DEVICE float power_of_two(int e) {
    return __int_as_float((e + 127) << 23);
}

/* The power of two for a division that brings the maximum, bits of f16, to between 2^room and twice that. */
CONV_DEVICE int power_for(uint32_t most, int room) {
    const uint32_t bits = __float_as_uint(__half2float(__ushort_as_half((uint16_t)most)));
    return max((int)(bits >> 23) - 127 - room, -15); /* its inverse must be an f16, up to 2^15 */
}

#endif
