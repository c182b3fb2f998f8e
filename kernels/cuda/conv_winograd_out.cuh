/* conv_winograd_out.cuh - the way out of a set of sums of conv_winograd_sm90.cu: the pixels of every fourth column of a
 * tile. */
#ifndef DVK_CUDA_CONV_WINOGRAD_OUT_CUH
#define DVK_CUDA_CONV_WINOGRAD_OUT_CUH

#include "kernels/cuda/conv_wgmma_tile.cuh"
#include "kernels/cuda/conv_winograd.h"

enum { QUADS = DVK_WINOGRAD_TILE_W * DVK_WINOGRAD_TILE_H, SET = QUADS / 2 }; /* SET: sums of a thread */
enum { PIECES = DVK_WINOGRAD_TILE_H / DVK_WINOGRAD_PIECE_H };                /* of a set */
enum { PIECE_SUMS = SET / PIECES };

enum { FIRST_PHASE = 1, LAST_PHASE = 3 }; /* sets leave in the order 1, 0, 2, 3 */

struct way_out {
    uint32_t at, barriers; /* of PIECES pieces; of their residuals */
    uint32_t moments;      /* {count, mean, M2} of what has left of a tile: of this thread's first channel */
    int group;
    uint32_t parity = 0;

    /* Residuals of a set; its pieces' places are free when what they held has been read. */
    __device__ __forceinline__ void bring_residuals(const dvk_conv_winograd &of, const conv_tile &t) const {
        if (of.c.epi.n_res == 0 || (threadIdx.x & 127) != 0) {
            return;
        }
        copy_out_read<0>();
#pragma unroll 1
        for (int i = 0; i < PIECES; i++) {
            barrier_expect(barriers + 8 * i, DVK_WINOGRAD_PIECE);
            copy_in(at + i * DVK_WINOGRAD_PIECE, &of.res[t.phase], t.c0, t.x0, t.y0 + i * DVK_WINOGRAD_PIECE_H, t.n,
                    barriers + 8 * i);
        }
    }

    template <class T, int RES, int COUNT, int I>
    __device__ __forceinline__ void write(const dvk_conv_wgmma &p, const conv_tile &t, const conv_channels &channels,
                                          const float (&sum)[SET], conv_sums &sums) const {
        const int thread = threadIdx.x & 127, lane = thread & 31, warp = thread >> 5;
        const uint32_t mine = ((lane >> 4) * 8 + (lane & 7)) * 128 + (((warp * 2 + (lane >> 3 & 1)) ^ (lane & 7)) * 16);
        const output_ring pieces = {at, barriers, group};
        if (RES > 0) {
            barrier_wait(barriers + 8 * I, parity);
        } else if (I == 0) {
            if (thread == 0) {
                copy_out_read<0>();
            }
            named_barrier(1 + group, 128);
        }
        pieces.piece<T, DVK_WGMMA_LINEAR, RES, COUNT, 0, DVK_WINOGRAD_PIECE_H>(
            p, channels, at + I * DVK_WINOGRAD_PIECE + mine, sum + I * PIECE_SUMS, I, sums);
        fence_async();
        named_barrier(1 + group, 128);
        if (thread == 0) {
            copy_out(&p.y[t.phase], t.c0, t.x0, t.y0 + I * DVK_WINOGRAD_PIECE_H, t.n, at + I * DVK_WINOGRAD_PIECE);
        }
    }

    /* Adds a set to the statistics of its tile, whose sets leave one by one; the last one takes them along. */
    __device__ __forceinline__ void count_in(const dvk_conv_wgmma &p, const conv_tile &t, int wide, int high,
                                             const conv_sums &sums) const {
        const int lane = threadIdx.x & 31, per = p.epi.group_channels;
        const int c = t.c0 + (threadIdx.x >> 5 & 3) * 16 + lane / 4;
        const float count = (float)(wide * high * per);
        float mean[2], m2[2];
        output_ring::moments(sums, per, count, mean, m2);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if ((lane & 3) != 0 || (c + i * 8) % per != 0 || c + i * 8 >= p.epi.c_out || t.n >= p.n) {
                continue;
            }
            const uint32_t kept = moments + i * 8 * 16;
            float4 all = make_float4(count, mean[i], m2[i], 0.0f);
            if (t.phase != FIRST_PHASE) {
                const uint4 u = shared_load(kept);
                const float n = __uint_as_float(u.x) + count, share = __fdividef(count, fmaxf(n, 1.0f));
                const float delta = mean[i] - __uint_as_float(u.y);
                all =
                    make_float4(n, fmaf(delta, share, __uint_as_float(u.y)),
                                fmaf(delta * delta, share * __uint_as_float(u.x), __uint_as_float(u.z) + m2[i]), 0.0f);
            }
            if (t.phase != LAST_PHASE) {
                shared_store(kept,
                             make_uint4(__float_as_uint(all.x), __float_as_uint(all.y), __float_as_uint(all.z), 0));
            } else {
                float *out = p.epi.stats + ((int64_t)t.chunk * p.epi.groups + (c + i * 8) / per) * 3;
                out[0] = all.x, out[1] = all.y, out[2] = all.z;
            }
        }
    }

    /* Piece I of set t.phase. */
    template <class T, int I>
    __device__ __forceinline__ void store(const dvk_conv_winograd &of, const conv_tile &t,
                                          const conv_channels &channels, const float (&sum)[SET], conv_sums &sums) {
        const dvk_conv_wgmma &p = of.c;
        const int wide =
            min((of.width + DVK_WINOGRAD_PIXELS - 1 - t.phase) / DVK_WINOGRAD_PIXELS - t.x0, DVK_WINOGRAD_TILE_W);
        const int high = min(p.out_h - t.y0, DVK_WINOGRAD_TILE_H);
        if (I == 0) {
            sums = conv_sums(high, wide, 2 * (threadIdx.x & 3));
        }
        const bool counted = p.epilogue == DVK_WGMMA_STATISTICS, added = p.epi.n_res > 0;
        const bool whole = wide == DVK_WINOGRAD_TILE_W && high == DVK_WINOGRAD_TILE_H;
        if (counted && whole && added) {
            write<T, 1, COUNT_WHOLE, I>(p, t, channels, sum, sums);
        } else if (counted && whole) {
            write<T, 0, COUNT_WHOLE, I>(p, t, channels, sum, sums);
        } else if (counted && added) {
            write<T, 1, COUNT_EDGE, I>(p, t, channels, sum, sums);
        } else if (counted) {
            write<T, 0, COUNT_EDGE, I>(p, t, channels, sum, sums);
        } else if (added) {
            write<T, 1, COUNT_NONE, I>(p, t, channels, sum, sums);
        } else {
            write<T, 0, COUNT_NONE, I>(p, t, channels, sum, sums);
        }
        if (I == PIECES - 1) {
            parity ^= 1;
            if (p.epilogue == DVK_WGMMA_STATISTICS) {
                count_in(p, t, wide, high, sums);
            }
        }
    }
};

#endif
