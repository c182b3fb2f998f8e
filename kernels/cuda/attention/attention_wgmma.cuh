// attention_wgmma.cuh - division of work, shared memory and copies of attention_wgmma_sm90.cu.
#pragma once

#include "kernels/cuda/attention/attention_common.cuh"
#include "kernels/cuda/attention/attention_wgmma.h"
#include "kernels/cuda/attention/attention_wgmma_ptx.cuh"

namespace attention {

using namespace hopper;

enum {
    DIM = DVK_ATTENTION_WGMMA_DIM,
    ROWS = DVK_ATTENTION_WGMMA_ROWS,
    KEYS = DVK_ATTENTION_WGMMA_KEYS,
    STAGES = DVK_ATTENTION_WGMMA_STAGES,
    STAGE = DVK_ATTENTION_WGMMA_STAGE,
    MINE = KEYS / 2, // keys whose scores this block computes
    HALF = DIM / 2,  // channels that it sums
    BOX = 64,        // elements of a swizzled row
    Q_BOX = 64 * BOX * 2,
    V_ROWS = 32, // keys of a stage
    V_BOX = V_ROWS * BOX * 2
};

struct layout { // shared memory addresses
    uint32_t base;
    __device__ __forceinline__ uint32_t ring(int stage) const {
        return base + DVK_ATTENTION_WGMMA_RING + stage * STAGE;
    }
    __device__ __forceinline__ uint32_t inbox(int warp) const {
        return base + DVK_ATTENTION_WGMMA_INBOX + warp * DVK_ATTENTION_WGMMA_INBOX_BYTES;
    }
    __device__ __forceinline__ uint32_t totals(int warp) const {
        return base + DVK_ATTENTION_WGMMA_TOTALS + warp * DVK_ATTENTION_WGMMA_TOTALS_BYTES;
    }
    __device__ __forceinline__ uint32_t barrier(int i) const {
        return base + DVK_ATTENTION_WGMMA_BARRIERS + i * 8;
    }
    __device__ __forceinline__ uint32_t full(int stage) const {
        return barrier(stage);
    }
    __device__ __forceinline__ uint32_t empty(int stage) const {
        return barrier(STAGES + stage);
    }
    __device__ __forceinline__ uint32_t arrived(int warp) const {
        return barrier(2 * STAGES + warp);
    } // inbox is full
    __device__ __forceinline__ uint32_t taken(int warp) const {
        return barrier(2 * STAGES + 8 + warp);
    } // the peer's inbox is empty
    __device__ __forceinline__ uint32_t added(int warp) const {
        return barrier(2 * STAGES + 16 + warp);
    } // totals have arrived
    __device__ __forceinline__ uint32_t queries_full() const {
        return barrier(2 * STAGES + 24);
    }
    __device__ __forceinline__ uint32_t queries_empty() const {
        return barrier(2 * STAGES + 25);
    }
};

__device__ __forceinline__ int begin_of(const dvk_attention_wgmma_params &p, int pair) {
    return (int)((int64_t)pair * p.total_steps / p.pairs);
}

struct segment { // part of one unit that a pair of blocks processes
    int unit, first, steps;
    __device__ __forceinline__ segment(const dvk_attention_wgmma_params &p, int at, int end) {
        unit = at / p.steps;
        first = at % p.steps;
        steps = end - at < p.steps - first ? end - at : p.steps - first;
    }
    __device__ __forceinline__ int row0(const dvk_attention_wgmma_params &p) const {
        return unit % p.blocks * ROWS;
    }
    __device__ __forceinline__ int head(const dvk_attention_wgmma_params &p) const {
        return unit / p.blocks % p.heads;
    }
    __device__ __forceinline__ int picture(const dvk_attention_wgmma_params &p) const {
        return unit / p.blocks / p.heads;
    }
};

struct ring_place {
    int stage = 0;
    uint32_t phase = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// The producer: one thread of its warp
struct producer {
    const void *q, *k, *v;
    layout at;
    int side; // block of the pair
    ring_place r;

    __device__ __forceinline__ void open_stage() {
        barrier_wait(at.empty(r.stage), r.phase ^ 1);
        barrier_expect(at.full(r.stage), STAGE);
    }

    __device__ __forceinline__ void keys(int channel, int token, int picture) {
#pragma unroll 1
        for (int c = 0; c < DIM; c += 2 * BOX, r.next()) {
            open_stage();
            for (int i = 0; i < 2; i++) {
                copy_box(at.ring(r.stage) + i * Q_BOX, k, channel + c + i * BOX, token + side * MINE, picture,
                         at.full(r.stage));
            }
        }
    }

    // The keys of this block come first: their exponentials are local.
    __device__ __forceinline__ void values(int channel, int token, int picture) {
#pragma unroll 1
        for (int i = 0; i < KEYS; i += V_ROWS, r.next()) {
            open_stage();
            for (int c = 0; c < HALF / BOX; c++) {
                copy_box(at.ring(r.stage) + c * V_BOX, v, channel + side * HALF + c * BOX, token + (side * MINE ^ i),
                         picture, at.full(r.stage));
            }
        }
    }

    __device__ __forceinline__ void run(const dvk_attention_wgmma_params &p, int t, int end) {
        for (uint32_t phase = 1; t < end; phase ^= 1) {
            const segment s(p, t, end);
            const int channel = s.head(p) * DIM, picture = s.picture(p);
            barrier_wait(at.queries_empty(), phase);
            barrier_expect(at.queries_full(), ROWS * DIM * 2);
#pragma unroll 1
            for (int i = 0; i < 2 * DIM / BOX; i++) {
                copy_box(at.base + i * Q_BOX, q, channel + i % (DIM / BOX) * BOX, s.row0(p) + i / (DIM / BOX) * 64,
                         picture, at.queries_full());
            }
            keys(channel, s.first * KEYS, picture);
#pragma unroll 1
            for (int i = 1; i <= s.steps; i++) {
                if (i < s.steps) {
                    keys(channel, (s.first + i) * KEYS, picture);
                }
                values(channel, (s.first + i - 1) * KEYS, picture);
            }
            t += s.steps;
        }
    }
};

} // namespace attention
