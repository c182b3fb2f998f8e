/* conv_wgmma_sm90.cu - convolution on the tensor cores of Hopper. A tile is 8 x 32 output pixels. A warpgroup computes
 * 64 output channels of it as d[64 channels][256 pixels] = w[64][k] * x[256][k]^T. The patch of input of a tile, halo
 * included, is in shared memory once per 64 input channels. Every tap is a shifted view of the patch: eight pixels of a
 * row are eight rows of the operand, and the next eight are one patch row further. The swizzle works on addresses, so a
 * view may begin at any pixel.
 *
 * Blocks are persistent. The third warpgroup loads patches and weights through ring buffers and applies the prologue.
 * The second warpgroup stays behind the first, so that one stores its results while the other multiplies. The distance
 * is all taps if they share no weights that must be loaded, otherwise `lead` taps. */
#include "kernels/cuda/conv/conv_wgmma_few.cuh"
#include "kernels/cuda/conv/conv_wgmma_pipe.cuh"
#include "kernels/cuda/conv/conv_wgmma_tile.cuh"

namespace {

enum { CONSUMER_REGISTERS = 208, HELPER_REGISTERS = 88 };
enum { WHOLE, HALF, FEW }; /* kinds of kernel: stride one, stride two, few input channels */

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
    __device__ __forceinline__ uint32_t residual(int group, int i) const {
        return barriers + 8 * (24 + group * 8 + i);
    }
    __device__ __forceinline__ uint32_t w_full(int i) const {
        return barriers + 8 * (40 + i);
    }
    __device__ __forceinline__ uint32_t w_empty(int i) const {
        return barriers + 8 * (56 + i);
    }
    __device__ __forceinline__ uint32_t turn(int group) const {
        return barriers + 8 * (72 + group);
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
        const int at_tap = tap + p.own * p.taps, turned = at_tap < per_job ? at_tap : at_tap - per_job;
        const int64_t from = (int64_t)(job % (p.blocks * p.phases)) * per_job + turned;
        barrier_expect(at.w_full(w.slot), p.w_bytes);
        copy_bulk(at.w + w.slot * p.w_bytes, p.w + from * p.w_bytes, p.w_bytes, at.w_full(w.slot));
        w.advance(p.w_slots);
        if (++tap == per_job) {
            tap = 0;
            job = p.resident ? p.jobs : job + gridDim.x;
        }
    }
};

/* One thread issues all loads, for whichever ring has room. Weights rarely depend on the preceding launch. */
template <int KIND> CONV_DEVICE void bring(const dvk_conv_wgmma &p, const layout &at) {
    ring x;
    int x_job = blockIdx.x, x_chunk = 0, x_group = 0, x_part = 0;
    weight_bringer w;
    w.job = blockIdx.x;
    if (p.fresh) {
        wait_for_launch_before();
    }
    for (int i = 0; i < p.w_slots; i++) {
        w.advance(p, at);
    }
    wait_for_launch_before();
    while (x_job < p.jobs || w.job < p.jobs) {
        w.advance(p, at);
        if (w.job >= p.jobs) { /* polling takes power from the products */
            barrier_wait(at.x_empty(x.slot), x.parity ^ 1);
        }
        if (x_job < p.jobs && barrier_passed(at.x_empty(x.slot), x.parity ^ 1)) {
            const conv_tile t = tile_of(p, x_job, x_group);
            const uint32_t to = at.x + x.slot * p.x_bytes, full = at.x_full(x.slot);
            x.advance(p.x_slots);
            if (KIND == HALF) {
                const dvk_wgmma_part &part = p.part[x_part];
                barrier_expect(full, part.bytes);
                copy_in(to, x_part > 0 ? &p.x_odd[x_part - 1] : &p.x, x_chunk * DVK_WGMMA_CHUNK, t.x0 + part.x,
                        t.y0 + part.y, t.n, full);
                if (++x_part < p.parts) {
                    continue;
                }
                x_part = 0;
            } else {
                barrier_expect(full, p.patch_pixels * 128);
                const int chunk = x_chunk + p.own < p.chunks ? x_chunk + p.own : 0;
                copy_in(to, &p.x, chunk * DVK_WGMMA_CHUNK, t.x0 - p.pad_left, t.y0 - p.pad_top, t.n, full);
            }
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

template <class T> CONV_DEVICE void prepare(const dvk_conv_wgmma &p, const layout &at, int thread) {
    ring x;
    wait_for_launch_before();
    for (int job = blockIdx.x; job < p.jobs; job += gridDim.x) {
        for (int i = 0; i < p.chunks << p.split; i++) {
            const conv_tile t = tile_of(p, job, p.split ? i & 1 : 0);
            const patch in = {at.x + x.slot * p.x_bytes,
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
            prepare_patch<T, DVK_WGMMA_HELPERS, 4>(in, p.pro_act, thread);
            barrier_arrive(at.x_ready(x.slot));
            x.advance(p.x_slots);
        }
    }
}

/* Few input channels: no patch is loaded; the operand is written from the picture. There are at least as many slots for
 * weights as for operands, so a free operand slot implies a free weight slot. */
template <class T> CONV_DEVICE void gather(const dvk_conv_wgmma &p, const layout &at, int thread) {
    ring x;
    weight_bringer w;
    few_pixels<T> pixels(p, thread);
    w.job = blockIdx.x;
    for (int i = 0; i < p.w_slots && thread == 0; i++) {
        w.advance(p, at);
    }
    wait_for_launch_before();
    const int items = ((p.jobs - 1 - (int)blockIdx.x) / (int)gridDim.x + 1) << p.split;
    pixels.load(p, tile_of(p, blockIdx.x, 0), thread);
    for (int i = 0; i < items; i++) {
        const uint32_t slot = at.x + x.slot * p.x_bytes;
        barrier_wait(at.x_empty(x.slot), x.parity ^ 1);
        if (thread == 0) {
            w.advance(p, at);
        }
        pixels.store(p, slot + DVK_WGMMA_FEW_OPERAND, thread);
        named_barrier(3, DVK_WGMMA_GATHERERS);
        if (i + 1 < items) {
            pixels.load(p, tile_of(p, blockIdx.x + ((i + 1) >> p.split) * gridDim.x, (i + 1) & p.split), thread);
        }
        few_operand(p, slot, thread);
        fence_async();
        barrier_arrive(at.x_ready(x.slot));
        x.advance(p.x_slots);
    }
}

/* ---- the other two ---- */

/* State of a warpgroup. `x_used`, `w_used`: slots that products in flight still read, -1: none. */
struct consumer {
    ring x, w;
    int x_used = -1, w_used = -1;
    int jobs = 0, tap = 0; /* completed; of this job */

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
};

/* All taps of one chunk of input channels, 16 * K16 of them, or of one of its parts. */
template <class T, int K16, int KIND>
CONV_DEVICE void multiply_chunk(const dvk_conv_wgmma &p, const layout &at, consumer &c, int group, int view, int part,
                                const output_ring &out, const conv_tile &t, float (&sum)[128]) {
    const int taps = KIND == HALF ? p.part[part].taps : p.taps, kw = KIND == HALF ? p.part[part].kw : p.kw;
    const int pitch = KIND == HALF ? p.part[part].pitch : p.pitch;
    const uint64_t patch = wgmma_operand(at.x + c.x.slot * p.x_bytes, pitch * 128);
    const uint32_t w = at.w + (p.split ? 0 : group * DVK_WGMMA_TAP);
    int column = 0;
    barrier_wait(KIND == FEW || (KIND == WHOLE && p.pro) ? at.x_ready(c.x.slot) : at.x_full(c.x.slot), c.x.parity);
#pragma unroll 1
    for (int tap = 0; tap < taps; tap++) {
        if (c.jobs == 0 || !p.resident) {
            barrier_wait(at.w_full(c.w.slot), c.w.parity);
        }
        const uint64_t b = patch + view * 8;
        const uint64_t a = wgmma_operand(w + c.w.slot * p.w_bytes, 1024);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < K16; k++) {
            wgmma<T, 256>(sum, a + 2 * k, b + 2 * k, k > 0 || c.tap > 0);
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
        if (++column == kw) {
            column = 0;
            view += pitch - kw;
        }
    }
    c.x_used = c.x.slot;
    c.x.advance(p.x_slots, 1 + p.split);
}

/* The store paths that conv_wgmma.c can request of a kernel: own_residual(), sums_chunks(), makes_pixels(). */
CONV_DEVICE constexpr int ways_out(int kind) {
    return WAY_TIMES | (kind == HALF  ? WAY_BARE
                        : kind == FEW ? WAY_BARE | WAY_PIXELS
                                      : WAY_OWN | WAY_SUMS | WAY_PIXELS);
}

template <class T, int KIND> CONV_DEVICE void multiply(const dvk_conv_wgmma &p, const layout &at, int group) {
    const int thread = threadIdx.x & 127;
    consumer c;
    output_ring out = {at.out + group * p.entries * p.entry_bytes, at.residual(group, 0), group};
    if (p.split && group) {
        c.x.advance(p.x_slots);
    }
    wait_for_launch_before();
    conv_tile next = tile_of(p, blockIdx.x, group);
    for (int job = blockIdx.x; job < p.jobs; job += gridDim.x) {
        const conv_tile t = next;
        const int view = (t.phase >> 1) * p.pitch + (t.phase & 1);
        float sum[128]; /* which the first product overwrites */
        wgmma_pin(sum);
        c.tap = 0;
        if (group == 1) {
            barrier_wait(at.turn(1), c.jobs & 1);
        } else if (p.alternate && c.jobs > 0) {
            barrier_wait(at.turn(0), (c.jobs - 1) & 1);
        }
        if (KIND == HALF) {
            for (int chunk = 0; chunk < p.chunks; chunk++) {
                for (int part = 0; part < p.parts; part++) {
                    multiply_chunk<T, 4, KIND>(p, at, c, group, 0, part, out, t, sum);
                }
            }
        }
        for (int chunk = 1; chunk < p.chunks && KIND == WHOLE; chunk++) {
            multiply_chunk<T, 4, KIND>(p, at, c, group, view, 0, out, t, sum);
        }
        if (KIND == FEW && p.few == 4) {
            multiply_chunk<T, 3, KIND>(p, at, c, group, view, 0, out, t, sum);
        } else if (KIND == FEW) {
            multiply_chunk<T, 2, KIND>(p, at, c, group, view, 0, out, t, sum);
        } else if (KIND == WHOLE && p.last_k16 == 4) {
            multiply_chunk<T, 4, KIND>(p, at, c, group, view, 0, out, t, sum);
        } else if (KIND == WHOLE && p.last_k16 == 3) {
            multiply_chunk<T, 3, KIND>(p, at, c, group, view, 0, out, t, sum);
        } else if (KIND == WHOLE && p.last_k16 == 2) {
            multiply_chunk<T, 2, KIND>(p, at, c, group, view, 0, out, t, sum);
        } else if (KIND == WHOLE) {
            multiply_chunk<T, 1, KIND>(p, at, c, group, view, 0, out, t, sum);
        }
        next = tile_of(p, job + gridDim.x, group); /* while the last products are in flight */
        asm volatile("" : "+r"(next.x0), "+r"(next.y0), "+r"(next.n), "+r"(next.chunk));
        wgmma_wait<0>();
        wgmma_pin(sum);
        const int patch = c.x_used;
        if (p.own) {
            out.patch = at.x + patch * p.x_bytes;
            c.x_used = -1;
        }
        c.free_used(at);
        c.jobs++;
        out.store<T, ways_out(KIND)>(p, t, thread, sum);
        if (p.own) {
            c.x_used = patch;
            __syncwarp();
            c.free_used(at);
        }
    }
    if (thread == 0) {
        copy_out_done();
    }
    if (KIND == WHOLE && p.sums) {
        out.store_sums(p, thread);
    }
}

template <class T, int KIND> CONV_DEVICE void convolve(const dvk_conv_wgmma &p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const layout at(p, (uint32_t)__cvta_generic_to_shared(shared));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.x_slots; i++) {
            barrier_init(at.x_full(i), 1);
            barrier_init(at.x_ready(i), KIND == FEW ? DVK_WGMMA_GATHERERS : DVK_WGMMA_HELPERS);
            barrier_init(at.x_empty(i), p.split ? 4 : 8);
        }
        for (int i = 0; i < p.w_slots; i++) {
            barrier_init(at.w_full(i), 1);
            barrier_init(at.w_empty(i), 8);
        }
        barrier_init(at.turn(0), 1);
        for (int i = 0; i < 2 * DVK_WGMMA_MAX_ENTRIES; i++) {
            barrier_init(at.residual(0, i), 1);
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
        if (KIND == FEW) {
            gather<T>(p, at, thread);
        } else if (thread == 0) {
            bring<KIND>(p, at);
        } else if (thread >= 32 && KIND == WHOLE && p.pro) {
            prepare<T>(p, at, thread - 32);
        }
    } else {
        set_registers_up<CONSUMER_REGISTERS>();
        multiply<T, KIND>(p, at, group);
    }
}

} // namespace

#define WGMMA_KERNEL(name, T, KIND)                                                                                    \
    extern "C" __global__ void __launch_bounds__(DVK_WGMMA_THREADS, 1)                                                 \
        name(const __grid_constant__ dvk_conv_wgmma p) {                                                               \
        convolve<T, KIND>(p);                                                                                          \
    }

/* half: stride 2. few: at most four input channels. */
WGMMA_KERNEL(conv_wgmma_bf16, wgmma_bfloat, WHOLE)
WGMMA_KERNEL(conv_wgmma_bf16_half, wgmma_bfloat, HALF)
WGMMA_KERNEL(conv_wgmma_bf16_few, wgmma_bfloat, FEW)
WGMMA_KERNEL(conv_wgmma_f16, wgmma_half, WHOLE)
WGMMA_KERNEL(conv_wgmma_f16_half, wgmma_half, HALF)
WGMMA_KERNEL(conv_wgmma_f16_few, wgmma_half, FEW)
