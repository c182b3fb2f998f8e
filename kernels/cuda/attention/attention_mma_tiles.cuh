// attention_mma_tiles.cuh - shared code of attention on mma.sync with values in shared memory. Each of WARPS warps
// holds MT tiles of 16 queries, their scores against BN keys, and their sums over all channels in registers. The
// exponentials become the operand of the next product in place.
#pragma once

#include "kernels/cuda/attention/attention_mma.cuh"

namespace attention {

template <typename T, int D, int MT, int BN, int WARPS, int STAGES_, bool KEEP_Q> struct mma_tiles {
    enum {
        THREADS = WARPS * 32,
        BM = WARPS * MT * 16,
        PITCH = D + 8, // 16 bytes of padding per row: eight rows are in different banks
        STAGES = STAGES_,
        TILE = BN * PITCH,
        DEPTHS = D / 16,
        BLOCKS = BN / 8
    };
    typedef float scores[MT][BLOCKS][4];

    const int lane = threadIdx.x % 32;
    T *q_tile, *k_tiles, *v_tiles;
    float o[MT][D / 8][4];
    float frame[MT][2], sum[MT][2];
    uint32_t q[KEEP_Q ? MT : 1][KEEP_Q ? DEPTHS : 1][4];

    __device__ __forceinline__ void place(T *shared) {
        q_tile = shared;
        k_tiles = q_tile + BM * PITCH;
        v_tiles = k_tiles + STAGES * TILE;
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int m = 0; m < MT; m++) {
            frame[m][0] = frame[m][1] = -INFINITY;
            sum[m][0] = sum[m][1] = 0.0f;
#pragma unroll
            for (int i = 0; i < D / 2; i++) {
                o[m][i / 4][i % 4] = 0.0f;
            }
        }
    }

    __device__ __forceinline__ void load_query(uint32_t (&a)[4], int m, int depth) {
        const int row = (threadIdx.x / 32 * MT + m) * 16 + (lane & 15);
        ldmatrix4(a, shared_address(q_tile + row * PITCH + (lane >> 4) * 8) + depth * 32);
    }

    __device__ __forceinline__ void keep_queries() {
        if constexpr (KEEP_Q) {
#pragma unroll
            for (int i = 0; i < MT * DEPTHS; i++) {
                load_query(q[i / DEPTHS][i % DEPTHS], i / DEPTHS, i % DEPTHS);
            }
        }
    }

    // s (+)= q k^T over 16 channels
    __device__ __forceinline__ void score(scores &s, int stage, int depth) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            if constexpr (KEEP_Q) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    a[m][i] = q[m][depth][i];
                }
            } else {
                load_query(a[m], m, depth);
            }
        }
        const T *k = k_tiles + stage * TILE;
        const uint32_t at =
            shared_address(k + ((lane & 7) + (lane >> 4) * 8) * PITCH + (lane >> 3 & 1) * 8) + depth * 32;
#pragma unroll
        for (int n = 0; n < BLOCKS; n += 2) {
            uint32_t b[4];
            ldmatrix4(b, at + n * 8 * PITCH * 2);
#pragma unroll
            for (int i = 0; i < 2 * MT; i++) {
                float(&d)[4] = s[i / 2][n + i % 2];
                if (depth == 0) {
                    mma<false>(T(), d, a[i / 2], b[i % 2 * 2], b[i % 2 * 2 + 1]);
                } else {
                    mma<true>(T(), d, a[i / 2], b[i % 2 * 2], b[i % 2 * 2 + 1]);
                }
            }
        }
    }

    // Raises frames if needed and rescales the sums to them.
    __device__ __forceinline__ void find_frames(const scores &s, const float &scale_log2) {
        float shrink[MT][2];
        bool rise = false;
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            float t = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
            for (int n = 1; n < BLOCKS; n++) {
                t = fmaxf(t, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            }
            t = raised(frame[m][h], quad_max(t) * scale_log2);
            shrink[m][h] = exp2_fast(frame[m][h] - from(t));
            rise = rise || t != frame[m][h];
            frame[m][h] = t;
        }
        if (!__any_sync(0xffffffffu, rise)) {
            return;
        }
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            sum[m][h] *= shrink[m][h];
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                o[m][n][2 * h] *= shrink[m][h];
                o[m][n][2 * h + 1] *= shrink[m][h];
            }
        }
    }

    // s = exp(s - frame) for blocks first .. last - 1 of eight keys
    __device__ __forceinline__ void exponentials(scores &s, const float &scale_log2, int first, int last) {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            const float minus = -from(frame[m][h]);
#pragma unroll
            for (int n = 0; n < BLOCKS; n++) {
                if (n >= first && n < last) {
#pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; e++) {
                        s[m][n][e] = exp2_fast(fmaf(s[m][n][e], scale_log2, minus));
                        sum[m][h] += s[m][n][e];
                    }
                }
            }
        }
    }

    // o += s v
    __device__ __forceinline__ void add_values(const scores &s, int stage) {
        const uint32_t v = shared_address(v_tiles + stage * TILE + (lane & 15) * PITCH + (lane >> 4) * 8);
#pragma unroll
        for (int k = 0; k < BN / 16; k++) {
            uint32_t a[MT][4];
#pragma unroll
            for (int i = 0; i < MT * 4; i++) {
                const float *pair = &s[i / 4][2 * k + i % 4 / 2][i % 2 * 2];
                a[i / 4][i % 4] = pack2(T(), pair[0], pair[1]);
            }
#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
                uint32_t b[4];
                ldmatrix4_trans(b, v + (k * 16 * PITCH + n * 8) * 2);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma<true>(T(), o[m][n], a[m], b[0], b[1]);
                    mma<true>(T(), o[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }
};

} // namespace attention
