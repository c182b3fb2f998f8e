// linear_widen.cu - converts integer W (linear_layout.h) to rows of f16 or bf16: a quarter of a block per thread.
#include "kernels/cuda/linear/linear_widen.h"

#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/linear/linear_scales.cuh"

static __device__ __forceinline__ uint4 widened(const dvk_linear_widen &p, int64_t row, int piece) {
    const int block = piece >> 2, quarter = piece & 3;
    const bool nibbles = dvk_lin_nibbles((lin_kind)p.kind);
    const unsigned char *numbers = p.w + row * p.row + block * (nibbles ? 16 : 32) + quarter % (nibbles ? 2 : 4) * 8;
    const uint2 raw = *(const uint2 *)numbers;
    const float2 scale = scales_of(p.kind, p.w + p.scales + row * p.scale_row, piece >> 1);
    const int shift = nibbles ? quarter / 2 * 4 : 0, mask = nibbles ? 15 : 255;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int number = (int)((i < 4 ? raw.x : raw.y) >> (i % 4 * 8 + shift)) & mask;
        v[i] = piece * 8 + i < p.k ? fmaf(scale.x, (float)(number - p.zero), scale.y) : 0.0f;
    }
    return p.form == DVK_BF16 ? pack<DVK_BF16>(v, DVK_BF16).a : pack<DVK_F16>(v, DVK_F16).a;
}

extern "C" __global__ void __launch_bounds__(256) linear_widen(const dvk_linear_widen p) {
    wait_for_launch_ahead();
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < p.total; i += (int64_t)gridDim.x * 256) {
        const int64_t row = p.total < 1ll << 32 ? (uint32_t)i / (uint32_t)p.pieces : i / p.pieces;
        ((uint4 *)p.to)[i] = widened(p, row, (int)(i - row * p.pieces));
    }
}
