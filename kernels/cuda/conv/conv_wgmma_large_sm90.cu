/* conv_wgmma_large_sm90.cu - convolutions of a large window between at most 16 channels, on the tensor cores of Hopper.
 * A warpgroup computes a tile of 128 pixels by eight lines, in two halves of four lines. It processes the input of the
 * tile row by row. A row, shifted to each column of taps, is multiplied at once with the rows of taps that lead to the
 * four lines of a half:
 *     d[4 lines x 16][128 pixels] += w[kx][4 rows of taps x 16][16] * x[row][128 + kx][16]^T
 * Shared memory holds the weights of a column of taps from the last row of taps to the first, so that those of
 * neighbouring lines are adjacent. Three rows of zeros separate the columns, for lines that do not use the row of
 * input. */
#include "kernels/cuda/conv/conv_wgmma_large.h"
#include "kernels/cuda/conv/conv_wgmma_pipe.cuh"

namespace {

enum { GROUPS = 2, HALVES = 2, LINES = DVK_LARGE_LINES / HALVES, WIDTH = DVK_LARGE_WIDTH, OUTPUTS = 16, PIXEL = 32 };

struct layout { /* shared memory addresses */
    uint32_t w, slots, out, barriers;
    __device__ __forceinline__ layout(const dvk_conv_large &p, uint32_t base) {
        w = base;
        slots = w + p.w_bytes;
        out = slots + GROUPS * p.slots * p.slot_bytes;
        barriers = out + GROUPS * DVK_LARGE_STAGING;
    }
    __device__ __forceinline__ uint32_t slot(const dvk_conv_large &p, int group, int i) const {
        return slots + (group * p.slots + i) * p.slot_bytes;
    }
    __device__ __forceinline__ uint32_t full(int group, int i) const {
        return barriers + 8 * (group * 32 + i);
    }
    __device__ __forceinline__ uint32_t empty(int group, int i) const {
        return full(group, 16 + i);
    }
    __device__ __forceinline__ uint32_t weights() const {
        return full(2, 0);
    }
};

/* Rows of 32 bytes with the 32-byte swizzle, contiguous groups of eight. at: below 2^18. */
CONV_DEVICE uint64_t operand(uint32_t at) {
    return (uint64_t)(at >> 4) | 1ull << 16 | (uint64_t)(8 * PIXEL >> 4) << 32 | 3ull << 62;
}

struct tile {
    int n, y0, x0;
};

CONV_DEVICE tile tile_of(const dvk_conv_large &p, int job) {
    const int at = job / p.tiles_x, n = at / p.tiles_y;
    return {n, (at - n * p.tiles_y) * DVK_LARGE_LINES, (job - at * p.tiles_x) * WIDTH};
}

/* Jobs of a warpgroup: those of all first warpgroups come before those of all second ones. */
CONV_DEVICE int first_job(int group) {
    return blockIdx.x + group * gridDim.x;
}

CONV_DEVICE void bring(const dvk_conv_large &p, const layout &at) {
    barrier_expect(at.weights(), p.w_bytes);
    for (int done = 0; done < p.w_bytes; done += 16384) {
        copy_bulk(at.w + done, p.w + done, min(p.w_bytes - done, 16384), at.weights());
    }
    wait_for_launch_before();
    ring x[GROUPS];
    int job[GROUPS], row[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        job[g] = first_job(g), row[g] = 0;
    }
    for (bool more = true; more;) {
        more = false;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            if (job[g] >= p.jobs) {
                continue;
            }
            more = true;
            if (!barrier_passed(at.empty(g, x[g].slot), x[g].parity ^ 1)) {
                continue;
            }
            const tile t = tile_of(p, job[g]);
            const uint32_t full = at.full(g, x[g].slot);
            barrier_expect(full, (WIDTH + p.side - 1) * PIXEL);
            copy_in(at.slot(p, g, x[g].slot), &p.x, 0, t.x0 - p.pad_left, t.y0 + row[g] - p.pad_top, t.n, full);
            x[g].advance(p.slots);
            if (++row[g] == DVK_LARGE_LINES + p.side - 1) {
                row[g] = 0;
                job[g] += GROUPS * gridDim.x;
            }
        }
    }
}

/* The products of a row of input with all columns of taps, for the halves from FIRST to LAST. `line`: the line of the
 * tile to which the last row of taps leads. */
template <class T, int FIRST, int LAST>
CONV_DEVICE void multiply_row(const dvk_conv_large &p, uint32_t slot, uint32_t w, int row,
                              float (&sum)[HALVES * WIDTH / 2]) {
    const int column = (p.side + 3) * OUTPUTS * PIXEL;
    uint64_t b = operand(slot), a[HALVES];
#pragma unroll
    /* the first line's row of taps is row - 4h; offset in blocks from the last row */
    for (int h = 0; h < HALVES; h++) {
        a[h] = operand(w + (p.side + 2 - (row - h * LINES)) * OUTPUTS * PIXEL);
    }
    wgmma_fence();
#pragma unroll 1
    for (int kx = 0; kx < p.side; kx++) {
#pragma unroll
        for (int h = FIRST; h <= LAST; h++) {
            wgmma<T, WIDTH>(*(float(*)[WIDTH / 2])(sum + h * (WIDTH / 2)), a[h], b, 1);
            a[h] += column >> 4;
        }
        b += PIXEL >> 4;
    }
    wgmma_commit();
}

/* ---- stores: a warp has a line, channels lane / 4 and lane / 4 + 8, and of every eight pixels 2 * (lane % 4) and the
 * next ---- */

struct way_out {
    const dvk_conv_large &p;
    uint32_t staging; /* of 16 pixels of this warp */
    float bias[2], slope[2];

    __device__ __forceinline__ way_out(const dvk_conv_large &params, uint32_t at) : p(params), staging(at) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int c = (threadIdx.x & 31) / 4 + 8 * i;
            bias[i] = bias_of(p.epi, c);
            slope[i] = p.epi.act == 0 ? 1.0f : slope_of(p.epi, c);
        }
    }

    /* Stores sixteen pixels of whole groups of eight channels, with at most a slope. */
    template <class T> __device__ __forceinline__ void write(const float *s, int64_t line, int x) const {
        const int lane = threadIdx.x & 31, pixel = (lane >> 4) * 8 + (lane & 7);
        uint32_t m[4];
#pragma unroll
        for (int q = 0; q < 4; q++) { /* matrix: channels 8 * (q & 1), pixels 8 * (q / 2) */
            float v[2];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                v[k] = s[q * 2 + k] + bias[q & 1];
                v[k] = (v[k] >= 0 ? v[k] : slope[q & 1] * v[k]) * p.epi.alpha;
            }
            m[q] = T::pack(v[0], v[1]);
        }
        __syncwarp();
        matrices_store_transposed(staging + pixel * PIXEL + ((lane >> 3 & 1) ^ (pixel >> 2 & 1)) * 16, m);
        __syncwarp();
        const int mine = lane / 2, c = (lane & 1) * 8;
        const uint4 u = shared_load(staging + mine * PIXEL + ((lane & 1) ^ (mine >> 2 & 1)) * 16);
        if (x + mine < p.out_w && c < p.epi.c_out) {
            *(uint4 *)((uint16_t *)p.epi.y.data + line + (x + mine) * p.epi.y.sw + c) = u;
        }
    }

    /* The same for every epilogue of op.h. */
    __device__ __forceinline__ void any(const float *s, int n, int y, int x) const {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int q = 0; q < 8; q++) { /* pixels 8 * (q / 4) + (q & 1), channels 8 * (q / 2 & 1) */
            const int at = x + q / 4 * 8 + 2 * (lane & 3) + (q & 1), c = lane / 4 + 8 * (q / 2 & 1);
            if (at < p.out_w && c < p.epi.c_out) {
                finish_element(p.epi, s[q], {n, y, at, 0}, c);
            }
        }
    }

    template <class T>
    __device__ __forceinline__ void store(const tile &t, int warp, float (&sum)[HALVES * WIDTH / 2]) const {
#pragma unroll 1
        for (int i = 0; i < HALVES * WIDTH / 16; i++) {
            const int y = t.y0 + i / (WIDTH / 16) * LINES + warp, x = t.x0 + i % (WIDTH / 16) * 16;
            if (y < p.out_h && p.simple) {
                write<T>(sum, t.n * p.epi.y.sn + y * p.epi.y.sh, x);
            } else if (y < p.out_h) {
                any(sum, t.n, y, x);
            }
#pragma unroll
            /* moves the next sums to the front: one copy of the store code */
            for (int k = 0; k < HALVES * WIDTH / 2 - 8; k++) {
                sum[k] = sum[k + 8];
            }
        }
    }
};

template <class T> CONV_DEVICE void multiply(const dvk_conv_large &p, const layout &at, int group) {
    const int warp = threadIdx.x / 32 & 3;
    const way_out out(p, at.out + group * DVK_LARGE_STAGING + warp * (DVK_LARGE_STAGING / 4));
    ring x;
    wait_for_launch_before();
    barrier_wait(at.weights(), 0);
    for (int job = first_job(group); job < p.jobs; job += GROUPS * gridDim.x) {
        const tile t = tile_of(p, job);
        float sum[HALVES * WIDTH / 2];
#pragma unroll
        for (int i = 0; i < HALVES * WIDTH / 2; i++) {
            sum[i] = 0;
        }
        wgmma_pin(sum);
        int used = -1;
#pragma unroll 1
        for (int row = 0; row < DVK_LARGE_LINES + p.side - 1; row++) {
            const uint32_t slot = at.slot(p, group, x.slot);
            barrier_wait(at.full(group, x.slot), x.parity);
            if (row < LINES) {
                multiply_row<T, 0, 0>(p, slot, at.w, row, sum);
            } else if (row < LINES + p.side - 1) {
                multiply_row<T, 0, 1>(p, slot, at.w, row, sum);
            } else {
                multiply_row<T, 1, 1>(p, slot, at.w, row, sum);
            }
            wgmma_wait<1>();
            if (used >= 0 && (threadIdx.x & 31) == 0) {
                barrier_arrive(at.empty(group, used));
            }
            used = x.slot;
            x.advance(p.slots);
        }
        wgmma_wait<0>();
        wgmma_pin(sum);
        if ((threadIdx.x & 31) == 0) {
            barrier_arrive(at.empty(group, used));
        }
        out.store<T>(t, warp, sum);
    }
}

template <class T> CONV_DEVICE void convolve(const dvk_conv_large &p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const layout at(p, (uint32_t)__cvta_generic_to_shared(shared));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int g = 0; g < GROUPS; g++) {
            for (int i = 0; i < p.slots; i++) {
                barrier_init(at.full(g, i), 1);
                barrier_init(at.empty(g, i), 4);
            }
        }
        barrier_init(at.weights(), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        map_prefetch(&p.x);
    }
    __syncthreads();
    let_next_launch_begin();
    if (group == GROUPS) {
        set_registers_down<88>();
        if (threadIdx.x == GROUPS * 128) {
            bring(p, at);
        }
    } else {
        set_registers_up<208>();
        multiply<T>(p, at, group);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(GROUPS * 128 + 128, 1)
    conv_large_bf16(const __grid_constant__ dvk_conv_large p) {
    convolve<wgmma_bfloat>(p);
}

extern "C" __global__ void __launch_bounds__(GROUPS * 128 + 128, 1)
    conv_large_f16(const __grid_constant__ dvk_conv_large p) {
    convolve<wgmma_half>(p);
}
