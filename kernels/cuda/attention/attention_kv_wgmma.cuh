// attention_kv_wgmma.cuh - shared memory, segments of a block and copies of attention_kv_wgmma_sm90.cu.
#pragma once

#include "kernels/cuda/attention/attention_kv.cuh"
#include "kernels/cuda/attention/attention_kv_wgmma.h"
#include "kernels/cuda/attention/attention_kv_wgmma_ptx.cuh"

namespace attention {

using namespace hopper;

enum {
    ROWS = DVK_ATTENTION_KV_WGMMA_ROWS,
    KEYS = DVK_ATTENTION_KV_WGMMA_KEYS,
    BOX = DVK_ATTENTION_KV_WGMMA_BOX,
    STAGES = DVK_ATTENTION_KV_WGMMA_STAGES,
    TILE = DVK_ATTENTION_KV_WGMMA_TILE,
    WARPS = 8 // that compute
};

// Depth outermost: 64 contiguous columns, the next 64 one tile further.
__device__ __forceinline__ uint64_t columns(uint32_t address) {
    return (uint64_t)(address >> 4) | (uint64_t)(TILE >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

__device__ __forceinline__ void copy_box(uint32_t to, const void *map, int channel, int row, int head,
                                         uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
                 "%4}], [%5];" ::"r"(to),
                 "l"(map), "r"(channel), "r"(row), "r"(head), "r"(barrier)
                 : "memory");
}

template <int PIECES> struct layout { // shared memory addresses
    uint32_t base;
    __device__ __forceinline__ uint32_t queries(int group) const {
        return base + group * PIECES * (TILE / 2);
    }
    // ring 0: keys, 1: values
    __device__ __forceinline__ uint32_t tile(int ring, int stage) const {
        return base + (1 + ring * STAGES + stage) * PIECES * TILE;
    }
    __device__ __forceinline__ uint32_t full(int ring, int stage) const {
        return base + (1 + 2 * STAGES) * PIECES * TILE + (ring * STAGES + stage) * 8;
    }
    __device__ __forceinline__ uint32_t empty(int ring, int stage) const {
        return full(2 + ring, stage);
    }
};

struct place { // in a ring
    int stage = 0;
    uint32_t phase = 0;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// Queries of a block that belong to one sequence, and the keys that any of them sees
struct segment {
    int from_row, to_row, sequence, bound, start, end, steps;

    __device__ __forceinline__ segment(const dvk_attention_kv_params &p, int begin, int rows, int row) {
        from_row = row;
        to_row = p.in.sequence == nullptr ? rows : row + 1;
        sequence = sequence_of(p.in, begin + row);
        while (to_row < rows && sequence_of(p.in, begin + to_row) == sequence) {
            to_row++;
        }
        bound = bound_before(p, begin + from_row);
        start = visible(p, begin + from_row, bound).first; // both rise from row to row
        start = p.in.table != nullptr ? start / BOX * BOX : start;
        end = visible(p, begin + to_row - 1, bound).last;
        steps = (end - start + KEYS - 1) / KEYS;
    }
};

// The producer warp
template <int PIECES> struct producer {
    const dvk_attention_kv_params &p;
    const layout<PIECES> at;
    const void *maps[2];
    const int kv;
    place places[2];

    __device__ __forceinline__ void copy(int ring, const segment &s, int step) {
        place &r = places[ring];
        barrier_wait(at.empty(ring, r.stage), r.phase ^ 1);
        const int key = s.start + step * KEYS;
        const int row = (int)paged_row(p.in, s.sequence, key);
        // keys beyond the end are masked later, and there may be no page for them
        const int more = key + BOX < s.end ? (int)paged_row(p.in, s.sequence, key + BOX) : row;
        if (threadIdx.x == 0) {
            barrier_expect(at.full(ring, r.stage), PIECES * TILE);
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                const uint32_t to = at.tile(ring, r.stage) + i * TILE;
                copy_box(to, maps[ring], i * 64, row, kv, at.full(ring, r.stage));
                copy_box(to + TILE / 2, maps[ring], i * 64, more, kv, at.full(ring, r.stage));
            }
        }
        __syncwarp();
        r.next();
    }

    __device__ __forceinline__ void run(int begin, int rows) {
        for (int row = 0; row < rows;) {
            const segment s(p, begin, rows, row);
            copy(0, s, 0);
            for (int j = 1; j <= s.steps; j++) {
                if (j < s.steps) {
                    copy(0, s, j);
                }
                copy(1, s, j - 1);
            }
            row = s.to_row;
        }
    }
};

} // namespace attention
