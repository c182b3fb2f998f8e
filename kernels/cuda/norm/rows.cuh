// rows.cuh - loads and stores four values of a row at a time, in any form; addresses of rows of a paged cache.
#pragma once

#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/norm/rows.h"

// For launches with work before their wait: lets the next launch start such work, too. All launches wait afterwards.
__device__ __forceinline__ void let_launch_behind_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Zeros past `count` values.
__device__ __forceinline__ void load4(const dvk_rows_view &x, int64_t at, int count, float (&v)[4]) {
    if (x.vector && count >= 4 && (at & 3) == 0) {
        if (x.form == DVK_ROWS_F32) {
            const float4 t = *(const float4 *)((const float *)x.data + at);
            v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
        } else {
            const uint2 t = *(const uint2 *)((const uint16_t *)x.data + at);
            v[0] = f32_of(t.x & 0xffffu, x.form), v[1] = f32_of(t.x >> 16, x.form);
            v[2] = f32_of(t.y & 0xffffu, x.form), v[3] = f32_of(t.y >> 16, x.form);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = i < count ? load1(x.data, x.form, at + i) : 0.0f;
    }
}

__device__ __forceinline__ void store4(const dvk_rows_view &y, int64_t at, int count, const float (&v)[4]) {
    if (y.vector && count >= 4 && (at & 3) == 0) {
        if (y.form == DVK_ROWS_F32) {
            *(float4 *)((float *)y.data + at) = make_float4(v[0], v[1], v[2], v[3]);
        } else {
            *(uint2 *)((uint16_t *)y.data + at) = make_uint2(bits_of(v[0], y.form) | bits_of(v[1], y.form) << 16,
                                                             bits_of(v[2], y.form) | bits_of(v[3], y.form) << 16);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (i < count) {
            store1(y.data, y.form, at + i, v[i]);
        }
    }
}

// The factors of a pair of a row
__device__ __forceinline__ void turn_of(const dvk_rope_table_args &p, int64_t item) {
    const int64_t i = item / p.pairs, j = item % p.pairs;
    const float angle = (float)p.pos[i * p.axes + (p.axis != nullptr ? p.axis[j] : 0)] * p.freq[j];
    float s, c;
    sincosf(angle, &s, &c);
    p.cs[2 * item] = c;
    p.cs[2 * item + 1] = s;
}

// Each of eight neighbouring threads has four of a block's 32 values; all of them call it.
__device__ __forceinline__ void store_q8(dvk_q8 *block, const float (&v)[4]) {
    const int lane = threadIdx.x & 31;
    const uint32_t eight = 0xffu << (lane & 24);
    float top = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
#pragma unroll
    for (int i = 1; i < 8; i *= 2) {
        top = fmaxf(top, __shfl_xor_sync(eight, top, i));
    }
    const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
    uint32_t bytes = 0;
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int q = __float2int_rn(__fmul_rn(v[i], inverse));
        sum += q;
        bytes |= (uint32_t)(q & 0xff) << (8 * i);
    }
    sum += __shfl_xor_sync(eight, sum, 1);
    sum += __shfl_xor_sync(eight, sum, 2);
    const int other = __shfl_xor_sync(eight, sum, 4);
    ((uint32_t *)block->q)[lane & 7] = bytes;
    if ((lane & 7) == 0) {
        block->d = top / 127.0f;
        block->s = block->d * (float)(sum + other);
        block->sum[0] = sum;
        block->sum[1] = other;
    }
}

__device__ __forceinline__ int64_t paged_row(const dvk_paging &at, int32_t sequence, int32_t position) {
    if (at.table == nullptr) {
        return position;
    }
    const int32_t page = (int32_t)at.page;
    return (int64_t)at.table[(int64_t)sequence * at.each + position / page] * page + position % page;
}

__device__ __forceinline__ int32_t sequence_of(const dvk_paging &at, int64_t i) {
    return at.sequence != nullptr ? at.sequence[i] : 0;
}
