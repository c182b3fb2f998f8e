/* conv_fp8_sm90.cu - convolution of f16 with products of E4M3 on the tensor cores of Hopper. Tiles, rings and roles are
 * those of conv_wgmma_sm90.cu. The third warpgroup converts every patch to E4M3 in place (conv_fp8.cuh) while the
 * previous one is multiplied. Products of 32 channels take as long as those of 16 in f16.
 * The sums stay in the tensor cores' accumulators, which add E4M3 with about 14 bits. Their error after 4608 products
 * is a tenth of that of rounding the factors. */
#include "kernels/cuda/conv/conv_fp8.cuh"
#include "kernels/cuda/conv/conv_wgmma_tile.cuh"

namespace {

enum { CONSUMER_REGISTERS = 208, HELPER_REGISTERS = 88 };

struct layout { /* shared memory addresses */
    uint32_t x, w, out, barriers;
    __device__ __forceinline__ layout(const dvk_conv_wgmma &p, uint32_t base) {
        x = base;
        w = x + p.x_slots * p.x_bytes;
        out = w + p.w_slots * p.w_bytes;
        barriers = out + 2 * p.entries * p.entry_bytes;
    }
    __device__ __forceinline__ uint32_t x_full(int i) const {
        return barriers + 8 * i;
    }
    __device__ __forceinline__ uint32_t x_ready(int i) const {
        return barriers + 8 * (8 + i);
    }
    __device__ __forceinline__ uint32_t x_empty(int i) const {
        return barriers + 8 * (16 + i);
    }
    __device__ __forceinline__ uint32_t residual(int group) const {
        return barriers + 8 * (24 + group * 8);
    }
    __device__ __forceinline__ uint32_t w_full(int i) const {
        return barriers + 8 * (40 + i);
    }
    __device__ __forceinline__ uint32_t w_empty(int i) const {
        return barriers + 8 * (72 + i);
    }
    __device__ __forceinline__ uint32_t turn(int group) const {
        return barriers + 8 * (104 + group);
    }
    __device__ __forceinline__ uint32_t x_slot(const dvk_conv_wgmma &p, int i) const {
        return x + i * p.x_bytes;
    }
    __device__ __forceinline__ uint32_t scales(int i) const {
        return barriers + DVK_FP8_SCALES + 8 * i;
    }
};

/* ---- the third warpgroup ---- */

struct weight_bringer {
    ring w;
    int job, tap = 0;

    /* Fills a slot if one is free. */
    __device__ __forceinline__ void advance(const dvk_conv_wgmma &p, const layout &at) {
        const int per_job = p.chunks * p.taps;
        if (job >= p.jobs || !barrier_passed(at.w_empty(w.slot), w.parity ^ 1)) {
            return;
        }
        const int64_t from = (int64_t)(job % (p.blocks * p.phases)) * per_job + tap;
        barrier_expect(at.w_full(w.slot), p.w_bytes);
        copy_bulk(at.w + w.slot * p.w_bytes, p.w + from * p.w_bytes, p.w_bytes, at.w_full(w.slot));
        w.advance(p.w_slots);
        if (++tap == per_job) {
            tap = 0;
            job = p.resident ? p.jobs : job + gridDim.x;
        }
    }
};

CONV_DEVICE void bring(const dvk_conv_wgmma &p, const layout &at) {
    ring x;
    int x_job = blockIdx.x, x_chunk = 0, x_group = 0;
    weight_bringer w;
    w.job = blockIdx.x;
    for (int i = 0; i < p.w_slots; i++) {
        w.advance(p, at);
    }
    wait_for_launch_before();
    while (x_job < p.jobs || w.job < p.jobs) {
        w.advance(p, at);
        if (x_job < p.jobs && barrier_passed(at.x_empty(x.slot), x.parity ^ 1)) {
            const conv_tile t = tile_of(p, x_job, x_group);
            barrier_expect(at.x_full(x.slot), p.patch_pixels * 128);
            copy_in(at.x_slot(p, x.slot), &p.x, x_chunk * DVK_WGMMA_CHUNK, t.x0 - p.pad_left, t.y0 - p.pad_top, t.n,
                    at.x_full(x.slot));
            x.advance(p.x_slots);
            if (++x_group > p.split) {
                x_group = 0;
                if (++x_chunk == p.chunks) {
                    x_chunk = 0;
                    x_job += gridDim.x;
                }
            }
        }
    }
}

/* Measures, scales and converts a patch; scales(slot) receives the result for the consumers. */
template <int ACT>
CONV_DEVICE void convert_scaled(const dvk_conv_wgmma &p, const layout &at, const patch &in, int slot, fp8_range &range,
                                int which, int thread) {
    const uint32_t own = at.scales(DVK_WGMMA_MAX_X) + (which & 1) * 16;
    barrier_wait(in.full, in.parity);
    const uint32_t most = largest_of<ACT>(in, thread, own);
    const float factor = range.take(most, in.chunk == 0, p.chunks > 1 ? DVK_FP8_ROOM : DVK_FP8_ROOM_ALONE);
    if (thread == 0) {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at.scales(slot)), "f"(factor),
                     "f"(power_of_two(range.power))
                     : "memory");
    }
    convert_measured<ACT>(in, thread, range);
}

template <bool MEASURED> CONV_DEVICE void prepare(const dvk_conv_fp8 &of, const layout &at, int thread) {
    const dvk_conv_wgmma &p = of.c;
    ring x;
    fp8_range range, other; /* of the two alternating tiles, if there are two */
    wait_for_launch_before();
    for (int job = blockIdx.x; job < p.jobs; job += gridDim.x) {
        for (int i = 0; i < p.chunks << p.split; i++) {
            const int group = p.split ? i & 1 : 0;
            const conv_tile t = tile_of(p, job, group);
            const patch in = {at.x_slot(p, x.slot),
                              t.n,
                              t.y0 - p.pad_top,
                              t.x0 - p.pad_left,
                              i >> p.split,
                              p.pitch,
                              p.patch_pixels,
                              p.c_in,
                              p.n,
                              p.in_h,
                              p.in_w,
                              p.scale,
                              p.shift,
                              at.x_full(x.slot),
                              x.parity};
            if (MEASURED && p.pro_act == CONV_RELU) {
                convert_scaled<CONV_RELU>(p, at, in, x.slot, range, i, thread);
            } else if (MEASURED) {
                convert_scaled<0>(p, at, in, x.slot, range, i, thread);
            } else if (p.pro_act == CONV_SILU) {
                convert_norm<CONV_SILU>(in, thread);
            } else if (p.pro_act == CONV_RELU) {
                convert_norm<CONV_RELU>(in, thread);
            } else {
                convert_norm<0>(in, thread);
            }
            fence_async();
            barrier_arrive(at.x_ready(x.slot));
            x.advance(p.x_slots);
            if (p.split) {
                const fp8_range next = other;
                other = range, range = next;
            }
        }
    }
}

/* ---- the other two ---- */

/* State of a warpgroup. `x_used`, `w_used`: slots that products in flight still read, -1: none. */
struct consumer {
    ring x, w;
    int x_used = -1, w_used = -1;
    int jobs = 0, tap = 0; /* completed; of this job */
    float unit = 1;        /* of the sums */

    __device__ __forceinline__ void free_used(const layout &at) {
        if ((threadIdx.x & 31) == 0) {
            if (w_used >= 0) {
                barrier_arrive(at.w_empty(w_used));
            }
            if (x_used >= 0) {
                barrier_arrive(at.x_empty(x_used));
            }
        }
        x_used = w_used = -1;
    }

    /* Takes over the unit of this chunk and rescales the earlier sums to it. */
    __device__ __forceinline__ void change_unit(const layout &at, float (&sum)[128]) {
        float factor;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(factor), "=f"(unit) : "r"(at.scales(x.slot)) : "memory");
        if (factor != 1.0f) {
            wgmma_wait<0>();
            wgmma_pin(sum);
#pragma unroll
            for (int i = 0; i < 128; i++) {
                sum[i] *= factor;
            }
            wgmma_pin(sum);
        }
    }
};

/* All taps of one chunk of input channels, 32 * K32 of them. */
template <bool MEASURED, int K32>
CONV_DEVICE void multiply_chunk(const dvk_conv_wgmma &p, const layout &at, consumer &c, int group, int view,
                                const output_ring &out, const conv_tile &t, float (&sum)[128]) {
    const uint64_t patch = wgmma_operand(at.x_slot(p, c.x.slot), p.pitch * 128);
    const uint32_t half = p.split ? 0 : group * DVK_FP8_TAP;
    int column = 0;
    barrier_wait(at.x_ready(c.x.slot), c.x.parity);
    if (MEASURED) {
        c.change_unit(at, sum);
    }
#pragma unroll 1
    for (int tap = 0; tap < p.taps; tap++) {
        if (c.jobs == 0 || !p.resident) {
            barrier_wait(at.w_full(c.w.slot), c.w.parity);
        }
        const uint64_t b = patch + view * 8;
        const uint64_t a = wgmma_operand_64(at.w + c.w.slot * p.w_bytes + half);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < K32; k++) {
            wgmma_fp8(sum, a + 2 * k, b + 2 * k);
        }
        wgmma_commit();
        if (c.tap == 0) {
            out.prefetch(p, t, threadIdx.x & 127);
        }
        wgmma_wait<1>();
        c.free_used(at);
        if (++c.tap == p.lead && (threadIdx.x & 127) == 0 && (group == 0 || p.alternate)) {
            barrier_arrive(at.turn(1 - group));
        }
        c.w_used = p.resident ? -1 : c.w.slot;
        c.w.advance(p.w_slots);
        view++;
        if (++column == p.kw) {
            column = 0;
            view += p.pitch - p.kw;
        }
    }
    c.x_used = c.x.slot;
    c.x.advance(p.x_slots, 1 + p.split);
}

template <bool MEASURED> CONV_DEVICE void multiply(const dvk_conv_fp8 &of, const layout &at, int group) {
    const dvk_conv_wgmma &p = of.c;
    const int thread = threadIdx.x & 127;
    consumer c;
    output_ring out = {at.out + group * p.entries * p.entry_bytes, at.residual(group), group};
    if (p.split && group) {
        c.x.advance(p.x_slots);
    }
    wait_for_launch_before();
    for (int job = blockIdx.x; job < p.jobs; job += gridDim.x) {
        const conv_tile t = tile_of(p, job, group);
        const int view = (t.phase >> 1) * p.pitch + (t.phase & 1);
        const float *units =
            of.unit + t.phase * p.blocks * (p.split ? 64 : 128) + t.c0 + thread / 32 * 16 + (thread & 31) / 4;
        float unit[2] = {units[0], units[8]}, sum[128];
#pragma unroll
        for (int i = 0; i < 128; i++) {
            sum[i] = 0;
        }
        wgmma_pin(sum);
        c.tap = 0;
        if (group == 1) {
            barrier_wait(at.turn(1), c.jobs & 1);
        } else if (p.alternate && c.jobs > 0) {
            barrier_wait(at.turn(0), (c.jobs - 1) & 1);
        }
        for (int chunk = 1; chunk < p.chunks; chunk++) {
            multiply_chunk<MEASURED, 2>(p, at, c, group, view, out, t, sum);
        }
        if (p.c_in % DVK_WGMMA_CHUNK == 0) {
            multiply_chunk<MEASURED, 2>(p, at, c, group, view, out, t, sum);
        } else {
            multiply_chunk<MEASURED, 1>(p, at, c, group, view, out, t, sum);
        }
        wgmma_wait<0>();
        wgmma_pin(sum);
        c.free_used(at);
        c.jobs++;
#pragma unroll
        for (int i = 0; i < 128; i++) {
            sum[i] *= unit[i >> 1 & 1] * c.unit;
        }
        out.store<wgmma_half, 0>(p, t, thread, sum);
    }
    if (thread == 0) {
        copy_out_done();
    }
}

template <bool MEASURED> CONV_DEVICE void convolve(const dvk_conv_fp8 &of) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const dvk_conv_wgmma &p = of.c;
    const layout at(p, (uint32_t)__cvta_generic_to_shared(shared));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.x_slots; i++) {
            barrier_init(at.x_full(i), 1);
            barrier_init(at.x_ready(i), DVK_WGMMA_HELPERS);
            barrier_init(at.x_empty(i), p.split ? 4 : 8);
        }
        for (int i = 0; i < p.w_slots; i++) {
            barrier_init(at.w_full(i), 1);
            barrier_init(at.w_empty(i), 8);
        }
        barrier_init(at.turn(0), 1);
        for (int i = 0; i < 2 * DVK_WGMMA_MAX_ENTRIES; i++) {
            barrier_init(at.residual(0) + 8 * i, 1);
        }
        barrier_init(at.turn(1), 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        map_prefetch(&p.x);
    }
    __syncthreads();
    let_next_launch_begin();
    if (group == 2) {
        set_registers_down<HELPER_REGISTERS>();
        const int thread = threadIdx.x - 256;
        if (thread == 0) {
            bring(p, at);
        } else if (thread >= 32) {
            prepare<MEASURED>(of, at, thread - 32);
        }
    } else {
        set_registers_up<CONSUMER_REGISTERS>();
        multiply<MEASURED>(of, at, group);
    }
}

} // namespace

#define FP8_KERNEL(name, MEASURED)                                                                                     \
    extern "C" __global__ void __launch_bounds__(DVK_WGMMA_THREADS, 1) name(const __grid_constant__ dvk_conv_fp8 p) {  \
        convolve<MEASURED>(p);                                                                                         \
    }

/* With and without a measurement of x. */
FP8_KERNEL(conv_fp8_norm, false)
FP8_KERNEL(conv_fp8, true)
