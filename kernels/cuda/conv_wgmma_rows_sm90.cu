/* conv_wgmma_rows_sm90.cu - convolutions of 3 x 3 with few output channels on the tensor cores of Hopper. A warpgroup goes
 * down a strip of 64 pixels, row of input by row of input. Each row is multiplied at once with the weights of all three
 * rows of taps: d[64 pixels][3 x outputs] += x[row][64][k] * w[3 x outputs][k]^T. What the row adds to the output row above
 * it, to its own and to the one below stands side by side in the sums; after each row the first third is complete, and the
 * others move up. So the narrow products become three times as wide, and a pixel of input is brought once.
 *
 * The weights stay in shared memory. Every warpgroup has a ring of slots of its own, 66 pixels of 64 channels each. */
#include "kernels/cuda/conv_wgmma_pipe.cuh"
#include "kernels/cuda/conv_wgmma_row.cuh"

namespace {

struct layout { /* of shared memory, addresses */
    uint32_t w, slots, out, table, barriers;
    __device__ __forceinline__ layout(const dvk_conv_rows &p, int groups, int outputs, uint32_t base) {
        w = base;
        slots = (w + p.w_bytes + 1023) & ~1023u;
        out = slots + groups * p.slots * DVK_ROWS_SLOT;
        table = out + groups * outputs * DVK_ROWS_STAGING;
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
    __device__ __forceinline__ uint32_t weights() const {
        return full(3, 0);
    }
};

struct strip { /* a job */
    int n, y0, x0, rows;
};

CONV_DEVICE strip strip_of(const dvk_conv_rows &p, int job) {
    strip s;
    const int at = job / p.strips;
    s.x0 = (job - at * p.strips) * DVK_ROWS_WIDTH;
    s.n = at / p.segments;
    s.y0 = (at - s.n * p.segments) * p.rows;
    s.rows = min(p.rows, p.out_h - s.y0);
    return s;
}

/* ---- bringing ---- */

struct bringer { /* of one warpgroup's slots */
    ring x;
    strip s;
    int job, row = 0, chunk = 0;
};

template <int GROUPS> CONV_DEVICE void bring(const dvk_conv_rows &p, const layout &at) {
    barrier_expect(at.weights(), p.w_bytes);
    for (int done = 0; done < p.w_bytes; done += 4096) {
        copy_bulk(at.w + done, p.w + done, min(p.w_bytes - done, 4096), at.weights());
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
                    a.s.y0 + a.row - p.pad_top, a.s.n, at.full(g, a.x.slot));
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

/* The sums of a finished row, and where it belongs; y -1: there is none. */
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

    /* The products of a slot, 16 * K16 channels. */
    template <int K16>
    __device__ __forceinline__ void start(const strip &s, int row, int chunk, float (&sum)[OUTPUTS * 3 / 2]) {
        const uint64_t a = wgmma_operand(at.slot(p, group, x.slot), 1024);
        const uint64_t b = wgmma_operand(at.w + chunk * OUTPUTS * 9 * 128, 1024);
        if (p.pro) {
            prepare(s, row, chunk);
        } else {
            barrier_wait(at.full(group, x.slot), x.parity);
        }
        wgmma_fence();
#pragma unroll
        for (int kx = 0; kx < 3; kx++) {
#pragma unroll
            for (int k = 0; k < K16; k++) {
                wgmma<T, 3 * OUTPUTS>(sum, a + kx * 8 + 2 * k, b + kx * OUTPUTS * 24 + 2 * k, 1);
            }
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void wait() {
        wgmma_wait<1>();
        free_used();
        used = x.slot;
        x.advance(p.slots);
    }
};

template <class T, int OUTPUTS, int GROUPS, int LAST>
CONV_DEVICE void multiply(const dvk_conv_rows &p, const layout &at, int group) {
    const int warp = threadIdx.x / 32 & 3;
    const row_writer<T, OUTPUTS> out = {p, at.out + (group * 4 + warp) * OUTPUTS * (DVK_ROWS_STAGING / 4), at.table,
                                        warp * 16};
    consumer<T, OUTPUTS> in = {p, at, group, {}, -1};
    const int full = LAST == 4 ? p.chunks : p.chunks - 1;
    finished<OUTPUTS> done;
    done.y = -1;
    wait_for_launch_before();
    barrier_wait(at.weights(), 0);
    for (int job = blockIdx.x * GROUPS + group; job < p.jobs; job += gridDim.x * GROUPS) {
        const strip s = strip_of(p, job);
        float sum[OUTPUTS * 3 / 2];
#pragma unroll
        for (int i = 0; i < OUTPUTS * 3 / 2; i++) {
            sum[i] = 0;
        }
        wgmma_pin(sum);
#pragma unroll 1
        for (int row = 0; row < s.rows + 2; row++) {
#pragma unroll 1
            for (int chunk = 0; chunk < full; chunk++) {
                in.template start<4>(s, row, chunk, sum);
                if (LAST == 4 && chunk + 1 == full && done.y >= 0) {
                    out.store(done.n, done.y, done.x, done.sum); /* while the row behind it is multiplied */
                }
                in.wait();
            }
            if (LAST != 4) {
                in.template start<LAST>(s, row, full, sum);
                if (done.y >= 0) {
                    out.store(done.n, done.y, done.x, done.sum);
                }
                in.wait();
            }
            wgmma_wait<0>();
            wgmma_pin(sum);
            in.free_used();
#pragma unroll
            for (int i = 0; i < OUTPUTS / 2; i++) {
                done.sum[i] = sum[i];
                sum[i] = sum[OUTPUTS / 2 + i];
                sum[OUTPUTS / 2 + i] = sum[OUTPUTS + i];
                sum[OUTPUTS + i] = 0;
            }
            wgmma_pin(sum);
            done.n = s.n;
            done.y = row >= 2 ? s.y0 + row - 2 : -1;
            done.x = s.x0;
        }
    }
    if (done.y >= 0) {
        out.store(done.n, done.y, done.x, done.sum);
    }
}

template <class T, int OUTPUTS, int GROUPS, int LAST> CONV_DEVICE void convolve(const dvk_conv_rows &p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const layout at(p, GROUPS, OUTPUTS, (uint32_t)__cvta_generic_to_shared(shared));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    float *table = (float *)(shared + (at.table - (uint32_t)__cvta_generic_to_shared(shared)));
    if (threadIdx.x < 64) {
        table[threadIdx.x] = bias_of(p.epi, threadIdx.x);
        table[64 + threadIdx.x] = slope_of(p.epi, threadIdx.x);
    }
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
        set_registers_down<GROUPS == 3 ? 56 : 88>();
        if (threadIdx.x == GROUPS * 128) {
            bring<GROUPS>(p, at);
        }
    } else {
        set_registers_up<GROUPS == 3 ? 152 : 208>();
        multiply<T, OUTPUTS, GROUPS, LAST>(p, at, group);
    }
}

} // namespace

#define ROWS_KERNEL(name, T, OUTPUTS, GROUPS, LAST)                                                                    \
    extern "C" __global__ void __launch_bounds__(GROUPS * 128 + 128, 1)                                                \
        name(const __grid_constant__ dvk_conv_rows p) {                                                                \
        convolve<T, OUTPUTS, GROUPS, LAST>(p);                                                                         \
    }

/* By output channels, warpgroups, and the input channels of the last chunk in units of 16. */
#define ROWS_KERNELS(OUTPUTS, GROUPS, LAST)                                                                            \
    ROWS_KERNEL(conv_rows_bf16_##OUTPUTS##_##LAST, wgmma_bfloat, OUTPUTS, GROUPS, LAST)                                \
    ROWS_KERNEL(conv_rows_f16_##OUTPUTS##_##LAST, wgmma_half, OUTPUTS, GROUPS, LAST)

ROWS_KERNELS(8, 3, 4)
ROWS_KERNELS(16, 3, 4)
ROWS_KERNELS(32, 3, 2)
ROWS_KERNELS(32, 3, 4)
ROWS_KERNELS(48, 3, 3)
ROWS_KERNELS(48, 3, 4)
ROWS_KERNELS(64, 2, 1)
ROWS_KERNELS(64, 2, 3)
ROWS_KERNELS(64, 2, 4)
