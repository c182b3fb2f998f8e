/* conv_down_sm90.cu - a 3 x 3 convolution from 32 channels to 64 and the following 2 x 2 convolution with stride 2 in
 * one kernel. The output buffer of a tile in shared memory is ordered by parities of rows and columns. There the pixels
 * are also the operands of the second product. */
#include "kernels/cuda/conv/conv_down.h"
#include "kernels/cuda/conv/conv_wgmma_tile.cuh"

namespace {

enum { CONSUMER_REGISTERS = 192, HELPER_REGISTERS = 120, TAPS = 9, K16 = DVK_DOWN_IN / 16 };
enum { LEAD = TAPS - 2 }; /* the other warpgroup starts after this many taps */

struct down_layout { /* shared memory addresses */
    uint32_t out, w_down, w, slots, barriers;
    __device__ __forceinline__ down_layout(uint32_t base)
        : out(base), w_down(out + 2 * 4 * DVK_DOWN_PARITY), w(w_down + DVK_DOWN_WEIGHTS),
          slots(w + TAPS * DVK_DOWN_TAP), barriers(slots + DVK_DOWN_SLOTS * DVK_DOWN_SLOT) {
    }
    __device__ __forceinline__ uint32_t slot(int i) const {
        return slots + i * DVK_DOWN_SLOT;
    }
    __device__ __forceinline__ uint32_t full(int slot) const {
        return barriers + 8 * slot;
    }
    __device__ __forceinline__ uint32_t empty(int slot) const {
        return barriers + 8 * (DVK_DOWN_SLOTS + slot);
    }
    __device__ __forceinline__ uint32_t turn(int group) const {
        return barriers + 8 * (2 * DVK_DOWN_SLOTS + group);
    }
    __device__ __forceinline__ void init_barriers() const {
        for (int i = 0; i < DVK_DOWN_SLOTS; i++) {
            barrier_init(full(i), 1);
            barrier_init(empty(i), 4);
        }
        barrier_init(turn(0), 1);
        barrier_init(turn(1), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
};

/* Rows of 64 bytes with the 64-byte swizzle; groups of eight rows are `group` bytes apart. */
CONV_DEVICE uint64_t operand_of_64(uint32_t at, uint32_t group) {
    return (uint64_t)(at >> 4) | 1ull << 16 | (uint64_t)(group >> 4) << 32 | 2ull << 62;
}

/* Eight weights of one tap: channels from `octet` * 8 on of an output channel with `channels` by `taps` weights. */
template <class T> CONV_DEVICE uint4 eight_of(const float *w, int row, int octet, int channels, int taps, int tap) {
    const float *from = w + (row * channels + octet * 8) * taps + tap;
    uint32_t u[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u[k] = T::pack(__ldg(from + 2 * k * taps), __ldg(from + (2 * k + 1) * taps));
    }
    return make_uint4(u[0], u[1], u[2], u[3]);
}

/* [tap][64 rows][32] and [parity][64 rows][64], rows swizzled. */
template <class T> CONV_DEVICE void load_weights(const dvk_conv_down &p, const down_layout &at) {
    for (int i = threadIdx.x; i < TAPS * 64 * 4; i += DVK_WGMMA_THREADS) {
        const int tap = i % TAPS, octet = i / TAPS % 4, row = i / TAPS / 4;
        shared_store(at.w + tap * DVK_DOWN_TAP + row * 64 + ((octet ^ (row >> 1 & 3)) * 16),
                     eight_of<T>(p.w, row, octet, DVK_DOWN_IN, TAPS, tap));
    }
    for (int i = threadIdx.x; i < 4 * 64 * 8; i += DVK_WGMMA_THREADS) {
        const int parity = i % 4, octet = i / 4 % 8, row = i / 32;
        shared_store(at.w_down + parity * DVK_WGMMA_TAP + row * 128 + ((octet ^ (row & 7)) * 16),
                     eight_of<T>(p.w_down, row, octet, DVK_DOWN_CHANNELS, 4, parity));
    }
}

/* One thread: loads the patches of both warpgroups' tiles alternately. */
CONV_DEVICE void bring(const dvk_conv_down &p, const down_layout &at) {
    const int items = 2 * ((p.of.jobs - 1 - (int)blockIdx.x) / (int)gridDim.x + 1);
    wait_for_launch_before();
    for (int i = 0; i < items; i++) {
        const int slot = i % DVK_DOWN_SLOTS;
        const conv_tile t = tile_of(p.of, blockIdx.x + (i >> 1) * gridDim.x, i & 1);
        barrier_wait(at.empty(slot), (i / DVK_DOWN_SLOTS & 1) ^ 1);
        barrier_expect(at.full(slot), DVK_DOWN_COPY);
        copy_in(at.slot(slot), &p.of.x, 0, t.x0, t.y0, t.n, at.full(slot));
    }
}

/* Four sums of two channels: matrix q of a store has channels 8 * (q & 1). */
template <class T> CONV_DEVICE void bend_and_pack(const conv_channels &c, const float *sum, uint32_t (&m)[4]) {
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const float a = sum[2 * q] + c.bias[q & 1], b = sum[2 * q + 1] + c.bias[q & 1];
        m[q] = T::pack(a >= 0 ? a : c.slope[q & 1] * a, b >= 0 ? b : c.slope[q & 1] * b);
    }
}

struct way_out {
    const dvk_conv_down &p;
    uint32_t at; /* of the tile's pixels: [parity of row][of column][row / 2][column / 2] */
    int group;

    /* Waits until earlier writes have been stored. */
    __device__ __forceinline__ void free(int thread) const {
        if (thread == 0) {
            copy_out_read<0>();
        }
        named_barrier(1 + group, 128);
    }

    __device__ __forceinline__ void written() const {
        fence_async();
        named_barrier(1 + group, 128);
    }

    template <class T>
    __device__ __forceinline__ void whole(const conv_tile &t, int thread, const float (&sum)[128]) const {
        const int lane = thread & 31, warp = thread >> 5;
        const conv_channels channels(p.of.epi, warp * 16 + lane / 4);
        /* this lane's row of a store of four matrices: pixel lane % 8 of row 2 i + lane / 16 */
        const int x = (lane & 7) >> 1, octet = warp * 2 + (lane >> 3 & 1);
        const uint32_t mine = at + ((lane >> 4) * 2 + (lane & 1)) * DVK_DOWN_PARITY + x * 128;
        const uint32_t of[2] = {mine + ((octet ^ x) * 16), mine + ((octet ^ (4 + x)) * 16)};
        free(thread);
#pragma unroll
        for (int i = 0; i < DVK_WGMMA_TILE_H / 2; i++) {
            uint32_t m[4];
            bend_and_pack<T>(channels, sum + 8 * i, m);
            matrices_store_transposed(of[i & 1] + i * 4 * 128, m);
        }
        written();
        for (int parity = 0; parity < 4 && thread == 0; parity++) {
            copy_out(&p.of.y[parity], 0, t.x0 / 2, t.y0 / 2, t.n, at + parity * DVK_DOWN_PARITY);
        }
    }

    /* The second product; its result overwrites the first parity. */
    template <class T> __device__ __forceinline__ void halved(const conv_tile &t, int thread, uint64_t w) const {
        const int lane = thread & 31, warp = thread >> 5;
        const conv_channels channels(p.epi, warp * 16 + lane / 4);
        const uint64_t pixels = wgmma_operand(at, 1024);
        float d[32]; /* which the first product overwrites */
        wgmma_pin(d);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const int parity = i / 4, k = i % 4;
            wgmma<T, 64>(d, w + parity * (DVK_WGMMA_TAP / 16) + 2 * k, pixels + parity * (DVK_DOWN_PARITY / 16) + 2 * k,
                         i > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_pin(d);
        free(thread);
        const uint32_t mine =
            at + ((lane >> 4) * 8 + (lane & 7)) * 128 + (((warp * 2 + (lane >> 3 & 1)) ^ (lane & 7)) * 16);
#pragma unroll
        for (int i = 0; i < 4; i++) { /* sixteen pixels */
            uint32_t m[4];
            bend_and_pack<T>(channels, d + 8 * i, m);
            matrices_store_transposed(mine + i * 2048, m);
        }
        written();
        if (thread == 0) {
            copy_out(&p.z, 0, t.x0 / 2, t.y0 / 2, t.n, at);
        }
    }
};

template <class T> CONV_DEVICE void multiply(const dvk_conv_down &p, const down_layout &at, int group) {
    const int thread = threadIdx.x & 127;
    const way_out out = {p, at.out + group * 4 * DVK_DOWN_PARITY, group};
    const uint64_t w = operand_of_64(at.w, 512);
    int jobs = 0;
    wait_for_launch_before();
    for (int job = blockIdx.x; job < p.of.jobs; job += gridDim.x, jobs++) {
        const conv_tile t = tile_of(p.of, job, group);
        const int slot = group + 2 * (jobs & 1);
        const uint64_t patch = operand_of_64(at.slot(slot), DVK_DOWN_WIDTH * 64);
        float sum[128]; /* which the first product overwrites */
        wgmma_pin(sum);
        if (group == 1) {
            barrier_wait(at.turn(1), jobs & 1);
        } else if (jobs > 0) {
            barrier_wait(at.turn(0), (jobs - 1) & 1);
        }
        barrier_wait(at.full(slot), jobs >> 1 & 1);
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < K16; k++) {
                wgmma<T, 256>(sum, w + tap * (DVK_DOWN_TAP / 16) + 2 * k,
                              patch + (tap / 3 * DVK_DOWN_WIDTH + tap % 3) * 4 + 2 * k, tap + k > 0);
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (tap + 1 == LEAD && thread == 0) {
                barrier_arrive(at.turn(1 - group));
            }
        }
        wgmma_wait<0>();
        wgmma_pin(sum);
        if ((thread & 31) == 0) {
            barrier_arrive(at.empty(slot));
        }
        out.whole<T>(t, thread, sum);
        out.halved<T>(t, thread, wgmma_operand(at.w_down, 1024));
    }
    if (thread == 0) {
        copy_out_done();
    }
}

template <class T> CONV_DEVICE void convolve(const dvk_conv_down &p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const down_layout at((uint32_t)__cvta_generic_to_shared(shared));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        at.init_barriers();
        map_prefetch(&p.of.x);
    }
    load_weights<T>(p, at);
    fence_async();
    __syncthreads();
    let_next_launch_begin();
    if (group == 2) {
        set_registers_down<HELPER_REGISTERS>();
        if (threadIdx.x == 256) {
            bring(p, at);
        }
    } else {
        set_registers_up<CONSUMER_REGISTERS>();
        multiply<T>(p, at, group);
    }
}

} // namespace

#define DOWN_KERNEL(name, T)                                                                                           \
    extern "C" __global__ void __launch_bounds__(DVK_WGMMA_THREADS, 1) name(const __grid_constant__ dvk_conv_down p) { \
        convolve<T>(p);                                                                                                \
    }

DOWN_KERNEL(conv_down_f16, wgmma_half)
DOWN_KERNEL(conv_down_bf16, wgmma_bfloat)
