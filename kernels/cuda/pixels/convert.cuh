// convert.cuh - elements of a caller's picture: conversion of values to and from bits, and stores. For convert.cu and
// for the convolutions that store into the caller's picture.
#pragma once

#include "kernels/cuda/pixels/convert.h"
#include "kernels/cuda/common/elem.cuh"

namespace {

__host__ __device__ constexpr int size_of(int type) {
    return type == DVK_F32 ? 4 : type == DVK_U8 ? 1 : 2;
}

template <int T> __device__ __forceinline__ float value_of(uint32_t bits) {
    return T == DVK_U8 || T == DVK_U16 ? (float)bits : T == DVK_F32 ? __uint_as_float(bits) : f32_of(bits, T);
}

template <int T> __device__ __forceinline__ uint32_t stored(const dvk_convert_params &p, float v) {
    v = __fadd_rn(__fmul_rn(v, p.mul), p.add);
    if (T == DVK_U8 || T == DVK_U16) { // NaN becomes lo
        return __float2uint_rn(v > p.lo ? (v < p.hi ? v : p.hi) : p.lo);
    }
    if (p.clamp) {
        v = v < p.lo ? p.lo : v > p.hi ? p.hi : v;
    }
    return T == DVK_F32 ? __float_as_uint(v) : bits_of(v, T);
}

template <int T> __device__ __forceinline__ void write1(unsigned char *at, uint32_t bits, bool aligned) {
    if (T == DVK_U8) {
        *at = (unsigned char)bits;
    } else if (!aligned) {
        for (int i = 0; i < size_of(T); i++) {
            at[i] = (unsigned char)(bits >> 8 * i);
        }
    } else if (T == DVK_F32) {
        *(uint32_t *)at = bits;
    } else {
        *(uint16_t *)at = (uint16_t)bits;
    }
}

// Writes four contiguous elements.
template <int T> __device__ __forceinline__ void write4(unsigned char *at, const uint32_t *e) {
    if (T == DVK_F32) {
        *(uint4 *)at = make_uint4(e[0], e[1], e[2], e[3]);
    } else if (T == DVK_U8) {
        *(uint32_t *)at = e[0] | e[1] << 8 | e[2] << 16 | e[3] << 24;
    } else {
        *(uint2 *)at = make_uint2(e[0] | e[1] << 16, e[2] | e[3] << 16);
    }
}

__device__ __forceinline__ int channel_of(const dvk_convert_params &p, int c) {
    return p.identity ? c : c == 0 ? p.map[0] : c == 1 ? p.map[1] : c == 2 ? p.map[2] : p.map[3];
}

// Writes COUNT contiguous elements; the first is aligned to their total size.
template <int T, int COUNT> __device__ __forceinline__ void write_piece(unsigned char *at, const uint32_t *e) {
    if (COUNT == 4) {
        write4<T>(at, e);
    } else if (COUNT == 2 && T == DVK_F32) {
        *(uint2 *)at = make_uint2(e[0], e[1]);
    } else if (COUNT == 2 && T == DVK_U8) {
        *(uint16_t *)at = (uint16_t)(e[0] | e[1] << 8);
    } else if (COUNT == 2) {
        *(uint32_t *)at = e[0] | e[1] << 16;
    } else {
        write1<T>(at, e[0], true);
    }
}

template <int T> __device__ __forceinline__ void store_one(const dvk_convert_params &p, int64_t at, float v) {
    write1<T>(p.image + at, stored<T>(p, v), p.aligned);
}

// Selects by the type of the image, which is uniform over all threads.
#define BY_IMAGE_TYPE(p, what)                                                                                         \
    switch ((p).dtype) {                                                                                               \
    case DVK_U8:                                                                                                       \
        what(DVK_U8);                                                                                                  \
        break;                                                                                                         \
    case DVK_U16:                                                                                                      \
        what(DVK_U16);                                                                                                 \
        break;                                                                                                         \
    case DVK_F16:                                                                                                      \
        what(DVK_F16);                                                                                                 \
        break;                                                                                                         \
    case DVK_BF16:                                                                                                     \
        what(DVK_BF16);                                                                                                \
        break;                                                                                                         \
    default:                                                                                                           \
        what(DVK_F32);                                                                                                 \
    }

} // namespace
