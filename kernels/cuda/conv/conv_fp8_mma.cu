/* conv_fp8_mma.cu - "cuda/fp8/mma": convolutions of f16 with products of E4M3 on mma.sync, for compute capability 8.9
 * and later. */
#include "kernels/cuda/conv/conv_8bit_mma.cuh"

#if __CUDA_ARCH__ >= 890

struct conv_e4m3 : conv_8bit_of_f16 {
    enum { ROOM = 7 }; /* the maximum becomes 2^7 up to 2^8; the maximum of E4M3 is 448 */

    static __device__ __forceinline__ uint32_t factor(uint32_t most, float &unit) {
        const int power = power_for(most, ROOM);
        unit = power_of_two(power);
        return conv_pack_f16(power_of_two(-power), power_of_two(-power));
    }
    static __device__ __forceinline__ uint32_t plain() { /* the result of a norm is bounded */
        return 0x3c003c00u;
    }
    static __device__ __forceinline__ uint32_t pack(uint32_t low, uint32_t high, uint32_t factor) {
        return pack_e4m3(product_f16(low, factor), product_f16(high, factor));
    }
    static __device__ __forceinline__ float value(float sum) {
        return sum;
    }
};

template <> struct conv_mma<conv_8bit<conv_e4m3>> {
    static __device__ __forceinline__ void go(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

#define CONV_FP8_KERNEL(M, N, ...) CONV_8BIT_KERNEL(conv_fp8_mma_##M##x##N, conv_e4m3, __VA_ARGS__)

CONV_8BIT_BLOCKS(CONV_FP8_KERNEL)
CONV_8BIT_CELLS(conv_fp8_mma_cells, conv_e4m3)

#endif
