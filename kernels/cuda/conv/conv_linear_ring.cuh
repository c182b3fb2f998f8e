// conv_linear_ring.cuh - shared memory of conv_linear_sm90.cu and its producer, which loads the weights once and then
// tiles of pixels through a ring buffer.
#pragma once

#include "kernels/cuda/conv/conv_linear.h"
#include "kernels/cuda/conv/conv_wgmma_epilogue.cuh"

enum { ROWS = DVK_LINEAR1_ROWS, SLOT = DVK_LINEAR1_SLOT };

template <int WIDTH> struct layout { // shared memory addresses
    enum {
        WHOLE = WIDTH / 64,
        LAST = WIDTH % 64,
        OUT_BYTES = WHOLE * ROWS * 128 + (ROWS * LAST * 2 + 1023) / 1024 * 1024,
        WARP_PIECE = 16 * 128 // of a warp's sixteen pixels
    };
    uint32_t w, x, out, bias, barriers;
    __device__ __forceinline__ layout(const dvk_conv_linear &p, uint32_t base) {
        w = base;
        x = w + p.chunks * WIDTH * 128;
        out = x + p.slots * SLOT;
        bias = out + 2 * OUT_BYTES;
        barriers = bias + WIDTH * 4;
    }
    __device__ __forceinline__ uint32_t full(int i) const {
        return barriers + 8 * i;
    }
    __device__ __forceinline__ uint32_t empty(int i) const {
        return barriers + 8 * (DVK_LINEAR1_MAX_SLOTS + i);
    }
    __device__ __forceinline__ uint32_t residual(int warp) const {
        return barriers + 8 * (2 * DVK_LINEAR1_MAX_SLOTS + warp);
    }
    __device__ __forceinline__ uint32_t weights() const {
        return residual(8);
    }
    // Barrier of a warpgroup: the other one has waited for everything ahead in the ring.
    __device__ __forceinline__ uint32_t turn(int group) const {
        return residual(9 + group);
    }
    // Piece i of a warp's results: 64 channels each, the last of LAST
    __device__ __forceinline__ uint32_t piece(int warp, int i) const {
        const uint32_t of_group = out + warp / 4 * OUT_BYTES + i * ROWS * 128;
        return of_group + warp % 4 * (i < WHOLE ? (int)WARP_PIECE : LAST * 32);
    }
};

struct ring {
    int slot = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance(int slots, int by = 1) {
        slot += by;
        while (slot >= slots) {
            slot -= slots;
            parity ^= 1;
        }
    }
};

__device__ __forceinline__ int first_tile(const dvk_conv_linear &p) {
    return blockIdx.x / p.slices;
}

__device__ __forceinline__ int tile_step(const dvk_conv_linear &p) {
    return gridDim.x / p.slices;
}

template <int WIDTH> __device__ __forceinline__ void bring(const dvk_conv_linear &p, const layout<WIDTH> &at) {
    const int bytes = WIDTH * 128;
    const unsigned char *w = p.w + (int64_t)(blockIdx.x % p.slices) * p.chunks * bytes;
    barrier_expect(at.weights(), p.chunks * bytes);
    for (int i = 0; i < p.chunks; i++) {
        copy_bulk(at.w + i * bytes, w + i * bytes, bytes, at.weights());
    }
    wait_for_launch_before();
    ring r;
    for (int t = first_tile(p); t < p.tiles; t += tile_step(p)) {
        for (int chunk = 0; chunk < p.chunks; chunk++) {
            barrier_wait(at.empty(r.slot), r.parity ^ 1);
            barrier_expect(at.full(r.slot), SLOT);
            copy_in(at.x + r.slot * SLOT, &p.x, chunk * 64, t * ROWS, 0, 0, at.full(r.slot));
            r.advance(p.slots);
        }
    }
}
