/* conv_int8_mma.cu - "cuda/int8/mma": convolutions of f16 or bf16 with products of 8-bit integers on mma.sync. Sums are
 * exact integers, in the registers of the float sums of other formats. */
#include "kernels/cuda/conv/conv_8bit_mma.cuh"

struct conv_s8 : conv_8bit_of_f16 {
    static __device__ __forceinline__ uint32_t factor(uint32_t most, float &unit) {
        const float largest = __half2float(__ushort_as_half((uint16_t)most));
        const uint32_t f = conv_pack_f16(fminf(127.0f / largest, 32768.0f), 0); /* exactly representable in f16 */
        unit = 1.0f / conv_unpack_f16(f).x;
        return f | f << 16;
    }
    static __device__ __forceinline__ uint32_t plain() {
        return 0x3c003c00u;
    }
    static __device__ __forceinline__ uint32_t pack(uint32_t low, uint32_t high, uint32_t factor) {
        return pack_s8(low, high, factor);
    }
    static __device__ __forceinline__ float value(float sum) {
        return (float)__float_as_int(sum);
    }
};

struct conv_s8_of_bf16 : conv_8bit_of_bf16 {
    static __device__ __forceinline__ uint32_t factor(uint32_t most, float &unit) { /* dvk_int8_factor */
        const float largest = __uint_as_float(most << 16);
        const uint32_t f = __float_as_uint(largest > 127.0f / 32768.0f ? 127.0f / largest : 32768.0f);
        const uint32_t short_f = (f + 0xfffu + (f >> 13 & 1)) & ~0x1fffu;
        unit = 1.0f / __uint_as_float(short_f);
        return short_f;
    }
    static __device__ __forceinline__ uint32_t plain() {
        return 0x3f800000u;
    }
    /* Two integers, in the lowest bytes of the halves: the products are exact, and f32 numbers from 2^23 on are
     * integers. */
    static __device__ __forceinline__ uint32_t two(uint32_t pair, float factor) {
        const float middle = 12582912.0f;
        const float low = fmaf(__uint_as_float(pair << 16), factor, middle);
        const float high = fmaf(__uint_as_float(pair & 0xffff0000u), factor, middle);
        return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x5410);
    }
    static __device__ __forceinline__ uint32_t pack(uint32_t low, uint32_t high, uint32_t factor) {
        return __byte_perm(two(low, __uint_as_float(factor)), two(high, __uint_as_float(factor)), 0x6420);
    }
    static __device__ __forceinline__ float value(float sum) {
        return (float)__float_as_int(sum);
    }
};

template <> struct conv_mma<conv_8bit<conv_s8>> {
    static __device__ __forceinline__ void go(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        int s[4] = {__float_as_int(d[0]), __float_as_int(d[1]), __float_as_int(d[2]), __float_as_int(d[3])};
#if __CUDA_ARCH__ >= 800
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
#pragma unroll
        for (int i = 0; i < 4; i++) { /* eight rows, then the other eight; both halves of the channels */
            asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+r"(s[i % 2 * 2]), "+r"(s[i % 2 * 2 + 1])
                : "r"(a[i]), "r"(i < 2 ? b0 : b1));
        }
#endif
#pragma unroll
        for (int i = 0; i < 4; i++) {
            d[i] = __int_as_float(s[i]);
        }
    }
};

template <> struct conv_mma<conv_8bit<conv_s8_of_bf16>> : conv_mma<conv_8bit<conv_s8>> {};

#define CONV_INT8_KERNEL(M, N, ...) CONV_8BIT_KERNEL(conv_int8_mma_##M##x##N, conv_s8, __VA_ARGS__)
#define CONV_INT8_BF16(M, N, ...)   CONV_8BIT_KERNEL(conv_int8_mma_bf16_##M##x##N, conv_s8_of_bf16, __VA_ARGS__)

CONV_8BIT_BLOCKS(CONV_INT8_KERNEL)
CONV_8BIT_CELLS(conv_int8_mma_cells, conv_s8)

#if __CUDA_ARCH__ >= 800
CONV_8BIT_BLOCKS(CONV_INT8_BF16)
CONV_8BIT_CELLS(conv_int8_mma_bf16_cells, conv_s8_of_bf16)
#endif
