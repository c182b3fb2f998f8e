/* conv_made.cuh - the 3 x 3 to 64 channels of a kernel that makes its patches of input itself (up_conv): two
 * warpgroups take turns at a tile each, and have a slot for its patch each, while a third fills them. */
#ifndef DVK_CUDA_CONV_MADE_CUH
#define DVK_CUDA_CONV_MADE_CUH

#include "kernels/cuda/conv_wgmma_tile.cuh"

namespace {

enum { MADE_CONSUMER_REGISTERS = 192, MADE_HELPER_REGISTERS = 120, MADE_HELPERS = 128, MADE_TAPS = 9 };
enum { MADE_AHEAD = 1 }; /* products that may be under way when the next begins */

struct made_layout { /* of shared memory, addresses; slots and weights at multiples of 1024 */
    uint32_t slots, slot_bytes, w, out, barriers;
    __device__ __forceinline__ uint32_t slot(int group) const {
        return slots + group * slot_bytes;
    }
    __device__ __forceinline__ uint32_t ready(int group) const {
        return barriers + 8 * group;
    }
    __device__ __forceinline__ uint32_t empty(int group) const {
        return barriers + 8 * (2 + group);
    }
    __device__ __forceinline__ uint32_t turn(int group) const {
        return barriers + 8 * (4 + group);
    }
    /* For whoever fills the slots. */
    __device__ __forceinline__ uint32_t landed(int group) const {
        return barriers + 8 * (6 + group);
    }
    __device__ __forceinline__ void init_barriers() const {
        for (int i = 0; i < 2; i++) {
            barrier_init(ready(i), MADE_HELPERS);
            barrier_init(empty(i), 4);
            barrier_init(turn(i), 1);
            barrier_init(landed(i), 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
};

/* [tap][64 rows][64], rows swizzled, of which the first CHANNELS columns count. */
template <class T, int CHANNELS> CONV_DEVICE void load_taps(const float *w, int c_out, uint32_t to) {
    enum { OCTETS = CHANNELS / 8 };
    for (int i = threadIdx.x; i < 64 * OCTETS * MADE_TAPS; i += DVK_WGMMA_THREADS) {
        const int tap = i % MADE_TAPS, octet = i / MADE_TAPS % OCTETS, row = i / MADE_TAPS / OCTETS;
        const float *from = w + (row * CHANNELS + octet * 8) * MADE_TAPS + tap;
        uint32_t u[4] = {};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (row < c_out) {
                u[k] = T::pack(__ldg(from + 2 * k * MADE_TAPS), __ldg(from + (2 * k + 1) * MADE_TAPS));
            }
        }
        shared_store(to + tap * DVK_WGMMA_TAP + row * 128 + ((octet ^ (row & 7)) * 16),
                     make_uint4(u[0], u[1], u[2], u[3]));
    }
}

/* A warpgroup's tiles, from patches of `width` pixels a row, 16 * K16 channels. */
template <class T, int K16, int WIDTH>
CONV_DEVICE void multiply_made(const dvk_conv_wgmma &p, const made_layout &at, int group) {
    const int thread = threadIdx.x & 127;
    output_ring out = {at.out + group * p.entries * p.entry_bytes, 0, group};
    const uint64_t patch = wgmma_operand(at.slot(group), WIDTH * 128), w = wgmma_operand(at.w, 1024);
    int jobs = 0;
    wait_for_launch_before();
    for (int job = blockIdx.x; job < p.jobs; job += gridDim.x, jobs++) {
        const conv_tile t = tile_of(p, job, group);
        float sum[128];
#pragma unroll
        for (int i = 0; i < 128; i++) {
            sum[i] = 0;
        }
        wgmma_pin(sum);
        if (group == 1) {
            barrier_wait(at.turn(1), jobs & 1);
        } else if (jobs > 0) {
            barrier_wait(at.turn(0), (jobs - 1) & 1);
        }
        barrier_wait(at.ready(group), jobs & 1);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < MADE_TAPS * K16; i++) {
            const int tap = i / K16, k = i % K16;
            wgmma<T, 256>(sum, w + tap * (DVK_WGMMA_TAP / 16) + 2 * k, patch + (tap / 3 * WIDTH + tap % 3) * 8 + 2 * k,
                          1);
            wgmma_commit();
            if (i == MADE_TAPS * K16 - 1 && thread == 0) {
                barrier_arrive(at.turn(1 - group)); /* whose products follow without a gap */
            }
            wgmma_wait<MADE_AHEAD>(); /* those of the third warpgroup wait behind what is under way */
        }
        wgmma_wait<0>();
        wgmma_pin(sum);
        if ((thread & 31) == 0) {
            barrier_arrive(at.empty(group));
        }
        conv_sums none(0, 0, 0);
        out.write<T, DVK_WGMMA_SLOPE, 0, COUNT_NONE>(p, t, thread, sum, none);
    }
    if (thread == 0) {
        copy_out_done();
    }
}

/* d[64][N] += a[64][16] * b[N][16]^T, a in registers, sixteen rows a warp. It waits behind one product of the others at
 * most, where each small one of mma.sync does. */
template <class T> CONV_DEVICE void made_product(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
    wgmma_64<T>(d, a, b, 1);
}

} // namespace

#endif
