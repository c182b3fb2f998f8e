// linear_stream_sm90.cu - see linear_stream.c. Every warp has a separate stream: bulk copies bring pieces of its rows
// into a ring buffer in shared memory, as far ahead as the ring allows. They start before the launch waits for the
// preceding one. A dedicated producer warp issues the copies, because the copy engine accepts requests only as fast as
// it serves them.
#include "kernels/cuda/common/hopper_ptx.cuh"
#include "kernels/cuda/linear/linear_stream.h"
#define FEW_STAGING (STREAM_WARPS * 32)
#include "kernels/cuda/linear/linear_few.cuh"

// Barrier of all consumer warps.
__device__ __forceinline__ void sync_multiplying() {
    asm volatile("bar.sync 1, %0;" ::"n"(STREAM_WARPS * 32) : "memory");
}

struct stream_unit {
    int group, slab; // group: counted from the block's first
};

template <int KIND, int M, int R> struct stream {
    const dvk_linear_stream_params &p;
    unsigned char *shared;
    uint32_t rings, bars; // of all warps
    int lane, warp;       // STREAM_WARPS: the producer
    int first, units;     // group and units of this block

    __device__ stream(const dvk_linear_stream_params &of, unsigned char *memory, uint64_t *barriers)
        : p(of), shared(memory) {
        lane = threadIdx.x & 31;
        warp = threadIdx.x >> 5;
        first = (int)((int64_t)blockIdx.x * p.groups / gridDim.x);
        units = ((int)((int64_t)(blockIdx.x + 1) * p.groups / gridDim.x) - first) * p.slabs;
        rings = (uint32_t)__cvta_generic_to_shared(memory + p.ring_at);
        bars = (uint32_t)__cvta_generic_to_shared(barriers);
    }

    __device__ int outputs() const {
        return p.few.glu ? R / 2 : R;
    }

    __device__ int chunks_of(int slab) const {
        return min(p.slab, p.few.chunks - slab * p.slab);
    }

    __device__ void next(stream_unit &u) const {
        u.group += p.whole;
        u.slab += p.rest;
        if (u.slab >= p.slabs) {
            u.slab -= p.slabs;
            u.group++;
        }
    }

    __device__ uint32_t bar_of(int of, int stage) const {
        return bars + 8 * (of * STREAM_STAGES + stage);
    }

    // Fetches a unit for warp `of`. If a unit is whole rows, contiguous rows are one copy.
    __device__ void fetch_unit(const stream_unit &u, int of, int stage) const {
        const int row = (first + u.group) * outputs();
        const uint32_t last = min(outputs(), p.few.n - row);
        const uint32_t together = p.slabs == 1 ? last : 1;
        const uint32_t bytes = chunks_of(u.slab) * 16;
        const uint32_t bar = bar_of(of, stage);
        const unsigned char *w = p.few.w + row * p.few.w_row + u.slab * p.slab * 16;
        uint32_t to = rings + (of * p.stages + stage) * p.stage_bytes;
        barrier_expect(bar, last * (p.few.glu ? 2 : 1) * bytes);
        for (int half = 0; half <= p.few.glu; half++) {
            for (uint32_t r = 0; r < last; r += together) {
                copy_bulk(to + r * p.slab * 16, w + r * p.few.w_row, together * bytes, bar);
            }
            to += R / 2 * p.slab * 16;
            w += p.few.n * p.few.w_row;
        }
    }

    // Prefetches the part that does not fit in the rings at first. The rows of a block are contiguous.
    __device__ void look_ahead() const {
        const int groups = units / p.slabs;
        const int from = min((STREAM_WARPS * p.stages + p.slabs - 1) / p.slabs, groups);
        const int row = (first + from) * outputs();
        const int64_t bytes =
            (int64_t)(min((first + min(from + p.ahead, groups)) * outputs(), p.few.n) - row) * p.few.w_row;
        constexpr int64_t PIECE = 8192;
        for (int half = 0; half <= p.few.glu; half++) {
            const unsigned char *w = p.few.w + (int64_t)(row + half * p.few.n) * p.few.w_row;
            for (int64_t at = 0; at < bytes; at += PIECE) {
                copy_bulk_ahead(w + at, (uint32_t)min(PIECE, bytes - at));
            }
        }
    }

    // Runs on one thread.
    __device__ void ask() const {
        for (int unit = 0; unit < min(p.stages * STREAM_WARPS, units); unit++) {
            fetch_unit({unit / p.slabs, unit % p.slabs}, unit % STREAM_WARPS, unit / STREAM_WARPS);
        }
        look_ahead();
    }

    __device__ void multiply(int slab, int stage, float *sums) const {
        const int count = chunks_of(slab);
        const unsigned char *from = shared + p.ring_at + (warp * p.stages + stage) * p.stage_bytes;
        const uint4 *x = (const uint4 *)shared;
        const int row = x_row<KIND>(p.few.phase);
        float sum[R * M] = {};
#pragma unroll 4
        for (int chunk = lane; chunk < count; chunk += 32) {
            few_chunk c[R];
#pragma unroll
            for (int r = 0; r < R; r++) {
                c[r].w = *(const uint4 *)(from + (r * p.slab + chunk) * 16);
            }
            add_float<KIND, M, R>(c, x, row, p.few.phase, slab * p.slab + chunk, sum);
        }
        const float mine = sum_lanes<R * M>(sum);
        constexpr int LANES = 32 / (R * M);
        if (lane % LANES == 0) {
            sums[lane / LANES] = mine;
        }
    }

    // early: extras of each thread's first result of the block
    __device__ void finish(int from, int groups, const float *sums, const float *squares,
                           const few_extras &early) const {
        for (int i = threadIdx.x; i < groups * outputs() * M; i += STREAM_WARPS * 32) {
            const int t = i % M;
            const int r = i / M % outputs();
            const int g = i / M / outputs();
            const int o = (first + from + g) * outputs() + r;
            if (o < p.few.n && t < p.few.m) {
                float a = 0.0f;
                float b = 0.0f;
                for (int s = 0; s < p.slabs; s++) {
                    const float *of = sums + (g * p.slabs + s) * (R * M);
                    a += of[r * M + t];
                    b += p.few.glu ? of[(r + R / 2) * M + t] : 0.0f;
                }
                const float scale = p.few.norm != nullptr ? scale_of(p.few, squares, t) : 1.0f;
                const bool first_one = from == 0 && i == (int)threadIdx.x;
                put_result(p.few, t, o, a * scale, b * scale, first_one ? early : extras_of(p.few, t, o));
            }
        }
    }

    __device__ void stage_rows(float *kept) const {
        uint4 *x = (uint4 *)shared;
        if (p.few.norm == nullptr) {
            stage_float<KIND, M>(p.few, x, 0, p.few.chunks);
        } else {
            float squares[M] = {};
            wait_until_brought();
            stage_changed<KIND, M>(p.few, x, (const float4 *)(shared + p.few.norm_at), 0, p.few.chunks, squares);
            keep_squares<M>(squares, kept);
        }
        sync_multiplying();
    }

    __device__ void run(float *kept) const {
        let_next_launch_begin();
        if (threadIdx.x == STREAM_WARPS * 32) {
            for (int i = 0; i < STREAM_WARPS * STREAM_STAGES; i++) {
                barrier_init(bars + 8 * i, 1);
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
        if (warp == STREAM_WARPS) {
            if (lane == 0) {
                ask();
            }
            return;
        }
        bring_norm(p.few, (uint4 *)(shared + p.few.norm_at));
        wait_for_launch_before();
        const int o = first * outputs() + (int)threadIdx.x / M;
        const bool some = (int)threadIdx.x < units / p.slabs * outputs() * M;
        const few_extras early = extras_of(p.few, threadIdx.x % M, some ? o : p.few.n);
        stage_rows(kept);
        go_through(kept, early);
    }

    __device__ void go_through(const float *kept, const few_extras &early) const {
        stream_unit at = {warp / p.slabs, warp % p.slabs}, ahead = at;
        for (int s = 0; s < p.stages; s++) {
            next(ahead);
        }
        int stage = 0;
        uint32_t parity = 0;
        const int per_round = p.round * p.slabs;
        float *sums = (float *)(shared + p.sums_at);
        for (int base = 0, odd = 0; base < units; base += per_round, odd ^= 1) {
            const int end = min(base + per_round, units);
            float *own = sums + odd * (p.sums_bytes / 4);
            for (int unit = base + warp; unit < end; unit += STREAM_WARPS, next(at), next(ahead)) {
                barrier_wait(bar_of(warp, stage), parity);
                multiply(at.slab, stage, own + (unit - base) * (R * M));
                __syncwarp();
                if (lane == 0 && unit + p.stages * STREAM_WARPS < units) {
                    fetch_unit(ahead, warp, stage);
                }
                stage = stage + 1 == p.stages ? 0 : stage + 1;
                parity ^= stage == 0;
            }
            sync_multiplying();
            finish(base / p.slabs, (end - base) / p.slabs, own, kept, early);
        }
    }
};

template <int KIND, int M, int R> __device__ __forceinline__ void stream_rows(const dvk_linear_stream_params &p) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ uint64_t barriers[STREAM_WARPS * STREAM_STAGES];
    __shared__ float kept[M * FEW_WARPS];
    const stream<KIND, M, R> work(p, memory, barriers);
    work.run(kept);
}

#define STREAM(NAME, KIND, M, R)                                                                                       \
    extern "C" __global__ void __launch_bounds__((STREAM_WARPS + 1) * 32)                                              \
        linear_stream_##NAME##_##M(const __grid_constant__ dvk_linear_stream_params p) {                               \
        stream_rows<KIND, M, R>(p);                                                                                    \
    }
STREAM(f32, LIN_F32, 1, 2)
STREAM(f32, LIN_F32, 2, 2)
STREAM(f16, LIN_F16, 1, 2)
STREAM(f16, LIN_F16, 2, 2)
STREAM(bf16, LIN_BF16, 1, 2)
STREAM(bf16, LIN_BF16, 2, 2)
