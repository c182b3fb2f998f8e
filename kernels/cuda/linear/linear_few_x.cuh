// linear_few_x.cuh - stages x of few rows in shared memory: copied, normalised, or quantised.
#pragma once

#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/linear/linear_few.h"
#include "kernels/cuda/linear/linear_layout.h"
#include "kernels/cuda/norm/rows.cuh"

// Number of threads of a block that stage x; an includer may define fewer than all.
#ifndef FEW_STAGING
#define FEW_STAGING blockDim.x
#endif

template <int KIND> constexpr __host__ __device__ int chunk_elements() {
    return KIND == LIN_F32 ? 4 : KIND <= LIN_BF16 ? 8 : KIND >= LIN_NIBBLES ? 32 : 16;
}

template <int KIND> constexpr __host__ __device__ bool is_float() {
    return KIND <= LIN_BF16;
}

// ---- copied ----

// Rows of 16-byte pieces, so that the lanes of a warp read contiguous memory. For f32 W: [chunk]. For 16-bit W: two
// planes, the first and the last four values of each chunk. For integers: the blocks unchanged.
template <int KIND> __device__ __forceinline__ int x_row(int phase) {
    return KIND == LIN_F32    ? phase
           : is_float<KIND>() ? 2 * phase
                              : phase * chunk_elements<KIND>() / LIN_BLOCK * (int)(sizeof(dvk_q8) / 16);
}

// Copies 16 bytes, or zeros, into shared memory; asynchronously if the device supports it.
__device__ __forceinline__ void bring(uint4 *to, const void *from, bool some) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(some ? 16 : 0)
                 : "memory");
#else
    *to = some ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
#endif
}

__device__ __forceinline__ void wait_until_brought() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// All other rows than aligned f32.
template <int KIND, int M>
__device__ __noinline__ void stage_any(const dvk_linear_few_params &p, uint4 *to, int first, int count) {
    constexpr int PER = 8 / chunk_elements<KIND>();
    const int units = (count + PER - 1) / PER; // of eight values
    const int row = x_row<KIND>(p.phase);
    for (int i = threadIdx.x; i < units * M; i += FEW_STAGING) {
        const int t = i / units;
        const int unit = i - t * units;
        const int at = first / PER * 8 + unit * 8;
        raw8 v = {};
        if (t < p.m && at < p.k) {
            v = converted(fetch<0>(p.x, t * p.x.sh + at, min(p.k - at, 8)), p.x.dtype, DVK_F32);
        }
        if (KIND != LIN_F32) {
            to[t * row + unit] = v.a;
            to[t * row + p.phase + unit] = v.b;
        } else {
            to[t * row + 2 * unit] = v.a;
            if (2 * unit + 1 < p.phase) {
                to[t * row + 2 * unit + 1] = v.b;
            }
        }
    }
}

template <int KIND, int M>
__device__ __forceinline__ void stage_float(const dvk_linear_few_params &p, uint4 *to, int first, int count) {
    if (p.x.dtype != DVK_F32 || !p.x.vector || p.k % 4 != 0) {
        stage_any<KIND, M>(p, to, first, count);
        return;
    }
    constexpr int PER = chunk_elements<KIND>() / 4;
    const int pieces = count * PER;
    const int row = x_row<KIND>(p.phase);
    const float *x = (const float *)p.x.data;
    for (int i = threadIdx.x; i < pieces * M; i += FEW_STAGING) {
        const int t = M > 1 ? i / pieces : 0;
        const int piece = i - t * pieces;
        const int at = first * chunk_elements<KIND>() + 4 * piece;
        const bool some = t < p.m && at < p.k;
        bring(to + t * row + (PER == 2 ? piece % 2 * p.phase + piece / 2 : piece), some ? x + t * p.x.sh + at : x,
              some);
    }
    wait_until_brought();
}

template <int KIND, int M>
__device__ __forceinline__ void stage_blocks(const dvk_linear_few_params &p, uint4 *to, int first, int count) {
    constexpr int PIECES = (int)(sizeof(dvk_q8) / 16);
    const int from = first * chunk_elements<KIND>() / LIN_BLOCK;
    const int used = (count * chunk_elements<KIND>() + LIN_BLOCK - 1) / LIN_BLOCK * PIECES;
    const int row = x_row<KIND>(p.phase);
    for (int i = threadIdx.x; i < used * M; i += FEW_STAGING) {
        const int t = M > 1 ? i / used : 0;
        const int piece = i - t * used;
        const dvk_q8 *x = (const dvk_q8 *)p.x.data + (t < p.m ? t : 0) * p.x.sh + from;
        bring(to + t * row + piece, (const uint4 *)x + piece, t < p.m);
    }
    wait_until_brought();
}

// ---- changed ----

// May run before the preceding launch has ended.
__device__ __forceinline__ void bring_norm(const dvk_linear_few_params &p, uint4 *to) {
    for (int i = threadIdx.x; p.norm != nullptr && i < p.k / 4; i += FEW_STAGING) {
        bring(to + i, p.norm + 4 * i, true);
    }
}

// Loads three rows at a time. One block stores the sum.
__device__ __forceinline__ float4 add_more(const dvk_linear_few_params &p, int at, float4 v) {
    constexpr int TOGETHER = 3;
    for (int first = 0; first < p.n_more; first += TOGETHER) {
        float4 row[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            row[i] = first + i < p.n_more ? *(const float4 *)(p.more + (int64_t)(first + i) * p.k + at)
                                          : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            v = make_float4(v.x + row[i].x, v.y + row[i].y, v.z + row[i].z, v.w + row[i].w);
        }
    }
    if (blockIdx.x == 0) {
        *(float4 *)(p.sum + at) = v;
    }
    return v;
}

// Four values of a token, with zeros behind its end. MORE: x is the sum of several rows.
template <bool MORE> __device__ __forceinline__ float4 fetch4(const dvk_linear_few_params &p, int token, int at) {
    const bool some = token < p.m && at < p.k;
    const float4 v =
        some ? *(const float4 *)((const float *)p.x.data + token * p.x.sh + at) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if constexpr (MORE) {
        return some ? add_more(p, at, v) : v;
    }
    return v;
}

// Multiplies by the norm's factors and adds the squares.
__device__ __forceinline__ void take4(const dvk_linear_few_params &p, const float4 *norm, int at, float4 &v,
                                      float &squares) {
    if (p.norm != nullptr && at < p.k) {
        const float4 w = norm[at / 4];
        squares = fmaf(v.x, v.x, fmaf(v.y, v.y, fmaf(v.z, v.z, fmaf(v.w, v.w, squares))));
        v = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
    }
}

// Rounds four values to bytes: adding 1.5 * 2^23 rounds, ties to even, and leaves the integer in the lowest bits.
__device__ __forceinline__ uint32_t whole4(const float4 &v, float inverse) {
    const float big = 12582912.0f;
    const uint32_t a = __float_as_uint(__fadd_rn(__fmul_rn(v.x, inverse), big));
    const uint32_t b = __float_as_uint(__fadd_rn(__fmul_rn(v.y, inverse), big));
    const uint32_t c = __float_as_uint(__fadd_rn(__fmul_rn(v.z, inverse), big));
    const uint32_t d = __float_as_uint(__fadd_rn(__fmul_rn(v.w, inverse), big));
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

__device__ __forceinline__ float largest4(const float4 &v) {
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// Each of four neighbouring threads has eight of a block's 32 values; the whole warp calls it.
__device__ __forceinline__ void keep_q8(dvk_q8 *block, const float4 &v, const float4 &w, bool some) {
    float top = fmaxf(largest4(v), largest4(w));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
    const uint2 bytes = make_uint2(whole4(v, inverse), whole4(w, inverse));
    int sum = __dp4a((int)bytes.x, 0x01010101, __dp4a((int)bytes.y, 0x01010101, 0));
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    const int other = __shfl_xor_sync(0xffffffffu, sum, 2);
    if (some) {
        const int part = threadIdx.x % 4;
        ((uint2 *)block->q)[part] = bytes;
        if (part == 0) {
            const float d = top / 127.0f;
            *(uint4 *)block = make_uint4(__float_as_uint(d), __float_as_uint(d * (float)(sum + other)), (uint32_t)sum,
                                         (uint32_t)other);
        }
    }
}

template <int KIND, int M, bool MORE>
__device__ __forceinline__ void stage_floats(const dvk_linear_few_params &p, uint4 *to, const float4 *norm, int first,
                                             int count, float (&squares)[M]) {
    constexpr int PER = chunk_elements<KIND>() / 4;
    const int from = first * chunk_elements<KIND>(), row = x_row<KIND>(p.phase), items = count * PER;
#pragma unroll
    for (int t = 0; t < M; t++) {
        for (int i = threadIdx.x; i < items; i += 2 * FEW_WARPS * 32) {
            float4 v[2]; // loads in flight together
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int at = i + j * FEW_WARPS * 32;
                v[j] = fetch4<MORE>(p, t, at < items ? from + 4 * at : p.k);
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int at = i + j * FEW_WARPS * 32;
                if (at < items) {
                    take4(p, norm, from + 4 * at, v[j], squares[t]);
                    *(float4 *)(to + t * row + (PER == 2 ? at % 2 * p.phase + at / 2 : at)) = v[j];
                }
            }
        }
    }
}

template <int KIND, int M, bool MORE>
__device__ __forceinline__ void stage_whole(const dvk_linear_few_params &p, uint4 *to, const float4 *norm, int first,
                                            int count, float (&squares)[M]) {
    constexpr int AHEAD = M == 1 && !MORE ? 2 : 1; // loads in flight together
    const int from = first * chunk_elements<KIND>(), row = x_row<KIND>(p.phase);
    const int items = (count * chunk_elements<KIND>() + LIN_BLOCK - 1) / LIN_BLOCK * 4; // of eight values
#pragma unroll
    for (int t = 0; t < M; t++) {
        for (int i = threadIdx.x; i < (items + 31) / 32 * 32; i += AHEAD * FEW_WARPS * 32) {
            float4 v[AHEAD][2];
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                const int at = i + j * FEW_WARPS * 32;
                v[j][0] = fetch4<MORE>(p, t, at < items ? from + 8 * at : p.k);
                v[j][1] = fetch4<MORE>(p, t, at < items ? from + 8 * at + 4 : p.k);
            }
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                const int at = i + j * FEW_WARPS * 32;
                if (at / 32 * 32 < items) { // uniform over the warp
                    take4(p, norm, from + 8 * at, v[j][0], squares[t]);
                    take4(p, norm, from + 8 * at + 4, v[j][1], squares[t]);
                    keep_q8((dvk_q8 *)(to + t * row) + at / 4, v[j][0], v[j][1], at < items);
                }
            }
        }
    }
}

template <int KIND, int M, bool MORE = false>
__device__ __forceinline__ void stage_changed(const dvk_linear_few_params &p, uint4 *to, const float4 *norm, int first,
                                              int count, float (&squares)[M]) {
    if constexpr (is_float<KIND>()) {
        stage_floats<KIND, M, MORE>(p, to, norm, first, count, squares);
    } else {
        stage_whole<KIND, M, MORE>(p, to, norm, first, count, squares);
    }
}

// Stores each warp's part of the sums of squares.
template <int M> __device__ __forceinline__ void keep_squares(float (&squares)[M], float *kept) {
#pragma unroll
    for (int t = 0; t < M; t++) {
#pragma unroll
        for (int i = 16; i > 0; i /= 2) {
            squares[t] += __shfl_xor_sync(0xffffffffu, squares[t], i);
        }
        if (threadIdx.x % 32 == 0) {
            kept[t * FEW_WARPS + threadIdx.x / 32] = squares[t];
        }
    }
}

// The norm's factor of a token, applied to its sums instead of its x.
__device__ __forceinline__ float scale_of(const dvk_linear_few_params &p, const float *kept, int token) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < FEW_WARPS; w++) {
        sum += kept[token * FEW_WARPS + w];
    }
    return rsqrtf(sum / (float)p.k + p.norm_eps);
}
