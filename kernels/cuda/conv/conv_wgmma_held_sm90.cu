/* conv_wgmma_held_sm90.cu - 3 x 3 convolutions of 64 channels to at most 64 on the tensor cores of Hopper with weights
 * in registers. All 64 x 576 weights are left operands in 144 registers per thread, beside 64 for the sums of 64
 * channels of 128 pixels. Products read only pixels from shared memory.
 *
 * A tile is 8 x 32 output pixels with one patch of input; each warpgroup computes one half of its rows. Taps are views
 * of the patch, as in conv_wgmma_sm90.cu. Blocks are persistent. The third warpgroup loads patches. The second
 * warpgroup stays `lead` taps behind the first, so that one stores its results while the other multiplies. */
#include "kernels/cuda/conv/conv_wgmma_held.h"
#include "kernels/cuda/conv/conv_wgmma_pipe.cuh"
#include "kernels/cuda/conv/conv_wgmma_tile.cuh"

namespace {

enum { CONSUMER_REGISTERS = 240, HELPER_REGISTERS = 24 };
enum { SUMS = DVK_WGMMA_TILE_W * DVK_HELD_HALF_H / 2, STEPS = DVK_HELD_STEPS, PIECES = DVK_HELD_PIECES };

/* d[64][128] (+)= a[64][16] * b[128][16]^T, a in registers. */
#define HELD_PRODUCT(TYPE)                                                                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {"                                     \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "     \
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "     \
                 "%59, %60, %61, %62, %63"                                                                             \
                 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"                                                        \
                 : WGMMA_D32(0), WGMMA_D32(32)                                                                         \
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "r"(accumulate))

template <class T> CONV_DEVICE void product(float (&d)[SUMS], const uint4 &a, uint64_t b, int accumulate) {
    if constexpr (T::DTYPE == CONV_F16) {
        HELD_PRODUCT("f16");
    } else {
        HELD_PRODUCT("bf16");
    }
}

struct layout { /* shared memory addresses */
    uint32_t x, out, barriers;
    __device__ __forceinline__ layout(const dvk_conv_wgmma &p, uint32_t base) {
        x = base;
        out = x + p.x_slots * p.x_bytes;
        barriers = out + 2 * p.entries * p.entry_bytes;
    }
    __device__ __forceinline__ uint32_t x_full(int i) const {
        return barriers + 8 * i;
    }
    __device__ __forceinline__ uint32_t x_empty(int i) const {
        return barriers + 8 * (DVK_HELD_MAX_X + i);
    }
    __device__ __forceinline__ uint32_t residual(int group, int i) const {
        return barriers + 8 * (2 * DVK_HELD_MAX_X + group * PIECES + i);
    }
    __device__ __forceinline__ uint32_t turn(int group) const {
        return barriers + 8 * (2 * DVK_HELD_MAX_X + 2 * PIECES + group);
    }
};

/* The position of a whole tile. */
CONV_DEVICE conv_tile held_tile(const dvk_conv_held &h, int job) {
    const dvk_conv_wgmma &p = h.c;
    conv_tile t;
    const int at = h.backwards ? p.jobs - 1 - job : job, row = at / p.tiles_x;
    t.x0 = (at - row * p.tiles_x) * DVK_WGMMA_TILE_W;
    t.n = row / p.tiles_y;
    t.y0 = (row - t.n * p.tiles_y) * DVK_WGMMA_TILE_H;
    t.phase = t.c0 = 0;
    t.chunk = at;
    return t;
}

/* The weights come first, through the first two slots, which are free for patches once they are in registers. */
enum { WEIGHT_SLOTS = 2, WEIGHTS = STEPS / WEIGHT_SLOTS * 128 * 16 /* bytes in one of them */ };

CONV_DEVICE ring behind_weights() {
    ring x;
    x.slot = WEIGHT_SLOTS;
    return x;
}

CONV_DEVICE void bring(const dvk_conv_held &h, const layout &at) {
    const dvk_conv_wgmma &p = h.c;
    ring x = behind_weights();
    if (p.fresh) { /* by the preceding launch */
        wait_for_launch_before();
    }
    for (int i = 0; i < WEIGHT_SLOTS; i++) {
        barrier_expect(at.x_full(i), WEIGHTS);
        copy_bulk(at.x + i * p.x_bytes, p.w + i * WEIGHTS, WEIGHTS, at.x_full(i));
    }
    wait_for_launch_before();
    for (int job = blockIdx.x; job < p.jobs; job += gridDim.x) {
        const conv_tile t = held_tile(h, job);
        const uint32_t full = at.x_full(x.slot);
        barrier_wait(at.x_empty(x.slot), x.parity ^ 1);
        barrier_expect(full, p.patch_pixels * 128);
        copy_in(at.x + x.slot * p.x_bytes, &p.x, 0, t.x0 - p.pad_left, t.y0 - p.pad_top, t.n, full);
        x.advance(p.x_slots);
    }
}

/* Stores a warpgroup's half of a tile like output_ring, but the residuals of all pieces fit at once. */
struct way_out {
    const dvk_conv_wgmma &p;
    output_ring ring;

    __device__ __forceinline__ uint32_t entry(int piece) const {
        return ring.at + piece * p.entry_bytes;
    }

    /* Runs while products are in flight. */
    template <int RES> __device__ __forceinline__ void bring_residuals(const conv_tile &t, int thread) const {
        if (RES > 0 && thread == 0) {
            copy_out_read<0>();
            for (int i = 0; i < PIECES; i++) {
                ring.bring_residuals(p, t, i, i);
            }
        }
    }

    template <class T, int KIND, int RES, int COUNT>
    __device__ __forceinline__ void write(const conv_tile &t, int thread, const float (&sum)[SUMS], uint32_t parity,
                                          conv_sums &sums) const {
        const int lane = thread & 31, warp = thread >> 5;
        const conv_channels channels(p.epi, warp * 16 + lane / 4);
        /* this lane's row of a store of four matrices, as in output_ring::write */
        const uint32_t mine = ((lane >> 4) * 8 + (lane & 7)) * 128 + (((warp * 2 + (lane >> 3 & 1)) ^ (lane & 7)) * 16);
        if (RES == 0) {
            if (thread == 0) {
                copy_out_read<0>();
            }
            named_barrier(1 + ring.group, 128);
        }
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            if (RES > 0) {
                barrier_wait(ring.barriers + 8 * i, parity);
            }
            ring.piece<T, KIND, RES, COUNT, 0>(p, channels, entry(i) + mine, entry(i) + mine, sum + i * (SUMS / PIECES),
                                               i, sums);
            fence_async();
            named_barrier(1 + ring.group, 128);
            if (thread == 0) {
                copy_out(&p.y[0], 0, t.x0, t.y0 + i * DVK_WGMMA_PIECE_H, t.n, entry(i));
            }
        }
    }

    template <class T>
    __device__ __forceinline__ void write_and_sum(const conv_tile &t, int thread, const float (&sum)[SUMS],
                                                  uint32_t parity) {
        const int wide = min(p.out_w - t.x0, DVK_WGMMA_TILE_W), high = min(p.out_h - t.y0, DVK_HELD_HALF_H);
        conv_sums sums(high, wide, 2 * (thread & 3));
        if (wide == DVK_WGMMA_TILE_W && high == DVK_HELD_HALF_H) {
            write<T, DVK_WGMMA_SLOPE, 0, SUM_WHOLE>(t, thread, sum, parity, sums);
        } else {
            write<T, DVK_WGMMA_SLOPE, 0, SUM_EDGE>(t, thread, sum, parity, sums);
        }
        ring.total[0] += sums.s[0][0] + sums.s[0][1];
        ring.total[1] += sums.s[1][0] + sums.s[1][1];
    }

    template <class T, int RES>
    __device__ __forceinline__ void store(const conv_tile &t, int thread, const float (&sum)[SUMS],
                                          uint32_t parity) const {
        conv_sums none(0, 0, 0);
        switch (p.epilogue) {
        case DVK_WGMMA_SLOPE:
            write<T, DVK_WGMMA_SLOPE, RES, COUNT_NONE>(t, thread, sum, parity, none);
            break;
        case DVK_WGMMA_SLOPE_LAST:
            write<T, DVK_WGMMA_SLOPE_LAST, RES, COUNT_NONE>(t, thread, sum, parity, none);
            break;
        default:
            write<T, DVK_WGMMA_LINEAR, RES, COUNT_NONE>(t, thread, sum, parity, none);
        }
    }
};

/* All products of a half; those of the last tap may be in flight when it returns. */
template <class T>
CONV_DEVICE void multiply_half(const dvk_conv_wgmma &p, const uint4 (&w)[STEPS], uint64_t patch, uint32_t other_turn,
                               bool first, float (&sum)[SUMS]) {
#pragma unroll
    for (int tap = 0; tap < DVK_HELD_TAPS; tap++) {
        const uint64_t b = patch + (tap / 3 * p.pitch + tap % 3) * 8;
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            product<T>(sum, w[tap * 4 + k], b + 2 * k, k > 0 || tap > 0);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (first && tap + 1 == p.lead) {
            barrier_arrive(other_turn);
        }
    }
}

/* Loads a thread's part of the weights; WEIGHT_SLOTS pieces come through as many slots. */
CONV_DEVICE void hold(const dvk_conv_wgmma &p, const layout &at, int thread, uint4 (&w)[STEPS]) {
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        const int slot = i / (STEPS / WEIGHT_SLOTS), step = i % (STEPS / WEIGHT_SLOTS);
        if (step == 0) {
            barrier_wait(at.x_full(slot), 0);
        }
        w[i] = shared_load(at.x + slot * p.x_bytes + (step * 128 + thread) * 16);
        if (step == STEPS / WEIGHT_SLOTS - 1) {
            __syncwarp();
            if ((thread & 31) == 0) {
                barrier_arrive(at.x_empty(slot));
            }
        }
    }
}

/* RES: residuals; SUM: also sums of the result over the pixels. */
template <class T, int RES, bool SUM> CONV_DEVICE void multiply(const dvk_conv_held &h, const layout &at, int group) {
    const dvk_conv_wgmma &p = h.c;
    const int thread = threadIdx.x & 127;
    uint4 w[STEPS];
    hold(p, at, thread, w);
    way_out out = {p, {at.out + group * p.entries * p.entry_bytes, at.residual(group, 0), group}};
    ring x = behind_weights();
    uint32_t done = 0; /* tiles */
    wait_for_launch_before();
    for (int job = blockIdx.x; job < p.jobs; job += gridDim.x, done++) {
        conv_tile t = held_tile(h, job);
        t.y0 += group * DVK_HELD_HALF_H;
        float sum[SUMS]; /* which the first product overwrites */
        wgmma_pin(sum);
        out.bring_residuals<RES>(t, thread);
        if (group == 1) {
            barrier_wait(at.turn(1), done & 1);
        } else if (done > 0) {
            barrier_wait(at.turn(0), (done - 1) & 1);
        }
        barrier_wait(at.x_full(x.slot), x.parity);
        const uint64_t patch = wgmma_operand(at.x + x.slot * p.x_bytes, p.pitch * 128);
        multiply_half<T>(p, w, patch + group * DVK_HELD_HALF_H * p.pitch * 8, at.turn(1 - group), thread == 0, sum);
        wgmma_wait<0>();
        wgmma_pin(sum);
        if ((thread & 31) == 0) {
            barrier_arrive(at.x_empty(x.slot));
        }
        x.advance(p.x_slots);
        if (SUM) {
            out.write_and_sum<T>(t, thread, sum, done & 1);
        } else {
            out.store<T, RES>(t, thread, sum, done & 1);
        }
    }
    if (thread == 0) {
        copy_out_done();
    }
    if (SUM) {
        out.ring.store_sums(p, thread);
    }
}

template <class T, int RES, bool SUM> CONV_DEVICE void convolve(const dvk_conv_held &h) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const dvk_conv_wgmma &p = h.c;
    const layout at(p, (uint32_t)__cvta_generic_to_shared(shared));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.x_slots; i++) {
            barrier_init(at.x_full(i), 1);
            barrier_init(at.x_empty(i), 8);
        }
        for (int i = 0; i < 2 * PIECES; i++) {
            barrier_init(at.residual(0, i), 1);
        }
        barrier_init(at.turn(0), 1);
        barrier_init(at.turn(1), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        map_prefetch(&p.x);
    }
    __syncthreads();
    let_next_launch_begin();
    if (group == 2) {
        set_registers_down<HELPER_REGISTERS>();
        if (threadIdx.x == 256) {
            bring(h, at);
        }
    } else {
        set_registers_up<CONSUMER_REGISTERS>();
        multiply<T, RES, SUM>(h, at, group);
    }
}

} // namespace

/* By type, and with one residual or sums. */
#define HELD_KERNEL(name, T, RES, SUM)                                                                                 \
    extern "C" __global__ void __launch_bounds__(DVK_WGMMA_THREADS, 1) name(const __grid_constant__ dvk_conv_held p) { \
        convolve<T, RES, SUM>(p);                                                                                      \
    }

HELD_KERNEL(conv_held_bf16, wgmma_bfloat, 0, false)
HELD_KERNEL(conv_held_bf16_add, wgmma_bfloat, 1, false)
HELD_KERNEL(conv_held_bf16_sums, wgmma_bfloat, 0, true)
HELD_KERNEL(conv_held_f16, wgmma_half, 0, false)
HELD_KERNEL(conv_held_f16_add, wgmma_half, 1, false)
HELD_KERNEL(conv_held_f16_sums, wgmma_half, 0, true)
