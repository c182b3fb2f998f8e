/* conv_wgmma_rows.cuh - shared code of the kernels that process strips row by row: shared memory, loads of pixels and
 * weights, products of a slot. */
#ifndef DVK_CUDA_CONV_WGMMA_ROWS_CUH
#define DVK_CUDA_CONV_WGMMA_ROWS_CUH

#include "kernels/cuda/conv/conv_wgmma_pipe.cuh"

namespace {

struct layout { /* shared memory addresses */
    uint32_t w, gate, slots, out, table, barriers;
    __device__ __forceinline__ layout(const dvk_conv_rows &p, int groups, uint32_t base) {
        w = base;
        gate = w + p.w_bytes;
        slots = (gate + p.gate_bytes + 1023) & ~1023u;
        out = (slots + groups * p.slots * DVK_ROWS_SLOT + 1023) & ~1023u;
        table = out + groups * p.staging;
        barriers = table + DVK_ROWS_TABLE;
    }
    __device__ __forceinline__ uint32_t slot(const dvk_conv_rows &p, int group, int i) const {
        return slots + (group * p.slots + i) * DVK_ROWS_SLOT;
    }
    __device__ __forceinline__ uint32_t full(int group, int i) const {
        return barriers + 8 * (group * 32 + i);
    }
    __device__ __forceinline__ uint32_t empty(int group, int i) const {
        return full(group, 16 + i);
    }
    /* Address of a warp's buffer for assembling pixels. */
    __device__ __forceinline__ uint32_t staging(const dvk_conv_rows &p, int group, int warp) const {
        return out + (group * 4 + warp) * (p.staging / 4);
    }
    __device__ __forceinline__ uint32_t weights() const {
        return full(DVK_ROWS_MAX_GROUPS, 0);
    }
    /* Barrier of a warp's part of a row's residual. */
    __device__ __forceinline__ uint32_t residual(int group, int warp) const {
        return full(DVK_ROWS_MAX_GROUPS, 1 + group * 4 + warp);
    }
};

struct strip { /* a job */
    int n, y0, x0, rows;
    bool upward;
    /* The line of the picture of row number `row` of `count` in processing order. */
    __device__ __forceinline__ int line(int row, int count) const {
        return upward ? y0 + count - 1 - row : y0 + row;
    }
};

CONV_DEVICE strip strip_of(const dvk_conv_rows &p, int job) {
    strip s;
    const int at = job / p.segments, segment = job - at * p.segments;
    s.n = at / p.strips;
    s.x0 = (at - s.n * p.strips) * DVK_ROWS_WIDTH;
    s.y0 = segment * p.out_h / p.segments;
    s.rows = (segment + 1) * p.out_h / p.segments - s.y0;
    s.upward = p.upward;
    return s;
}

/* ---- bringing ---- */

struct bringer { /* of one warpgroup's slots */
    ring x;
    strip s;
    int job, row = 0, chunk = 0;
};

enum { PART = 4096 }; /* of the weights; 32 output channels: one row of taps */

template <int GROUPS> CONV_DEVICE void bring(const dvk_conv_rows &p, const layout &at) {
    barrier_expect(at.weights(), p.w_bytes);
    for (int done = 0; done < p.w_bytes; done += PART) {
        /* upward: parts are rows of taps; the first and the third are swapped */
        const int to = p.upward ? done + (1 - done / PART % 3) * 2 * PART : done;
        copy_bulk(at.w + to, p.w + done, min(p.w_bytes - done, PART), at.weights());
    }
    wait_for_launch_before();
    bringer b[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        b[g].job = blockIdx.x * GROUPS + g;
        b[g].s = strip_of(p, b[g].job);
    }
    for (bool more = true; more;) {
        more = false;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            bringer &a = b[g];
            if (a.job >= p.jobs) {
                continue;
            }
            more = true;
            if (!barrier_passed(at.empty(g, a.x.slot), a.x.parity ^ 1)) {
                continue;
            }
            barrier_expect(at.full(g, a.x.slot), DVK_ROWS_SLOT_PIXELS * 128);
            copy_in(at.slot(p, g, a.x.slot), &p.x, a.chunk * DVK_WGMMA_CHUNK, a.s.x0 - p.pad_left,
                    a.s.line(a.row, a.s.rows + 2) - p.pad_top, a.s.n, at.full(g, a.x.slot));
            a.x.advance(p.slots);
            if (++a.chunk == p.chunks) {
                a.chunk = 0;
                if (++a.row == a.s.rows + 2) {
                    a.row = 0;
                    a.job += gridDim.x * GROUPS;
                    a.s = strip_of(p, a.job);
                }
            }
        }
    }
}

/* ---- multiplying ---- */

/* Copies to another register. Otherwise the compiler swaps registers around a wgmma, and then serialises all of them. */
CONV_DEVICE float copy_of(float v) {
    float r;
    asm volatile("mov.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

/* The sums of a completed row, and its position; y -1: none. */
template <int OUTPUTS> struct finished {
    float sum[OUTPUTS / 2];
    int n, y, x;
};

template <class T, int OUTPUTS> struct consumer {
    const dvk_conv_rows &p;
    const layout &at;
    int group;
    ring x;
    int used;

    __device__ __forceinline__ void free_used() {
        if (used >= 0 && (threadIdx.x & 31) == 0) {
            barrier_arrive(at.empty(group, used));
        }
        used = -1;
    }

    __device__ __forceinline__ void prepare(const strip &s, int row, int chunk) const {
        const patch in = {at.slot(p, group, x.slot),
                          s.n,
                          s.y0 + row - p.pad_top,
                          s.x0 - p.pad_left,
                          chunk,
                          DVK_ROWS_SLOT_PIXELS,
                          DVK_ROWS_SLOT_PIXELS,
                          p.c_in,
                          p.n,
                          p.in_h,
                          p.in_w,
                          p.scale,
                          p.shift,
                          at.full(group, x.slot),
                          x.parity};
        prepare_patch < T, 128, OUTPUTS<32 ? 2 : 1>(in, p.pro_act, threadIdx.x & 127);
        named_barrier(1 + group, 128);
    }

    /* The products of a slot, 16 * K16 channels, with COUNT of the three rows of taps from FROM on; they are added to
     * the first sums. */
    template <int K16, int FROM = 0, int COUNT = 3, bool PRO = true>
    __device__ __forceinline__ void start(const strip &s, int row, int chunk, float (&sum)[OUTPUTS * 3 / 2]) {
        const uint64_t a = wgmma_operand(at.slot(p, group, x.slot), 1024);
        const uint64_t b = wgmma_operand(at.w + chunk * OUTPUTS * 9 * 128, 1024) + FROM * OUTPUTS * 8;
        if (PRO && p.pro) {
            prepare(s, row, chunk);
        } else {
            barrier_wait(at.full(group, x.slot), x.parity);
        }
        wgmma_fence();
        float(&part)[COUNT * OUTPUTS / 2] = *(float(*)[COUNT * OUTPUTS / 2]) sum;
#pragma unroll
        for (int kx = 0; kx < 3; kx++) {
#pragma unroll
            for (int k = 0; k < K16; k++) {
                wgmma<T, COUNT * OUTPUTS>(part, a + kx * 8 + 2 * k, b + kx * OUTPUTS * 24 + 2 * k, 1);
            }
        }
        wgmma_commit();
    }

    /* Marks the slot of the products just issued, which is free once they are complete. */
    __device__ __forceinline__ void use() {
        used = x.slot;
        x.advance(p.slots);
    }

    __device__ __forceinline__ void wait() {
        wgmma_wait<1>();
        free_used();
        use();
    }
};

/* The body of a block: its first GROUPS warpgroups run WORK::run. */
template <class WORK, int GROUPS> CONV_DEVICE void convolve(const dvk_conv_rows &p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const layout at(p, GROUPS, (uint32_t)__cvta_generic_to_shared(shared));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    float *table = (float *)(shared + (at.table - (uint32_t)__cvta_generic_to_shared(shared)));
    if (threadIdx.x < 64) {
        const int c = p.shuffled ? p.order[threadIdx.x] : threadIdx.x;
        table[threadIdx.x] = bias_of(p.epi, c);
        table[64 + threadIdx.x] = p.gate_bias ? p.gate_bias[c] : slope_of(p.epi, c);
    }
    if (threadIdx.x == 0) {
        for (int g = 0; g < GROUPS; g++) {
            for (int i = 0; i < p.slots; i++) {
                barrier_init(at.full(g, i), 1);
                barrier_init(at.empty(g, i), 4);
            }
        }
        barrier_init(at.weights(), 1);
        for (int i = 0; i < GROUPS * 4 && p.gate_bytes > 0; i++) {
            barrier_init(at.residual(i / 4, i % 4), 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        map_prefetch(&p.x);
    }
    __syncthreads();
    let_next_launch_begin();
    if (group == GROUPS) {
        set_registers_down<GROUPS == 2 ? 88 : GROUPS == 3 ? 56 : 40>();
        if (threadIdx.x == GROUPS * 128) {
            bring<GROUPS>(p, at);
        }
    } else {
        set_registers_up<GROUPS == 2 ? 208 : GROUPS == 3 ? 152 : 88>();
        WORK::run(p, at, group);
    }
}

} // namespace

#endif
