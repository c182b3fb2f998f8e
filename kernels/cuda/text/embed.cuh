// embed.cuh - reads eight values of a row of W in the layout of "linear".
#pragma once

#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/text/embed.h"
#include "kernels/cuda/linear/linear_scales.cuh"

namespace {

// Values 8 * item to 8 * item + 7 of integer weights.
__device__ __forceinline__ void integers(const dvk_embed_params &p, int64_t row, int item, float (&v)[8]) {
    const lin_kind kind = (lin_kind)p.kind;
    const int block = item / 4;
    const int quarter = item % 4;
    const float2 scale = scales_of(p.kind, p.scales + row * p.scale_row, item / 2);
    const unsigned char *w = p.w + row * p.w_row;
    const uint2 u = *(const uint2 *)(dvk_lin_nibbles(kind) ? w + (int64_t)block * 16 + quarter % 2 * 8
                                                           : w + (int64_t)block * 32 + quarter * 8);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t byte = (i < 4 ? u.x : u.y) >> (8 * (i % 4)) & 0xffu;
        const int number = (int)(!dvk_lin_nibbles(kind) ? byte : quarter < 2 ? byte & 15u : byte >> 4) - p.zero;
        v[i] = fmaf(scale.x, (float)number, scale.y);
    }
}

// Writes values from 8 * item on of row `row` to row i of y.
__device__ __forceinline__ void embed_item(const dvk_embed_params &p, int64_t row, int64_t i, int item) {
    float v[8] = {};
    const int left = p.k - 8 * item < 8 ? p.k - 8 * item : 8;
    if (p.kind <= LIN_BF16) {
        const int type = p.kind == LIN_F32 ? DVK_F32 : p.kind == LIN_F16 ? DVK_F16 : DVK_BF16;
        dvk_elem_view w = {};
        w.data = (void *)(p.w + row * p.w_row);
        w.dtype = type;
        w.vector = 1;
        unpack<0>(fetch<0>(w, 8 * (int64_t)item, left), type, v);
    } else {
        integers(p, row, item, v);
    }
    put<0>(p.y, i * p.y.sh + 8 * (int64_t)item, left, pack<0>(v, p.y.dtype));
}

} // namespace
