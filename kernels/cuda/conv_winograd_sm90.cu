/* conv_winograd_sm90.cu - convolution of 3 x 3 taps on the tensor cores of Hopper with two thirds of the products, by
 * Winograd's F(2, 3) along the width (op.h). A tile is 8 x 24 pairs of pixels; a warpgroup makes 64 output channels of it as
 * two sets of sums, m[64 channels][192 pairs] each. With V0 .. V3 the rows of the transformed picture and U0 .. U3 those of
 * the weights, all channels and rows of taps first go through
 *     a += U1 V1, b += U2 V2,    then (a, b) = (a + b, a - b),    then all of them again through    a += U0 V0, b -= U3 V3,
 * after which a holds the even pixels and b the odd ones: two sets are enough for four products. Each of the four goes
 * through all channels before the next does, so that a set leaves while products of the other one are under way: the even
 * pixels during the first of V3, the odd ones during the last of the next job's V1.
 *
 * Blocks are persistent, in clusters of two: each has a tile, both the same output channels, and each brings half of the
 * weights for both. The third warpgroup brings; of the other two the second stays `lead` rows of taps behind the first. */
#include "kernels/cuda/conv_wgmma_pipe.cuh"
#include "kernels/cuda/conv_wgmma_tile.cuh"
#include "kernels/cuda/conv_winograd.h"
#include "kernels/cuda/hopper_cluster.cuh"

namespace {

enum { CONSUMER_REGISTERS = 240, HELPER_REGISTERS = 24 };
enum { PAIRS = DVK_WINOGRAD_TILE_W * DVK_WINOGRAD_TILE_H, SET = PAIRS / 2 }; /* SET: sums of a thread */
enum { PIECES = DVK_WINOGRAD_TILE_H / DVK_WGMMA_PIECE_H };                   /* of a set */
enum { ROWS = 3, ROW_STEP = DVK_WINOGRAD_TILE_W * 128 >> 4 };                /* in units of operands */

struct layout { /* of shared memory, addresses */
    uint32_t x, w, out, barriers;
    __device__ __forceinline__ layout(const dvk_conv_wgmma &p, uint32_t base) {
        x = base;
        w = x + p.x_slots * DVK_WINOGRAD_PATCH;
        out = w + p.w_slots * DVK_WINOGRAD_TAP;
        barriers = out + DVK_WINOGRAD_STAGING;
    }
    __device__ __forceinline__ uint32_t x_full(int i) const {
        return barriers + 8 * i;
    }
    __device__ __forceinline__ uint32_t x_empty(int i) const {
        return barriers + 8 * (8 + i);
    }
    __device__ __forceinline__ uint32_t w_full(int i) const {
        return barriers + 8 * (16 + i);
    }
    __device__ __forceinline__ uint32_t w_empty(int i) const {
        return barriers + 8 * (32 + i);
    }
    __device__ __forceinline__ uint32_t residual(int group) const {
        return barriers + 8 * (48 + group * DVK_WGMMA_MAX_ENTRIES);
    }
    __device__ __forceinline__ uint32_t turn() const {
        return barriers + 8 * 64;
    }
};

/* ---- jobs: a tile of each block of a cluster ---- */

CONV_DEVICE int first_job() {
    return blockIdx.x / DVK_WINOGRAD_CLUSTER;
}

CONV_DEVICE int job_step() {
    return gridDim.x / DVK_WINOGRAD_CLUSTER;
}

CONV_DEVICE conv_tile winograd_tile(const dvk_conv_wgmma &p, int job, int rank, int group) {
    conv_tile t;
    const int both = job / p.blocks, at = both * DVK_WINOGRAD_CLUSTER + rank, row = at / p.tiles_x;
    t.phase = 0;
    t.c0 = (job - both * p.blocks) * 128 + group * 64;
    t.x0 = (at - row * p.tiles_x) * DVK_WINOGRAD_TILE_W;
    t.n = row / p.tiles_y;
    t.y0 = (row - t.n * p.tiles_y) * DVK_WINOGRAD_TILE_H;
    t.chunk = at;
    return t;
}

/* ---- the third warpgroup ---- */

/* One thread brings the weights of all jobs, another one the patches: alone, a thread is too slow. Weights do not depend on
 * the launch before. */
CONV_DEVICE void bring_weights(const dvk_conv_wgmma &p, const layout &at, int rank) {
    const int per_job = p.chunks * p.taps;
    const int half = rank * DVK_WGMMA_TAP; /* of a slot */
    ring w;
    for (int job = first_job(); job < p.jobs; job += job_step()) {
        const unsigned char *from = p.w + (int64_t)(job % p.blocks) * per_job * DVK_WINOGRAD_TAP + half;
        for (int tap = 0; tap < per_job; tap++, from += DVK_WINOGRAD_TAP) {
            const uint32_t full = at.w_full(w.slot);
            barrier_wait(at.w_empty(w.slot), w.parity ^ 1);
            barrier_expect(full, DVK_WINOGRAD_TAP);
            copy_bulk_to_both(at.w + w.slot * DVK_WINOGRAD_TAP + half, from, DVK_WGMMA_TAP, full);
            w.advance(p.w_slots);
        }
    }
}

/* Of the transformed lines row 1 of all chunks, then 2, 0 and 3. */
CONV_DEVICE void bring_patches(const dvk_conv_wgmma &p, const layout &at, int rank) {
    ring x;
    wait_for_launch_before();
    for (int job = first_job(); job < p.jobs; job += job_step()) {
        const conv_tile t = winograd_tile(p, job, rank, 0);
#pragma unroll 1
        for (int i = 0, row = 1, chunk = 0; i < 4 * p.chunks; i++) {
            const uint32_t full = at.x_full(x.slot);
            barrier_wait(at.x_empty(x.slot), x.parity ^ 1);
            barrier_expect(full, DVK_WINOGRAD_PATCH);
            copy_in(at.x + x.slot * DVK_WINOGRAD_PATCH, row == 0 ? &p.x : &p.x_odd[row - 1], chunk * DVK_WGMMA_CHUNK,
                    t.x0, t.y0 - 1, t.n, full);
            x.advance(p.x_slots);
            if (++chunk == p.chunks) {
                chunk = 0;
                row = row == 1 ? 2 : row == 2 ? 0 : 3;
            }
        }
    }
}

/* ---- the way out of a set, while products of the other one are under way ---- */

struct way_out {
    uint32_t at, barriers; /* of PIECES pieces; of their residuals */
    int group;
    uint32_t parity = 0;

    /* Residuals of a set; its pieces' places are free when what they held has been read. */
    __device__ __forceinline__ void bring_residuals(const dvk_conv_wgmma &p, const conv_tile &t, int set) const {
        if (p.epi.n_res == 0 || (threadIdx.x & 127) != 0) {
            return;
        }
        copy_out_read<0>();
#pragma unroll 1
        for (int i = 0; i < PIECES; i++) {
            barrier_expect(barriers + 8 * i, DVK_WGMMA_PIECE);
            copy_in(at + i * DVK_WGMMA_PIECE, &p.res[set], t.c0, t.x0, t.y0 + i * DVK_WGMMA_PIECE_H, t.n,
                    barriers + 8 * i);
        }
    }

    template <class T, int RES, int COUNT, int I>
    __device__ __forceinline__ void write(const dvk_conv_wgmma &p, const conv_tile &t, const float (&sum)[SET],
                                          conv_sums &sums) const {
        const int thread = threadIdx.x & 127, lane = thread & 31, warp = thread >> 5;
        const conv_channels channels(p.epi, t.c0 + warp * 16 + lane / 4);
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
        pieces.piece<T, DVK_WGMMA_LINEAR, RES, COUNT, 0>(p, channels, at + I * DVK_WGMMA_PIECE + mine, sum + I * 32, I,
                                                         sums);
        fence_async();
        named_barrier(1 + group, 128);
        if (thread == 0) {
            copy_out(&p.y[t.phase], t.c0, t.x0, t.y0 + I * DVK_WGMMA_PIECE_H, t.n, at + I * DVK_WGMMA_PIECE);
        }
    }

    /* Piece I of set t.phase. */
    template <class T, int I>
    __device__ __forceinline__ void store(const dvk_conv_winograd &of, const conv_tile &t, const float (&sum)[SET],
                                          conv_sums &sums) {
        const dvk_conv_wgmma &p = of.c;
        const int wide = min((t.phase ? of.odd_w : p.out_w) - t.x0, DVK_WINOGRAD_TILE_W);
        const int high = min(p.out_h - t.y0, DVK_WINOGRAD_TILE_H);
        if (I == 0) {
            sums = conv_sums(high, wide, 2 * (threadIdx.x & 3));
        }
        if (p.epilogue == DVK_WGMMA_STATISTICS && p.epi.n_res > 0) {
            write<T, 1, COUNT_EDGE, I>(p, t, sum, sums);
        } else if (p.epilogue == DVK_WGMMA_STATISTICS) {
            write<T, 0, COUNT_EDGE, I>(p, t, sum, sums);
        } else if (p.epi.n_res > 0) {
            write<T, 1, COUNT_NONE, I>(p, t, sum, sums);
        } else {
            write<T, 0, COUNT_NONE, I>(p, t, sum, sums);
        }
        if (I == PIECES - 1) {
            parity ^= 1;
            if (p.epilogue == DVK_WGMMA_STATISTICS) {
                output_ring::statistics(p, t, threadIdx.x & 127, wide, high, sums);
            }
        }
    }
};

/* ---- the other two ---- */

/* (a, b) = (a + b, a - b) without a third register: there is none. */
CONV_DEVICE void add_and_subtract(float &a, float &b) {
    a += b;
    b = fmaf(-2.0f, b, a);
}

/* Where a warpgroup is in its work; `x_used`, `w_used`: slots that the products under way still read, -1: none. */
struct consumer {
    int group;
    ring x, w;
    int x_used = -1, w_used = -1;
    int tap = 0; /* rows of taps of this job that are done */

    __device__ __forceinline__ void free_used(const layout &at) {
        const int lane = threadIdx.x & 31;
        if (lane < DVK_WINOGRAD_CLUSTER && w_used >= 0) {
            cluster_barrier_arrive(at.w_empty(w_used), lane);
        }
        if (lane == 0 && x_used >= 0) {
            barrier_arrive(at.x_empty(x_used));
        }
        x_used = w_used = -1;
    }

    /* A row of taps with the patch `b`; all products before those of this one are done when it returns. */
    __device__ __forceinline__ void multiply_row(const dvk_conv_wgmma &p, const layout &at, uint64_t b, int accumulate,
                                                 float (&sum)[SET]) {
        barrier_wait(at.w_full(w.slot), w.parity);
        const uint64_t a = wgmma_operand(at.w + w.slot * DVK_WINOGRAD_TAP + group * DVK_WGMMA_TAP, 1024);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            wgmma<wgmma_half, PAIRS>(sum, a + 2 * k, b + 2 * k, k > 0 || accumulate);
        }
        wgmma_commit();
        wgmma_wait<1>();
        free_used(at);
        if (++tap == p.lead && group == 0 && (threadIdx.x & 127) == 0) {
            barrier_arrive(at.turn());
        }
        w_used = w.slot;
        w.advance(p.w_slots);
    }

    /* The next patch: three rows of taps. */
    __device__ __forceinline__ void multiply(const dvk_conv_wgmma &p, const layout &at, int accumulate,
                                             float (&sum)[SET]) {
        const uint64_t b = wgmma_operand(at.x + x.slot * DVK_WINOGRAD_PATCH, 1024);
        barrier_wait(at.x_full(x.slot), x.parity);
#pragma unroll 1
        for (int row = 0; row < ROWS; row++) {
            multiply_row(p, at, b + row * ROW_STEP, accumulate | row, sum);
        }
        x_used = x.slot;
        x.advance(p.x_slots);
    }

    /* The same, and between the rows the pieces of the other set leave, if it is a real one. */
    template <class T>
    __device__ __forceinline__ void multiply_and_store(const dvk_conv_winograd &of, const layout &at, int accumulate,
                                                       float (&sum)[SET], way_out &out, const conv_tile &t,
                                                       float (&other)[SET], bool real) {
        const uint64_t b = wgmma_operand(at.x + x.slot * DVK_WINOGRAD_PATCH, 1024);
        conv_sums sums(0, 0, 0);
        wgmma_wait<0>(); /* else the compiler takes the other set for one that is being made */
        wgmma_pin(sum);
        wgmma_pin(other);
        free_used(at);
        barrier_wait(at.x_full(x.slot), x.parity);
        multiply_row(of.c, at, b, accumulate, sum);
        if (real) {
            out.store<T, 0>(of, t, other, sums);
        }
        multiply_row(of.c, at, b + ROW_STEP, 1, sum);
        if (real) {
            out.store<T, 1>(of, t, other, sums);
        }
        multiply_row(of.c, at, b + 2 * ROW_STEP, 1, sum);
        if (real) {
            out.store<T, 2>(of, t, other, sums);
        }
        x_used = x.slot;
        x.advance(of.c.x_slots);
    }
};

template <class T> CONV_DEVICE void multiply(const dvk_conv_winograd &of, const layout &at, int rank, int group) {
    const dvk_conv_wgmma &p = of.c;
    consumer c = {group};
    way_out out = {at.out + group * PIECES * DVK_WGMMA_PIECE, at.residual(group), group};
    float even[SET], odd[SET];
    uint32_t turn = 0;
#pragma unroll
    for (int i = 0; i < SET; i++) {
        even[i] = odd[i] = 0;
    }
    wait_for_launch_before();
    int job = first_job();
    for (; job < p.jobs; job += job_step()) {
        const bool first = job == first_job();
        c.tap = 0;
        if (group == 1) {
            barrier_wait(at.turn(), turn);
            turn ^= 1;
        }
        for (int chunk = 0; chunk < p.chunks - 1; chunk++) {
            c.multiply(p, at, chunk, even);
        }
        conv_tile before = winograd_tile(p, first ? job : job - job_step(), rank, group);
        before.phase = 1;
        c.multiply_and_store<T>(of, at, p.chunks - 1, even, out, before, odd, !first);
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            c.multiply(p, at, chunk, odd);
        }
        wgmma_wait<0>();
        wgmma_pin(even);
        wgmma_pin(odd);
        c.free_used(at);
#pragma unroll
        for (int i = 0; i < SET; i++) {
            add_and_subtract(even[i], odd[i]);
        }
        wgmma_pin(even);
        wgmma_pin(odd);
        const conv_tile t = winograd_tile(p, job, rank, group);
        out.bring_residuals(p, t, 0);
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            c.multiply(p, at, 1, even);
        }
        c.multiply_and_store<T>(of, at, 1, odd, out, t, even, true);
        for (int chunk = 1; chunk < p.chunks; chunk++) {
            c.multiply(p, at, 1, odd);
        }
        wgmma_wait<0>();
        wgmma_pin(odd);
        c.free_used(at);
        out.bring_residuals(p, t, 1);
    }
    if (first_job() < p.jobs) {
        conv_tile last = winograd_tile(p, job - job_step(), rank, group);
        last.phase = 1;
        conv_sums sums(0, 0, 0);
        out.store<T, 0>(of, last, odd, sums);
        out.store<T, 1>(of, last, odd, sums);
        out.store<T, 2>(of, last, odd, sums);
    }
    if ((threadIdx.x & 127) == 0) {
        copy_out_done();
    }
}

template <class T> CONV_DEVICE void convolve(const dvk_conv_winograd &of) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const dvk_conv_wgmma &p = of.c;
    const layout at(p, (uint32_t)__cvta_generic_to_shared(shared));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const int rank = (int)cluster_rank();
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.x_slots; i++) {
            barrier_init(at.x_full(i), 1);
            barrier_init(at.x_empty(i), 8);
        }
        for (int i = 0; i < p.w_slots; i++) {
            barrier_init(at.w_full(i), 1);
            barrier_init(at.w_empty(i), 8 * DVK_WINOGRAD_CLUSTER);
        }
        for (int i = 0; i < 2 * DVK_WGMMA_MAX_ENTRIES; i++) {
            barrier_init(at.residual(0) + 8 * i, 1);
        }
        barrier_init(at.turn(), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        map_prefetch(&p.x);
    }
    __syncthreads();
    cluster_meet(); /* nobody brings weights to barriers that are not there yet */
    let_next_launch_begin();
    if (group == 2) {
        set_registers_down<HELPER_REGISTERS>();
        if (threadIdx.x == 256) {
            bring_weights(p, at, rank);
        } else if (threadIdx.x == 288) {
            bring_patches(p, at, rank);
        }
    } else {
        set_registers_up<CONSUMER_REGISTERS>();
        multiply<T>(of, at, rank, group);
    }
    __syncwarp();
    cluster_meet(); /* nor to shared memory that is no more */
}

} // namespace

extern "C" __global__ void __launch_bounds__(DVK_WGMMA_THREADS, 1)
    conv_winograd_f16(const __grid_constant__ dvk_conv_winograd p) {
    convolve<wgmma_half>(p);
}

extern "C" __global__ void __launch_bounds__(DVK_WGMMA_THREADS, 1)
    conv_winograd_bf16(const __grid_constant__ dvk_conv_winograd p) {
    convolve<wgmma_bfloat>(p);
}
