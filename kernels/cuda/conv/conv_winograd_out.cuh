/* conv_winograd_out.cuh - stores a set of sums of conv_winograd_sm90.cu: the pixels of every fourth column of a tile. */
#ifndef DVK_CUDA_CONV_WINOGRAD_OUT_CUH
#define DVK_CUDA_CONV_WINOGRAD_OUT_CUH

#include "kernels/cuda/conv/conv_wgmma_tile.cuh"
#include "kernels/cuda/conv/conv_winograd.h"

enum { QUADS = DVK_WINOGRAD_TILE_W * DVK_WINOGRAD_TILE_H, SET = QUADS / 2 }; /* SET: sums of a thread */
enum { PIECES = DVK_WINOGRAD_TILE_H / DVK_WINOGRAD_PIECE_H };                /* of a set */
enum { PIECE_SUMS = SET / PIECES };

/* Output buffers of a warpgroup, buffers of its residuals, and their barriers. */
struct way_out_places {
    uint32_t at, residuals, barriers;
    __device__ __forceinline__ uint32_t has_residual(int i) const {
        return barriers + 8 * i;
    }
    __device__ __forceinline__ uint32_t is_written(int i) const {
        return barriers + 8 * (PIECES + i);
    }
    __device__ __forceinline__ uint32_t are_counted() const {
        return barriers + 8 * 2 * PIECES;
    }
};

enum { PIECES_BARRIERS = 2 * PIECES + 1 }; /* of a warpgroup */

/* RES: with a residual. COUNTED: with statistics. */
template <int RES, bool COUNTED> struct way_out {
    way_out_places to;
    int group;
    uint32_t parity = 0;

    /* The buffers of pieces become free late: the bulk copies and the counting warp must have read them. Residuals
     * therefore have separate buffers, which are free once a set has been stored. */
    __device__ __forceinline__ void wait_until_read() const {
        copy_out_read<0>();
        if (COUNTED) {
            barrier_wait(to.are_counted(), parity ^ 1);
        }
    }

    /* Residuals of a set. */
    __device__ __forceinline__ void bring_residuals(const dvk_conv_winograd &of, const conv_tile &t) const {
        if (RES > 0 && (threadIdx.x & 127) == 0) {
#pragma unroll 1
            for (int i = 0; i < PIECES; i++) {
                barrier_expect(to.has_residual(i), DVK_WINOGRAD_PIECE);
                copy_in(to.residuals + i * DVK_WINOGRAD_PIECE, &of.res[t.phase], t.c0, t.x0,
                        t.y0 + i * DVK_WINOGRAD_PIECE_H, t.n, to.has_residual(i));
            }
        }
    }

    /* Piece I of set t.phase. */
    template <class T, int I>
    __device__ __forceinline__ void store(const dvk_conv_wgmma &p, const conv_tile &t, const conv_channels &channels,
                                          const float (&sum)[SET]) {
        const int thread = threadIdx.x & 127, lane = thread & 31, warp = thread >> 5;
        const uint32_t mine = ((lane >> 4) * 8 + (lane & 7)) * 128 + (((warp * 2 + (lane >> 3 & 1)) ^ (lane & 7)) * 16);
        const output_ring pieces = {to.at, to.barriers, group};
        conv_sums none(0, 0, 0);
        if (I == 0) {
            if (thread == 0) {
                wait_until_read();
            }
            named_barrier(1 + group, 128);
        }
        if (RES > 0) {
            barrier_wait(to.has_residual(I), parity);
        }
        pieces.piece<T, DVK_WGMMA_LINEAR, RES, COUNT_NONE, 0, DVK_WINOGRAD_PIECE_H>(
            p, channels, to.at + I * DVK_WINOGRAD_PIECE + mine, to.residuals + I * DVK_WINOGRAD_PIECE + mine,
            sum + I * PIECE_SUMS, I, none);
        fence_async();
        named_barrier(1 + group, 128);
        if (thread == 0) {
            copy_out(&p.y[t.phase], t.c0, t.x0, t.y0 + I * DVK_WINOGRAD_PIECE_H, t.n, to.at + I * DVK_WINOGRAD_PIECE);
            if (COUNTED) {
                barrier_arrive(to.is_written(I));
            }
        }
        if (I == PIECES - 1) {
            parity ^= 1;
        }
    }
};

/* A warp that computes statistics of a warpgroup's stores in parallel: {count, mean, M2} of a tile's groups. A lane has
 * two adjacent channels; groups are 1 to 16 channels. It sums differences from a value that all lanes of a group share,
 * the first stored value of the group. */
struct counter {
    float pivot[2], s[2] = {}, q[2] = {};
    int pixels = 0;

    template <class T> __device__ __forceinline__ void begin(uint32_t piece, int per) {
        const int lane = threadIdx.x & 31, lanes = max(per / 2, 1);
        const float2 v = T::unpack(value(piece, 0));
        pivot[0] = __shfl_sync(0xffffffffu, v.x, lane / lanes * lanes);
        pivot[1] = per > 1 ? pivot[0] : v.y;
    }

    /* This lane's channels of pixel `at` of a piece. */
    static __device__ __forceinline__ uint32_t value(uint32_t piece, int at) {
        const int lane = threadIdx.x & 31;
        return shared_load_word(piece + at * 128 + ((lane / 4 ^ (at & 7)) * 16) + (lane & 3) * 4);
    }

    template <class T> __device__ __forceinline__ void add(uint32_t piece, int wide, int high) {
        pixels += wide * max(high, 0);
#pragma unroll 1
        for (int row = 0; row < high; row++) {
#pragma unroll
            for (int x = 0; x < DVK_WINOGRAD_TILE_W; x++) {
                const float2 v = T::unpack(value(piece, row * DVK_WINOGRAD_TILE_W + x));
                const float d[2] = {v.x - pivot[0], v.y - pivot[1]};
#pragma unroll
                for (int k = 0; k < 2 && x < wide; k++) {
                    s[k] += d[k];
                    q[k] = fmaf(d[k], d[k], q[k]);
                }
            }
        }
    }

    __device__ __forceinline__ void finish(const dvk_conv_wgmma &p, const conv_tile &t) {
        const int lane = threadIdx.x & 31, per = p.epi.group_channels, c = t.c0 + 2 * lane;
        if (per > 1) {
            s[0] += s[1];
            q[0] += q[1];
        }
#pragma unroll 1
        for (int d = 1; d < per / 2; d *= 2) {
            s[0] += __shfl_xor_sync(0xffffffffu, s[0], d);
            q[0] += __shfl_xor_sync(0xffffffffu, q[0], d);
        }
        const float count = (float)(pixels * per), inverse = __fdividef(1.0f, fmaxf(count, 1.0f));
        float *out = p.epi.stats + ((int64_t)t.chunk * p.epi.groups + c / per) * 3;
#pragma unroll
        for (int k = 0; k < 2; k++, out += 3) {
            if ((c + k) % per == 0 && c + k < p.epi.c_out && t.n < p.n) {
                const float delta = s[k] * inverse;
                out[0] = count, out[1] = pivot[k] + delta, out[2] = fmaxf(fmaf(-delta, s[k], q[k]), 0.0f);
            }
        }
    }
};

#endif
