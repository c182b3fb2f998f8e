/* conv_winograd_sm90.cu - convolution of 3 x 3 taps on the tensor cores of Hopper with half of the products, by
 * Winograd's F(4, 3) along the width (op.h). A tile is 8 x 12 quads of pixels. A warpgroup computes 64 output channels
 * of it as four sets of sums, m[64 channels][96 quads] each. V0 .. V5 are the lines of the transformed picture, U0 ..
 * U5 those of the weights. A pass is all channels and rows of taps of one product. The passes run in this order:
 *     a += U1 V1, b += U2 V2, c += U3 V3, d += U4 V4,    (a, b, c, d) = mixed (a, b, c, d),    a += U0 V0, d += U5 V5
 * The sets then hold the four pixels of every quad: four sets are enough for six products. Each set is stored in pieces
 * while the products of another one are in flight: b during the pass of V0, a during V5's, c and d during the next
 * job's V1 and V2.
 *
 * Blocks are persistent, in pairs that share two tiles and 128 output channels. Each block has 64 of the channels and
 * one warpgroup for each tile, and loads one tile's patches for both blocks. The third warpgroup loads and computes
 * statistics. The second warpgroup stays `lead` rows of taps behind the first. */
#include "kernels/cuda/conv/conv_wgmma_pipe.cuh"
#include "kernels/cuda/conv/conv_winograd_out.cuh"
#include "kernels/cuda/common/hopper_cluster.cuh"

namespace {

enum { CONSUMER_REGISTERS = 240, HELPER_REGISTERS = 24 };
enum { MANY_CHUNKS = 24 };
enum { ROWS = 3, ROW_STEP = DVK_WINOGRAD_TILE_W * 128 >> 4 }; /* in units of operands */

struct layout { /* shared memory addresses */
    uint32_t x, w, out, barriers;
    __device__ __forceinline__ layout(const dvk_conv_wgmma &p, uint32_t base) {
        x = base;
        w = x + DVK_WINOGRAD_PAIR * p.x_slots * DVK_WINOGRAD_PATCH;
        out = w + p.w_slots * DVK_WGMMA_TAP;
        barriers = out + (p.epi.n_res > 0 ? 2 : 1) * DVK_WINOGRAD_STAGING;
    }
    __device__ __forceinline__ uint32_t patch(const dvk_conv_wgmma &p, int group, int i) const {
        return x + (group * p.x_slots + i) * DVK_WINOGRAD_PATCH;
    }
    __device__ __forceinline__ uint32_t x_full(int group, int i) const {
        return barriers + 8 * (4 * group + i);
    }
    __device__ __forceinline__ uint32_t x_empty(int group, int i) const {
        return barriers + 8 * (8 + 4 * group + i);
    }
    __device__ __forceinline__ uint32_t w_full(int i) const {
        return barriers + 8 * (16 + i);
    }
    __device__ __forceinline__ uint32_t w_empty(int i) const {
        return barriers + 8 * (32 + i);
    }
    __device__ __forceinline__ uint32_t turn() const {
        return barriers + 8 * 48;
    }
    __device__ __forceinline__ way_out_places places(int group) const {
        const uint32_t first = out + group * PIECES * DVK_WINOGRAD_PIECE;
        return {first, first + DVK_WINOGRAD_STAGING, barriers + 8 * (49 + group * PIECES_BARRIERS)};
    }
};

/* ---- jobs: two tiles of a pair of blocks ---- */

CONV_DEVICE int first_job() {
    return blockIdx.x / DVK_WINOGRAD_PAIR;
}

CONV_DEVICE int job_step() {
    return gridDim.x / DVK_WINOGRAD_PAIR;
}

/* phase: the column of a quad that is stored. */
CONV_DEVICE conv_tile winograd_tile(const dvk_conv_winograd &of, int job, int rank, int group, int phase) {
    const dvk_conv_wgmma &p = of.c;
    conv_tile t;
    const int both = job / p.blocks, at = both * DVK_WINOGRAD_PAIR + group, row = at / p.tiles_x;
    t.phase = phase;
    t.c0 = (job - both * p.blocks) * 128 + rank * 64;
    t.x0 = (at - row * p.tiles_x) * DVK_WINOGRAD_TILE_W;
    t.n = row / of.tiles;
    const int of_picture = of.first + row - t.n * of.tiles, skipped = t.n * (p.tiles_y - of.tiles) + of.first;
    t.y0 = of_picture * DVK_WINOGRAD_TILE_H;
    t.chunk = at + skipped * p.tiles_x;
    return t;
}

/* ---- the third warpgroup ---- */

/* One thread loads the weights of all jobs, another one the patches: a single thread is too slow. Weights do not depend
 * on the preceding launch. */
CONV_DEVICE void bring_weights(const dvk_conv_wgmma &p, const layout &at, int rank) {
    const int per_job = p.chunks * p.taps;
    ring w;
    for (int job = first_job(); job < p.jobs; job += job_step()) {
        const unsigned char *from = p.w + (int64_t)(job % p.blocks) * per_job * DVK_WINOGRAD_TAP + rank * DVK_WGMMA_TAP;
        for (int tap = 0; tap < per_job; tap++, from += DVK_WINOGRAD_TAP) {
            const uint32_t full = at.w_full(w.slot);
            barrier_wait(at.w_empty(w.slot), w.parity ^ 1);
            barrier_expect(full, DVK_WGMMA_TAP);
            copy_bulk(at.w + w.slot * DVK_WGMMA_TAP, from, DVK_WGMMA_TAP, full);
            w.advance(p.w_slots);
        }
    }
}

/* For the tile of warpgroup `rank` of both blocks, loads line 1 of all chunks, then 2, 3, 4, 0 and 5. The consumers
 * have set the expected bytes of their barriers. */
CONV_DEVICE void bring_patches(const dvk_conv_winograd &of, const layout &at, int rank) {
    const dvk_conv_wgmma &p = of.c;
    ring x;
    wait_for_launch_before();
    for (int job = first_job(); job < p.jobs; job += job_step()) {
        const conv_tile t = winograd_tile(of, job, rank, rank, 0);
#pragma unroll 1
        for (int i = 0, line = 1, chunk = 0; i < DVK_WINOGRAD_LINES * p.chunks; i++) {
            barrier_wait(at.x_empty(rank, x.slot), x.parity ^ 1);
            copy_in_to_both(at.patch(p, rank, x.slot), &of.line[line], chunk * DVK_WGMMA_CHUNK, t.x0,
                            t.y0 - 1 - of.from, t.n, at.x_full(rank, x.slot));
            x.advance(p.x_slots);
            if (++chunk == p.chunks) {
                chunk = 0;
                line = line == 4 ? 0 : line == 0 ? 5 : line + 1;
            }
        }
    }
}

/* Statistics of the tiles of warpgroup `group`, whose sets are stored in the order 1, 0, 2, 3. */
template <class T> CONV_DEVICE void count(const dvk_conv_winograd &of, const layout &at, int rank, int group) {
    const dvk_conv_wgmma &p = of.c;
    const way_out_places from = at.places(group);
    uint32_t parity = 0;
    for (int job = first_job(); job < p.jobs; job += job_step()) {
        const conv_tile t = winograd_tile(of, job, rank, group, 0);
        counter all;
#pragma unroll 1
        for (int set = 0; set < DVK_WINOGRAD_PIXELS; set++, parity ^= 1) {
            const int phase = set < 2 ? 1 - set : set,
                      columns = (of.width + DVK_WINOGRAD_PIXELS - 1 - phase) / DVK_WINOGRAD_PIXELS;
            const int wide = min(columns - t.x0, DVK_WINOGRAD_TILE_W);
#pragma unroll 1
            for (int i = 0; i < PIECES; i++) {
                const uint32_t piece = from.at + i * DVK_WINOGRAD_PIECE;
                barrier_wait(from.is_written(i), parity);
                if (set == 0 && i == 0) {
                    all.begin<T>(piece, p.epi.group_channels);
                }
                all.add<T>(piece, wide, min(p.out_h - t.y0 - i * DVK_WINOGRAD_PIECE_H, DVK_WINOGRAD_PIECE_H));
            }
            __syncwarp();
            if ((threadIdx.x & 31) == 0) {
                barrier_arrive(from.are_counted());
            }
        }
        all.finish(p, t);
    }
}

/* ---- the other two ---- */

/* Converts M1 .. M4 to their contributions to the four pixels of a quad: the points are +-3/4 and +-3/2. */
CONV_DEVICE void mix(float &a, float &b, float &c, float &d) {
    const float s1 = a + b, d1 = a - b, s2 = c + d, d2 = c - d;
    a = s1 + s2;
    b = fmaf(1.5f, d2, 0.75f * d1);
    c = fmaf(2.25f, s2, 0.5625f * s1);
    d = fmaf(3.375f, d2, 0.421875f * d1);
}

CONV_DEVICE void clear(float (&set)[SET]) {
#pragma unroll
    for (int i = 0; i < SET; i++) {
        set[i] = 0;
    }
    wgmma_pin(set);
}

/* State of a warpgroup. `x_used`, `w_used`: slots that products in flight still read, -1: none. */
template <class T, int RES, bool COUNTED> struct consumer {
    const dvk_conv_winograd &of;
    const dvk_conv_wgmma &p;
    const layout at;
    int rank, group;
    way_out<RES, COUNTED> out;
    ring x, w;
    int x_used = -1, w_used = -1;
    int row = 0; /* of taps, of the patch */
    int tap = 0; /* completed rows of taps of this job */

    __device__ __forceinline__ consumer(const dvk_conv_winograd &c, const layout &l, int r, int g)
        : of(c), p(c.c), at(l), rank(r), group(g) {
        out = {at.places(group), group};
    }

    __device__ __forceinline__ void free_used() {
        const bool first = (threadIdx.x & 31) == 0;
        if (first && w_used >= 0) {
            barrier_arrive(at.w_empty(w_used));
        }
        if (first && x_used >= 0) {
            cluster_barrier_arrive(at.x_empty(group, x_used), group); /* the block that loads this warpgroup's tile */
        }
        x_used = w_used = -1;
    }

    /* The next rows of taps; all products before those of the last row are complete when it returns. */
    __device__ __forceinline__ void multiply(int rows, float (&sum)[SET]) {
#pragma unroll 1
        for (; rows > 0; rows--) {
            if (row == 0) {
                begin_patch();
            }
            barrier_wait(at.w_full(w.slot), w.parity);
            const uint64_t a = wgmma_operand(at.w + w.slot * DVK_WGMMA_TAP, 1024);
            const uint64_t b = wgmma_operand(at.patch(p, group, x.slot), 1024) + row * ROW_STEP;
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) {
                wgmma<wgmma_half, QUADS>(sum, a + 2 * k, b + 2 * k, 1);
            }
            wgmma_commit();
            wgmma_wait<1>();
            free_used();
            end_row();
        }
    }

    /* Waits for the patch. It then sets the expected bytes of the next one, because the other block may load it at any
     * time. */
    __device__ __forceinline__ void begin_patch() {
        const uint32_t full = at.x_full(group, x.slot);
        barrier_wait(full, x.parity);
        if ((threadIdx.x & 127) == 0) {
            barrier_expect(full, DVK_WINOGRAD_PATCH);
        }
    }

    __device__ __forceinline__ void end_row() {
        w_used = w.slot;
        w.advance(p.w_slots);
        if (++tap == p.lead && group == 0 && (threadIdx.x & 127) == 0) {
            barrier_arrive(at.turn());
        }
        if (++row == ROWS) {
            row = 0;
            x_used = x.slot;
            x.advance(p.x_slots);
        }
    }

    /* Waits for all products: only products may access a set while some are in flight. */
    template <class... Sets> __device__ __forceinline__ void settle(Sets &...sets) {
        wgmma_wait<0>();
        (wgmma_pin(sets), ...);
        free_used();
    }

    /* All channels and rows of taps of one product. */
    __device__ __forceinline__ void pass(float (&sum)[SET]) {
        multiply(ROWS * p.chunks, sum);
    }

    /* A pass, overlapped with the stores of set `phase` of `job`, if there is one; its last piece is stored at the end.
     * With few channels, pieces are stored directly after each other, because their residuals take time. With many,
     * they are a third of the pass apart. */
    __device__ __forceinline__ void pass_and_store(float (&sum)[SET], int job, int phase, float (&other)[SET],
                                                   bool real) {
        const conv_tile t = winograd_tile(of, job, rank, group, phase);
        const conv_channels channels(p.epi, t.c0 + (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x & 31) / 4);
        const int apart = p.chunks < MANY_CHUNKS ? 1 : p.chunks;
        multiply(1, sum);
        if (real) {
            out.bring_residuals(of, t);
        }
        multiply(ROWS * p.chunks - 1 - 2 * apart, sum);
        if (real) {
            out.template store<T, 0>(p, t, channels, other);
        }
        multiply(apart, sum);
        if (real) {
            out.template store<T, 1>(p, t, channels, other);
        }
        multiply(apart, sum);
        if (real) {
            out.template store<T, 2>(p, t, channels, other);
        }
    }

    /* A set of the last job. */
    __device__ __forceinline__ void store_last(int job, int phase, float (&set)[SET]) {
        const conv_tile t = winograd_tile(of, job, rank, group, phase);
        const conv_channels channels(p.epi, t.c0 + (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x & 31) / 4);
        out.bring_residuals(of, t);
        out.template store<T, 0>(p, t, channels, set);
        out.template store<T, 1>(p, t, channels, set);
        out.template store<T, 2>(p, t, channels, set);
    }
};

template <class T, int RES, bool COUNTED>
CONV_DEVICE void multiply(const dvk_conv_winograd &of, const layout &at, int rank, int group) {
    consumer<T, RES, COUNTED> all(of, at, rank, group);
    float a[SET], b[SET], c[SET], d[SET];
    uint32_t turn = 0;
    clear(c);
    clear(d);
    wait_for_launch_before();
    int job = first_job(), before = job;
    for (; job < of.c.jobs; before = job, job += job_step()) {
        all.tap = 0;
        if (group == 1) {
            barrier_wait(at.turn(), turn);
            turn ^= 1;
        }
        clear(a);
        all.pass_and_store(a, before, 2, c, job != before);
        all.settle(a, d);
        clear(b);
        all.pass_and_store(b, before, 3, d, job != before);
        all.settle(a, b);
        clear(c);
        clear(d);
        all.pass(c);
        all.pass(d);
        all.settle(a, b, c, d);
#pragma unroll
        for (int i = 0; i < SET; i++) {
            mix(a[i], b[i], c[i], d[i]);
        }
        all.settle(a, b, c, d); /* at once: there are no registers to do the rest later */
        all.pass_and_store(a, job, 1, b, true);
        all.settle(a, c, d);
        all.pass_and_store(d, job, 0, a, true);
        all.settle(c, d);
    }
    if (first_job() < of.c.jobs) {
        all.store_last(before, 2, c);
        all.store_last(before, 3, d);
    }
    if ((threadIdx.x & 127) == 0) {
        copy_out_done();
    }
}

template <class T, int RES, bool COUNTED> CONV_DEVICE void convolve(const dvk_conv_winograd &of) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const dvk_conv_wgmma &p = of.c;
    const layout at(p, (uint32_t)__cvta_generic_to_shared(shared));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const int rank = (int)cluster_rank();
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.x_slots; i++) {
            for (int g = 0; g < 2; g++) {
                barrier_init(at.x_full(g, i), 1);
                barrier_init(at.x_empty(g, i), 8); /* warps of both blocks */
            }
        }
        for (int i = 0; i < p.w_slots; i++) {
            barrier_init(at.w_full(i), 1);
            barrier_init(at.w_empty(i), 8);
        }
        barrier_init(at.turn(), 1);
        for (int i = 0; i < 2 * PIECES_BARRIERS; i++) {
            barrier_init(at.places(0).barriers + 8 * i, 1);
        }
        for (int i = 0; i < 2 * p.x_slots; i++) {
            barrier_expect(at.x_full(i / p.x_slots, i % p.x_slots), DVK_WINOGRAD_PATCH);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        map_prefetch(&of.line[1]);
    }
    __syncthreads();
    cluster_meet(); /* the barriers must exist before any block loads patches to them */
    let_next_launch_begin();
    if (group == 2) {
        set_registers_down<HELPER_REGISTERS>();
        if (threadIdx.x == 256) {
            bring_weights(p, at, rank);
        } else if (threadIdx.x == 288) {
            bring_patches(of, at, rank);
        } else if (COUNTED && threadIdx.x >= 320) {
            count<T>(of, at, rank, (int)threadIdx.x / 32 - 10);
        }
    } else {
        set_registers_up<CONSUMER_REGISTERS>();
        multiply<T, RES, COUNTED>(of, at, rank, group);
    }
    __syncwarp();
    cluster_meet(); /* the shared memory must exist until all loads have arrived */
}

} // namespace

#define CONV_WINOGRAD(name, type, res, counted)                                                                        \
    extern "C" __global__ void __launch_bounds__(DVK_WGMMA_THREADS, 1)                                                 \
        name(const __grid_constant__ dvk_conv_winograd p) {                                                            \
        convolve<type, res, counted>(p);                                                                               \
    }

CONV_WINOGRAD(conv_winograd_f16, wgmma_half, 0, false)
CONV_WINOGRAD(conv_winograd_f16_add, wgmma_half, 1, false)
CONV_WINOGRAD(conv_winograd_f16_count, wgmma_half, 0, true)
CONV_WINOGRAD(conv_winograd_f16_add_count, wgmma_half, 1, true)
CONV_WINOGRAD(conv_winograd_bf16, wgmma_bfloat, 0, false)
CONV_WINOGRAD(conv_winograd_bf16_add, wgmma_bfloat, 1, false)
CONV_WINOGRAD(conv_winograd_bf16_count, wgmma_bfloat, 0, true)
CONV_WINOGRAD(conv_winograd_bf16_add_count, wgmma_bfloat, 1, true)
