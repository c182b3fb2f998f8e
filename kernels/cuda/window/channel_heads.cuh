// channel_heads.cuh - attention between the channels of heads of 16 on mma.sync. Shared memory has all heads of a
// pixel; a warp processes one head. Of the products of two channels, a thread has those of d and d + 8 of q, with d =
// lane / 4. For k it has e, e + 1, e + 8 and e + 9, with e = lane % 4 * 2.
#pragma once

#include "kernels/cuda/attention/attention_mma.cuh"

namespace {

enum { HEAD_DIM = 16, HEAD_TOKENS = 64 };

template <typename T> struct channel_heads {
    const int pitch, lane = threadIdx.x % 32, head = threadIdx.x / 32; // pitch: of a pixel in shared memory

    __device__ __forceinline__ channel_heads(int heads) : pitch(heads * HEAD_DIM + 8) {
    }

    // The head's channels of sixteen pixels as rows of the left operand, and as columns of the right operand
    __device__ __forceinline__ void left(uint32_t (&a)[4], const T *of, int first) const {
        const int row = first + (lane & 7) + (lane >> 4) * 8;
        attention::ldmatrix4_trans(a,
                                   attention::shared_address(of + row * pitch + head * HEAD_DIM + (lane >> 3 & 1) * 8));
    }
    __device__ __forceinline__ void right(uint32_t (&b)[4], const T *of, int first) const {
        attention::ldmatrix4_trans(
            b, attention::shared_address(of + (first + (lane & 15)) * pitch + head * HEAD_DIM + (lane >> 4) * 8));
    }

    static __device__ __forceinline__ void add(float (&d)[2][4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
        attention::mma<true>(T(), d[0], a, b[0], b[1]);
        attention::mma<true>(T(), d[1], a, b[2], b[3]);
    }

    // Products over a tile's pixels; if d and e are equal, `qq` and `kk` hold squares.
    __device__ __forceinline__ void add_products(const T *q, const T *k, float (&qk)[2][4], float (&qq)[2][4],
                                                 float (&kk)[2][4]) const {
#pragma unroll
        for (int t = 0; t < HEAD_TOKENS; t += 16) {
            uint32_t q_left[4], k_left[4], q_right[4], k_right[4];
            left(q_left, q, t);
            right(q_right, q, t);
            left(k_left, k, t);
            right(k_right, k, t);
            add(qk, q_left, k_right);
            add(qq, q_left, q_right);
            add(kk, k_left, k_right);
        }
    }

    // Multiplies a tile's values with the weights [d][e] and writes the head's channels of `to`
    __device__ __forceinline__ void apply(const T *v, const uint32_t (&w)[2][2], T *to) const {
#pragma unroll
        for (int t = 0; t < HEAD_TOKENS; t += 16) {
            uint32_t a[4];
            attention::ldmatrix4(
                a, attention::shared_address(v + (t + (lane & 15)) * pitch + head * HEAD_DIM + (lane >> 4) * 8));
            __syncwarp();
            T *row = to + (t + lane / 4) * pitch + head * HEAD_DIM + (lane & 3) * 2;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float o[4];
                attention::mma<false>(T(), o, a, w[i][0], w[i][1]);
                *(uint32_t *)(row + i * 8) = attention::pack2(T(), o[0], o[1]);
                *(uint32_t *)(row + 8 * pitch + i * 8) = attention::pack2(T(), o[2], o[3]);
            }
        }
    }
};

} // namespace
