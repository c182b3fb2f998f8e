// linear_scales.cuh - decodes heads of blocks (quant_numbers.h) on a device.
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/linear/linear_layout.h"

static __device__ __forceinline__ float head_half(uint32_t bits) {
    return __half2float(__ushort_as_half((unsigned short)bits));
}

// Converts byte `i` of `bits` to float: inserts it into the lowest bits of 2^23 and subtracts that. A conversion
// instruction would take four times as long.
template <int I> static __device__ __forceinline__ float head_byte(uint32_t bits, float off = 8388608.0f) {
    return __uint_as_float(__byte_perm(bits, 0x4b000000u, 0x7540 | I)) - off;
}

template <int I> static __device__ __forceinline__ float head_signed_byte(uint32_t bits) {
    return head_byte<I>(bits ^ 0x80800000u, 8388608.0f + 128.0f);
}

template <int KIND> constexpr __device__ bool in_pairs() {
    return KIND == LIN_BYTES_K || KIND == LIN_NIBBLES_K;
}

// Heads of a pair of blocks, the even block's in x; otherwise x is the block's head. upper: k 16 to 31.
template <int KIND> static __device__ __forceinline__ float head_scale(uint2 head, bool odd, bool upper) {
    if constexpr (in_pairs<KIND>()) {
        return head_half(head.x) * head_byte<2>(odd ? head.y : head.x);
    } else if constexpr (KIND == LIN_HALVES) {
        return head_half(head.x) * (upper ? head_signed_byte<3>(head.x) : head_signed_byte<2>(head.x));
    } else {
        return head_half(head.x);
    }
}

template <int KIND> static __device__ __forceinline__ float head_least(uint2 head, bool odd) {
    if constexpr (in_pairs<KIND>()) {
        return head_half(head.y) * head_byte<3>(odd ? head.y : head.x);
    } else if constexpr (KIND == LIN_BYTES_MIN || KIND == LIN_NIBBLES_MIN) {
        return head_half(head.x >> 16);
    } else {
        return 0.0f;
    }
}

// Scale and minimum of 16 k of any kind; heads: those of the row, half: the index of the 16 k.
static __device__ __forceinline__ float2 scales_of(int kind, const unsigned char *heads, int half) {
    const int block = half / 2;
    const bool odd = block % 2 != 0, upper = half % 2 != 0;
    if (dvk_lin_halves((lin_kind)kind) == 1) {
        return make_float2(head_half(((const uint16_t *)heads)[block]), 0.0f);
    }
    if (kind == LIN_BYTES_K || kind == LIN_NIBBLES_K) {
        const uint2 pair = ((const uint2 *)heads)[block / 2];
        return make_float2(head_scale<LIN_BYTES_K>(pair, odd, upper), head_least<LIN_BYTES_K>(pair, odd));
    }
    const uint2 own = make_uint2(((const uint32_t *)heads)[block], 0);
    return kind == LIN_HALVES ? make_float2(head_scale<LIN_HALVES>(own, odd, upper), 0.0f)
                              : make_float2(head_half(own.x), head_least<LIN_BYTES_MIN>(own, odd));
}
