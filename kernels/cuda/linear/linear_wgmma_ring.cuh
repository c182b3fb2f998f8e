// linear_wgmma_ring.cuh - shared code of the kernels of "linear" on Hopper's tensor cores: shared memory as a ring
// buffer of stages, each 64 k of a tile's x and W; its producer; and the two warpgroups that process tiles alternately.
#pragma once

#include "kernels/cuda/linear/linear_wgmma_out.cuh"

enum { LINEAR_MANY_REGISTERS = 240, LINEAR_BRING_REGISTERS = 24, LINEAR_OUT_BYTES = 2 * (DVK_LINEAR_OUT + 1024) };

// BESIDES: bytes behind the ring for the output buffers and biases.
template <int BM, int BN, int BESIDES> struct layout { // of shared memory
    enum {
        X_BYTES = BM * 128,
        STEP = X_BYTES + BN * 128,
        FIT = (DVK_LINEAR_SHARED - DVK_LINEAR_BARRIERS - BESIDES) / STEP,
        SLOTS = FIT < 8 ? FIT : 8
    };
    const uint32_t base;
    __device__ __forceinline__ uint32_t x(int i) const {
        return base + i * STEP;
    }
    __device__ __forceinline__ uint32_t w(int i) const {
        return base + i * STEP + X_BYTES;
    }
    __device__ __forceinline__ uint32_t out(int group) const {
        return base + SLOTS * STEP + group * DVK_LINEAR_OUT;
    }
    __device__ __forceinline__ uint32_t biases(int group) const {
        return out(2) + group * 1024;
    }
    __device__ __forceinline__ uint32_t full(int i) const {
        return base + SLOTS * STEP + BESIDES + 8 * i;
    }
    __device__ __forceinline__ uint32_t empty(int i) const {
        return full(8 + i);
    }
    __device__ __forceinline__ uint32_t turn(int group) const {
        return full(16 + group);
    }
    // Arrivals that free a slot.
    __device__ __forceinline__ void begin(int arrivals) const {
        barrier_init(turn(0), 1);
        barrier_init(turn(1), 1);
        for (int i = 0; i < SLOTS; i++) {
            barrier_init(full(i), 1);
            barrier_init(empty(i), arrivals);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
};

template <int SLOTS> struct ring {
    int slot = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance() {
        if (++slot == SLOTS) {
            slot = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void advance(int by) {
        slot += by;
        parity ^= slot / SLOTS & 1;
        slot %= SLOTS;
    }
};

struct share { // a tile, and its range of steps of k
    int row, column, first, last;
};

// W of a step: halves of BN / 2 rows, `second` apart.
template <int BN>
HOPPER_DEVICE void bring_w(const dvk_linear_wgmma &p, const share &t, int step, uint32_t to, uint32_t full) {
    const int k = step * DVK_LINEAR_K;
    matrix_in(to, &p.w, k, t.column, full);
    matrix_in(to + BN * 64, &p.w, k, t.column + p.second, full);
}

// The very first steps: as much of W as the ring holds is loaded before the preceding launch has ended.
template <int BN, class L>
HOPPER_DEVICE int bring_first(const dvk_linear_wgmma &p, const L &at, const share &t, ring<L::SLOTS> &r) {
    const int ahead = min((int)L::SLOTS, t.last - t.first);
    if (!p.w_early) {
        wait_for_launch_before();
    }
    for (int i = 0; i < ahead; i++) {
        barrier_expect(at.full(i), L::STEP);
        bring_w<BN>(p, t, t.first + i, at.w(i), at.full(i));
    }
    wait_for_launch_before();
    for (int i = 0; i < ahead; i++) {
        matrix_in(at.x(i), &p.x, (t.first + i) * DVK_LINEAR_K, t.row, at.full(i));
        r.advance();
    }
    return ahead;
}

// Steps from `first` on of a tile; the ring continues from there.
template <int BN, class L>
HOPPER_DEVICE void bring(const dvk_linear_wgmma &p, const L &at, const share &t, int first, ring<L::SLOTS> &r) {
#pragma unroll 1
    for (int step = first; step < t.last; step++) {
        barrier_wait(at.empty(r.slot), r.parity ^ 1);
        const uint32_t full = at.full(r.slot);
        barrier_expect(full, L::STEP);
        bring_w<BN>(p, t, step, at.w(r.slot), full);
        matrix_in(at.x(r.slot), &p.x, step * DVK_LINEAR_K, t.row, full);
        r.advance();
    }
}

// Tile number i, ordered by groups along m for each n, so that concurrent blocks read W once.
template <int BN, bool GLU> HOPPER_DEVICE share tile_of(const dvk_linear_wgmma &p, int i) {
    const int stripe = i / (p.together * p.n_places), within = i - stripe * p.together * p.n_places;
    const int high = min(p.together, p.m_places - stripe * p.together);
    const int n = within / high, m = stripe * p.together + within - n * high;
    return {m * 128, n * (GLU ? BN / 2 : BN), 0, p.steps};
}

template <class L> HOPPER_DEVICE void free_slot(const L &at, int slot) {
    if ((threadIdx.x & 31) == 0) {
        barrier_arrive(at.empty(slot));
    }
}

// Multiplies rows from `row` on of a slot's x with all of its W: 64 k.
template <bool BF16, int BN, class L>
HOPPER_DEVICE void multiply_step(const L &at, int slot, int row, float (&sum)[BN / 2], int accumulate) {
    const uint64_t a = wgmma_operand(at.x(slot) + row * 128, 1024), b = wgmma_operand(at.w(slot), 1024);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        wgmma_product<BF16, BN>(sum, a + 2 * k, b + 2 * k, accumulate + k);
    }
}

// Processes every other tile of the block; group 0 has the first. A group waits at the ring only after the other group
// has seen its last stage filled, because a barrier wait can be at most one phase ahead.
template <bool BF16, bool GLU, class L>
HOPPER_DEVICE void multiply_in_turns(const dvk_linear_wgmma &p, const L &at, int group) {
    linear_outlet<128, GLU, 3> outlet(p, at.out(group), at.biases(group), group);
    ring<L::SLOTS> r;
    int tiles = group;
    r.advance(group * p.steps);
#pragma unroll 1
    for (int i = blockIdx.x + group * gridDim.x; i < p.m_places * p.n_places; i += 2 * gridDim.x) {
        const share t = tile_of<128, GLU>(p, i);
        const linear_spot upper = {t.row, t.column}, lower = {t.row + 64, t.column};
        float above[64], below[64];
        int used = -1;
        outlet.bring_bias(upper);
        if (tiles > 0) {
            barrier_wait(at.turn(group), (tiles - 1) & 1);
        }
        tiles++;
#pragma unroll 1
        for (int step = 0; step < p.steps; step++) {
            barrier_wait(at.full(r.slot), r.parity);
            if (step + 1 == p.steps && (threadIdx.x & 127) == 0) {
                barrier_arrive(at.turn(1 - group));
            }
            wgmma_fence();
            multiply_step<BF16, 128>(at, r.slot, 0, above, step);
            multiply_step<BF16, 128>(at, r.slot, 64, below, step);
            wgmma_commit();
            wgmma_wait<1>();
            if (used >= 0) {
                free_slot(at, used);
            }
            used = r.slot;
            r.advance();
        }
        outlet.prepare(upper);
        wgmma_wait<0>();
        wgmma_pin(above);
        wgmma_pin(below);
        free_slot(at, used);
        outlet.store(upper, above);
        outlet.prepare(lower);
        outlet.store(lower, below);
        r.advance(p.steps);
    }
}
