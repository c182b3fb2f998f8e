// pixel_mma.cuh - products on mma.sync whose rows are pixels of 64 channels, for kernels with independent warps. The
// sums of one product are the operands of the next, in registers. Of each 32 channels of a row, thread q of four has
// eight adjacent ones. Its operands are 16 bytes, and it reads matrices in shared memory likewise.
#pragma once

#include "kernels/cuda/common/elem_epilogue.cuh"

namespace pixel {

enum {
    C = 64,
    TILES = C / 8, // of eight columns
    LINE = C * 2   // bytes of a pixel, or of a matrix's row, in shared memory
};

// d = a * b + c
template <int TYPE>
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                         const float (&c)[4]) {
    if (TYPE == DVK_BF16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
    }
}

template <int TYPE>
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const float c[4] = {d[0], d[1], d[2], d[3]};
    multiply<TYPE>(d, a, b0, b1, c);
}

template <int TYPE> __device__ __forceinline__ uint32_t pack2(float lo, float hi) {
    if (TYPE == DVK_BF16) {
        const __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
        return *(const uint32_t *)&v;
    }
    const __half2 v = __floats2half2_rn(lo, hi);
    return *(const uint32_t *)&v;
}

template <int TYPE> __device__ __forceinline__ float2 unpack2(uint32_t v) {
    return make_float2(f32_of(v, TYPE), TYPE == DVK_BF16 ? __uint_as_float(v & 0xffff0000u) : f32_of(v >> 16, TYPE));
}

template <int TYPE> __device__ __forceinline__ uint32_t minus(uint32_t a, uint32_t b) {
    if (TYPE == DVK_BF16) {
        const __nv_bfloat162 v = __hsub2(*(const __nv_bfloat162 *)&a, *(const __nv_bfloat162 *)&b);
        return *(const uint32_t *)&v;
    }
    const __half2 v = __hsub2(*(const __half2 *)&a, *(const __half2 *)&b);
    return *(const uint32_t *)&v;
}

// Position of 16 bytes of a line, without bank conflicts when eight threads read half of two lines; odd: the second of
// such two lines.
__device__ __forceinline__ int place(int line, int odd, int piece) {
    return line * LINE + (piece ^ odd * 4) * 16;
}

// The channel of column i of a product, chosen so that a thread's columns of four tiles are eight adjacent channels.
__device__ __forceinline__ int channel_of(int i) {
    const int tile = i / 8, r = i % 8;
    return tile / 4 * 32 + r / 2 * 8 + tile % 4 * 2 + r % 2;
}

// Writes 16 bytes of row j of two to the left operand: u of 32 channels.
__device__ __forceinline__ void set_row(uint32_t (&a)[4][4], int j, int u, const uint4 &v) {
    a[2 * u][j] = v.x, a[2 * u][2 + j] = v.y;
    a[2 * u + 1][j] = v.z, a[2 * u + 1][2 + j] = v.w;
}

// Subtracts the means of sixteen pixels, as rounded to the type. For the thread's two pixels it returns one over the
// standard deviation, and the remainder of the mean. Both sums are also products: with ones, and of the rows with
// themselves (the diagonal).
template <int TYPE>
__device__ __forceinline__ void deviations(uint32_t (&a)[4][4], float eps, float (&scale)[2], float (&left)[2]) {
    const int lane = threadIdx.x % 32, r = lane / 4;
    const uint32_t ones = pack2<TYPE>(1.0f, 1.0f);
    float sum[4] = {}, low[4] = {}, high[4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        multiply<TYPE>(sum, a[k], ones, ones);
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const float mean = sum[2 * j] * (1.0f / C);
        const uint32_t about = pack2<TYPE>(mean, mean);
        left[j] = mean - f32_of(about, TYPE);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            a[k][j] = minus<TYPE>(a[k][j], about);
            a[k][2 + j] = minus<TYPE>(a[k][2 + j], about);
        }
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        multiply<TYPE>(low, a[k], a[k][0], a[k][2]);
        multiply<TYPE>(high, a[k], a[k][1], a[k][3]);
    }
    const int from = (lane & ~3) | r / 2;
    const float squares[2] = {__shfl_sync(0xffffffffu, r & 1 ? low[1] : low[0], from),
                              __shfl_sync(0xffffffffu, r & 1 ? high[3] : high[2], from)};
#pragma unroll
    for (int j = 0; j < 2; j++) {
        scale[j] = rsqrtf(fmaxf(fmaf(-left[j], left[j], squares[j] * (1.0f / C)), 0.0f) + eps);
    }
}

} // namespace pixel
