/* up_conv_sm90.cu - a transposed convolution of 2 x 2, an addition and a 3 x 3 convolution in one kernel. The addend is
 * loaded into the patch of the sum. Two warpgroups then add the upsampled pixels in place, each a half of them, one
 * parity of rows and columns after the other. */
#include "kernels/cuda/conv/conv_wgmma_tile.cuh"
#include "kernels/cuda/conv/up_conv.h"

namespace {

enum { CONSUMER_REGISTERS = 160, HELPER_REGISTERS = 96, HELPERS = 256, TAPS = 9 };
enum { AHEAD = 1 }; /* products that may be in flight when the next begins */

struct up_layout { /* shared memory addresses; slots and weights at multiples of 1024 */
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
    /* Barriers of the producer. */
    __device__ __forceinline__ uint32_t landed(int group) const {
        return barriers + 8 * (6 + group);
    }
    __device__ __forceinline__ void init_barriers() const {
        for (int i = 0; i < 2; i++) {
            barrier_init(ready(i), HELPERS);
            barrier_init(empty(i), 4);
            barrier_init(turn(i), 1);
            barrier_init(landed(i), 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
};

/* [tap][64 rows][64], rows swizzled, of which the first CHANNELS columns are used. */
template <class T, int CHANNELS> CONV_DEVICE void load_taps(const float *w, int c_out, uint32_t to) {
    enum { OCTETS = CHANNELS / 8 };
    for (int i = threadIdx.x; i < 64 * OCTETS * TAPS; i += DVK_UP_THREADS) {
        const int tap = i % TAPS, octet = i / TAPS % OCTETS, row = i / TAPS / OCTETS;
        const float *from = w + (row * CHANNELS + octet * 8) * TAPS + tap;
        uint32_t u[4] = {};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (row < c_out) {
                u[k] = T::pack(__ldg(from + 2 * k * TAPS), __ldg(from + (2 * k + 1) * TAPS));
            }
        }
        shared_store(to + tap * DVK_WGMMA_TAP + row * 128 + ((octet ^ (row & 7)) * 16),
                     make_uint4(u[0], u[1], u[2], u[3]));
    }
}

/* Computes a warpgroup's tiles, from patches of `width` pixels per row, 16 * K16 channels. */
template <class T, int K16, int WIDTH>
CONV_DEVICE void multiply(const dvk_conv_wgmma &p, const up_layout &at, int group) {
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
        for (int i = 0; i < TAPS * K16; i++) {
            const int tap = i / K16, k = i % K16;
            /* with 512 threads per register file, no instruction may have 128 accumulators */
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float(&d)[64] = *(float(*)[64])(sum + 64 * half);
                wgmma<T, 128>(d, w + tap * (DVK_WGMMA_TAP / 16) + 2 * k,
                              patch + ((tap / 3 + half * (DVK_WGMMA_TILE_H / 2)) * WIDTH + tap % 3) * 8 + 2 * k, 1);
            }
            wgmma_commit();
            if (i == TAPS * K16 - 1 && thread == 0) {
                barrier_arrive(at.turn(1 - group)); /* their products follow without a gap */
            }
            wgmma_wait<AHEAD>(); /* the other taps wait for earlier products */
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

enum {
    UP_H = DVK_UP_HEIGHT / 2, /* pixels of x that a tile reads */
    UP_W = DVK_UP_WIDTH / 2,
    UP_PIXELS = UP_H * UP_W,
    UP_PARITY = DVK_UP_WEIGHTS / 4 /* bytes */
};

/* [parity][64 rows][64], rows swizzled. A lane's eight adjacent input channels are its columns of two steps of the
 * product. The order of rows makes its results, two of every eight columns, twice eight adjacent channels. */
template <class T> CONV_DEVICE void load_up(const dvk_up_conv &p, uint32_t to) {
    for (int i = threadIdx.x; i < DVK_UP_WEIGHTS / 16; i += DVK_UP_THREADS) {
        const int octet = i % 8, row = i / 8 % 64, parity = i / 512;
        const int c = row / 32 * 32 + row % 8 / 2 * 8 + row / 8 % 4 * 2 + row % 2;
        const int in = octet / 4 * 32 + octet % 4 * 2;
        const float *from = p.w_up + (c * 4 + parity) * DVK_UP_CHANNELS + in;
        uint32_t u[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 v = __ldg((const float2 *)(from + k * 8));
            const float2 s = p.scale ? *(const float2 *)(p.scale + in + k * 8) : make_float2(1.0f, 1.0f);
            u[k] = T::pack(v.x * s.x, v.y * s.y);
        }
        shared_store(to + parity * UP_PARITY + row * 128 + ((octet ^ (row & 7)) * 16),
                     make_uint4(u[0], u[1], u[2], u[3]));
    }
}

/* The bias, [parity][channel]. */
CONV_DEVICE void load_bias(const dvk_up_conv &p, float *table) {
    for (int i = threadIdx.x; i < 4 * DVK_UP_CHANNELS; i += DVK_UP_THREADS) {
        table[i] = p.b_up ? p.b_up[i % DVK_UP_CHANNELS * 4 + i / DVK_UP_CHANNELS] : 0.0f;
    }
}

/* A pixel of x in a tile. */
struct up_place {
    int row, column;
    bool real;
    __device__ __forceinline__ up_place(int number)
        : row(number / UP_W), column(number - row * UP_W), real(number < UP_PIXELS) {
    }
};

/* The first of this lane's two of 64 pixels; the other is eight further. */
CONV_DEVICE int number_of(int block) {
    return block * 64 + (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x & 31) / 4;
}

CONV_DEVICE void load_pixels(const dvk_up_conv &p, const conv_tile &t, int block, uint32_t (&a)[4][4]) {
    const dvk_conv_view &v = p.of.from;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const up_place at(number_of(block) + 8 * i);
        const int y = t.y0 / 2 + at.row, x = t.x0 / 2 + at.column;
        const bool inside = at.real && y < p.of.in_h && x < p.of.in_w && t.n < p.of.n;
        const int64_t from = offset_of(v, t.n, y, x) + (threadIdx.x & 3) * 8;
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const uint4 u = load_octet(v, from + part * 32, inside);
            a[2 * part][i] = u.x, a[2 * part][2 + i] = u.y, a[2 * part + 1][i] = u.z, a[2 * part + 1][2 + i] = u.w;
        }
    }
}

/* The 64 pixels of one parity of rows and columns from 64 pixels of x. */
template <class T> struct enlarged {
    float d[32];

    __device__ __forceinline__ void begin(const float *bias, uint64_t w, const uint32_t (&a)[4][4]) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float2 b = *(const float2 *)(bias + i / 4 * 32 + (threadIdx.x & 3) * 8 + i % 4 * 2);
            d[4 * i] = d[4 * i + 2] = b.x, d[4 * i + 1] = d[4 * i + 3] = b.y;
        }
        wgmma_pin(d);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            wgmma_64<T>(d, a[k], w + 2 * k, 1);
        }
        wgmma_commit();
    }

    /* Adds to the values in the slot. */
    __device__ __forceinline__ void store(float slope, uint32_t slot, int block, int parity) {
        wgmma_pin(d);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const up_place at(number_of(block) + 8 * half);
            const int pixel = (2 * at.row + (parity >> 1)) * DVK_UP_WIDTH + 2 * at.column + (parity & 1);
#pragma unroll
            for (int group = 0; group < 2 && at.real; group++) {
                const uint32_t to = slot + pixel * 128 + (((group * 4 + (threadIdx.x & 3)) ^ (pixel & 7)) * 16);
                const uint4 u = shared_load(to);
                const uint32_t add[4] = {u.x, u.y, u.z, u.w};
                uint32_t out[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const float v = d[group * 16 + k * 4 + half * 2], w = d[group * 16 + k * 4 + half * 2 + 1];
                    const float2 r = T::unpack(add[k]);
                    out[k] = T::pack((v >= 0 ? v : slope * v) + r.x, (w >= 0 ? w : slope * w) + r.y);
                }
                shared_store(to, make_uint4(out[0], out[1], out[2], out[3]));
            }
        }
    }
};

/* Loads addends, tile after tile, into free slots. */
struct bringer {
    int next = 0, items;
    __device__ __forceinline__ void go(const dvk_up_conv &p, const up_layout &at, bool wait) {
        if (next >= items) {
            return;
        }
        const int group = next & 1;
        const uint32_t parity = (next >> 1 & 1) ^ 1;
        if (wait) {
            barrier_wait(at.empty(group), parity);
        } else if (!barrier_passed(at.empty(group), parity)) {
            return;
        }
        const conv_tile t = tile_of(p.of, blockIdx.x + (next >> 1) * gridDim.x, group);
        barrier_expect(at.landed(group), DVK_UP_COPY);
        copy_in(at.slot(group), &p.of.res[0], 0, t.x0, t.y0, t.n, at.landed(group));
        next++;
    }
};

/* Prefetches a tile's pixels of x into L2. */
CONV_DEVICE void announce(const dvk_up_conv &p, const conv_tile &t, int thread) {
    const int y = t.y0 / 2 + thread, x = t.x0 / 2, wide = min((int)UP_W, p.of.in_w - x);
    if (thread < UP_H && y < p.of.in_h && wide > 0 && t.n < p.of.n) {
        const int count = (wide - 1) * (int)p.of.from.sw + DVK_UP_CHANNELS;
        copy_bulk_ahead((const uint16_t *)p.of.from.data + offset_of(p.of.from, t.n, y, x), 2 * count);
    }
}

/* A warpgroup processes half of each tile's pixels of x. */
template <class T>
CONV_DEVICE void make_sums(const dvk_up_conv &p, const up_layout &at, uint32_t up, const float *bias, int thread) {
    const uint64_t w = wgmma_operand(up, 1024);
    const int half = __shfl_sync(0xffffffffu, thread / 128, 0);
    bringer b;
    b.items = 2 * ((p.of.jobs - 1 - (int)blockIdx.x) / (int)gridDim.x + 1);
    uint32_t a[4][4];
    load_pixels(p, tile_of(p.of, blockIdx.x, 0), half, a);
    for (int i = 0; i < b.items; i++) {
        const int group = i & 1;
        const conv_tile next = tile_of(p.of, blockIdx.x + ((i + 1) >> 1) * gridDim.x, (i + 1) & 1);
        announce(p, next, thread);
        while (thread == 0 && b.next <= i) {
            b.go(p, at, true);
        }
        barrier_wait(at.landed(group), i >> 1 & 1);
#pragma unroll
        for (int parity = 0; parity < 4; parity++) {
            if (thread == 0 && b.next <= i + 1) {
                b.go(p, at, false);
            }
            enlarged<T> of;
            of.begin(bias + parity * DVK_UP_CHANNELS, w + parity * (UP_PARITY / 16), a);
            wgmma_wait<0>();
            if (parity == 3) {
                load_pixels(p, next, half, a); /* while the last results are stored */
            }
            of.store(p.slope_up, at.slot(group), half, parity);
        }
        fence_async();
        barrier_arrive(at.ready(group));
    }
}

template <class T> CONV_DEVICE void convolve(const dvk_up_conv &p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    const uint32_t taps = base + 2 * DVK_UP_SLOT, up = taps + TAPS * DVK_WGMMA_TAP, out = up + DVK_UP_WEIGHTS;
    const uint32_t table = out + 2 * DVK_UP_ENTRIES * DVK_WGMMA_PIECE;
    const up_layout at = {base, DVK_UP_SLOT, taps, out, table + DVK_UP_TABLE};
    float *bias = (float *)(shared + (table - base));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        at.init_barriers();
        map_prefetch(&p.of.res[0]);
    }
    load_taps<T, DVK_UP_CHANNELS>(p.w, p.of.epi.c_out, taps);
    load_bias(p, bias);
    wait_for_launch_before(); /* the preceding launch writes the scales */
    load_up<T>(p, up);
    fence_async();
    __syncthreads();
    let_next_launch_begin();
    if (group >= 2) {
        set_registers_down<HELPER_REGISTERS>();
        make_sums<T>(p, at, up, bias, threadIdx.x - 256);
    } else {
        set_registers_up<CONSUMER_REGISTERS>();
        multiply<T, DVK_UP_CHANNELS / 16, DVK_UP_WIDTH>(p.of, at, group);
    }
}

} // namespace

#define UP_KERNEL(name, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(DVK_UP_THREADS, 1) name(const __grid_constant__ dvk_up_conv p) {      \
        convolve<T>(p);                                                                                                \
    }

UP_KERNEL(up_conv_f16, wgmma_half)
UP_KERNEL(up_conv_bf16, wgmma_bfloat)
