// attention_wgmma_sm90.cu - attention for heads of 512 channels on Hopper's wgmma. The two blocks of a cluster share
// 128 queries. Each block computes the scores of half of the keys and sums half of the channels, so that the sums fit
// in registers. The blocks exchange the exponentials.
#include "kernels/cuda/attention/attention_wgmma.cuh"
#include "kernels/cuda/attention/attention_wgmma_combine.cuh"

using namespace attention;

namespace {

// A consumer warpgroup. A thread holds rows lane / 4 and lane / 4 + 8 of its warp's 16; index h selects one.
template <typename T> struct consumer {
    const dvk_attention_wgmma_params &p;
    layout at;
    ring_place r;
    int keys;                      // remaining keys from this block's first one on
    int warp, lane;                // warp: of both warpgroups, 0 to 7
    float o[128];                  // sums over the keys so far
    float s[32];                   // scores, then their exponentials
    uint32_t mine[16], theirs[16]; // exponentials as operands
    float frame[2];                // of o and sum
    float found[2];                // of `mine` and `part`
    float sum[2], part[2];
    uint32_t parity = 0; // bit 0: of the inbox, bit 1: of queries and totals

    __device__ __forceinline__ consumer(const dvk_attention_wgmma_params &params, const layout &shared)
        : p(params), at(shared) {
        warp = (int)threadIdx.x / 32 - 4;
        lane = (int)threadIdx.x % 32;
    }

    __device__ __forceinline__ void release(int stage) {
        if (lane == 0) {
            barrier_arrive_at(at.empty(stage));
        }
        __syncwarp();
    }

    __device__ __forceinline__ int stage_before(int count) const {
        return r.stage >= count ? r.stage - count : r.stage + STAGES - count;
    }

    // Issues s = q k^T; the last stage is still in use when it returns.
    __device__ __forceinline__ void scores() {
        uint32_t q_at = at.base + warp / 4 * (DIM / BOX) * Q_BOX;
#pragma unroll
        for (int i = 0; i < DIM / (2 * BOX); i++) {
            barrier_wait(at.full(r.stage), r.phase);
            const uint64_t k = tile_of_rows(at.ring(r.stage));
            asm volatile("" : "+r"(q_at)); // prevents the compiler from holding all 32 descriptors in registers
            const uint64_t q = tile_of_rows(q_at + i * 2 * Q_BOX);
            wgmma_fence();
#pragma unroll
            for (int d = 0; d < 2 * BOX; d += 16) {
                const int inner = (d / BOX * Q_BOX + d % BOX * 2) >> 4;
                wgmma_64(T(), s, q + inner, k + inner, i + d > 0);
            }
            wgmma_commit();
            if (i > 0) {
                wgmma_wait<1>();
                release(stage_before(1));
            }
            r.next();
        }
    }

    // Issues o += (two of the four depths of `a`) v
    __device__ __forceinline__ void values(const uint32_t *a) {
        barrier_wait(at.full(r.stage), r.phase);
        const uint64_t v = tile_of_columns(at.ring(r.stage), V_BOX);
        wgmma_fence();
        wgmma_256(T(), o, a, v);
        wgmma_256(T(), o, a + 4, v + (16 * BOX * 2 >> 4));
        wgmma_commit();
        r.next();
    }

    __device__ __forceinline__ void find_frames() {
        const int left = keys - (lane & 3) * 2;
        if (left < MINE) {
#pragma unroll
            for (int i = 0; i < 32; i++) {
                if (i / 4 * 8 + (i & 1) >= left) {
                    s[i] = -INFINITY;
                }
            }
        }
        keys -= KEYS;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float t = fmaxf(s[2 * h], s[2 * h + 1]);
#pragma unroll
            for (int i = 4; i < 32; i += 4) {
                t = fmaxf(t, fmaxf(s[i + 2 * h], s[i + 2 * h + 1]));
            }
            t = quad_max(t) * p.scale_log2;
            found[h] = raised(frame[h], t);
            part[h] = 0.0f;
        }
    }

    // Exponentials of half of the scores, 0 or 1. They overwrite those of the last step, whose products must have
    // ended.
    __device__ __forceinline__ void exponentials(int half) {
        const float minus[2] = {-from(found[0]), -from(found[1])};
#pragma unroll
        for (int i = half * 16; i < half * 16 + 16; i++) {
            s[i] = exp2_fast(fmaf(s[i], p.scale_log2, minus[i / 2 % 2]));
            part[i / 2 % 2] += s[i];
        }
#pragma unroll
        for (int i = half * 8; i < half * 8 + 8; i++) {
            mine[i] = pack2(T(), s[2 * i], s[2 * i + 1]);
        }
    }

    __device__ __forceinline__ void send() {
        const uint32_t peer = cluster_rank() ^ 1;
        const uint32_t to = cluster_place(at.inbox(warp), peer), barrier = cluster_place(at.arrived(warp), peer);
        barrier_wait(at.taken(warp), parity & 1 ^ 1);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            send4(to + i * 512 + lane * 16, mine + 4 * i, barrier);
        }
        send2(to + 2048 + lane * 8, found[0], found[1], barrier);
    }

    __device__ __forceinline__ void receive(float (&other)[2]) {
        const uint32_t inbox = at.inbox(warp);
        barrier_wait(at.arrived(warp), parity & 1);
        parity ^= 1;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(theirs[4 * i]), "=r"(theirs[4 * i + 1]), "=r"(theirs[4 * i + 2]),
                           "=r"(theirs[4 * i + 3])
                         : "r"(inbox + i * 512 + lane * 16)
                         : "memory");
        }
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(other[0]), "=f"(other[1])
                     : "r"(inbox + 2048 + lane * 8)
                     : "memory");
        __syncwarp();
        if (lane == 0) {
            barrier_expect(at.arrived(warp), DVK_ATTENTION_WGMMA_INBOX_BYTES);
            barrier_arrive_at(cluster_place(at.taken(warp), cluster_rank() ^ 1));
        }
        __syncwarp();
    }

    // Takes the higher of both blocks' frames of this step as the new frame of all sums.
    __device__ __forceinline__ void join(const float (&other)[2]) {
        const bool same = found[0] == frame[0] && other[0] == frame[0] && found[1] == frame[1] && other[1] == frame[1];
        if (__all_sync(0xffffffffu, same)) {
            sum[0] += part[0];
            sum[1] += part[1];
            return;
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float top = fmaxf(found[h], other[h]);
            const float past = exp2_fast(frame[h] - from(top));
            const float own_now = exp2_fast(found[h] - from(top));
            const float other_now = exp2_fast(other[h] - from(top));
            frame[h] = top;
            sum[h] = sum[h] * past + part[h] * own_now;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                mine[2 * i + h] = times(T(), mine[2 * i + h], own_now);
                theirs[2 * i + h] = times(T(), theirs[2 * i + h], other_now);
            }
#pragma unroll
            for (int i = 0; i < 32; i++) {
                o[4 * i + 2 * h] *= past;
                o[4 * i + 2 * h + 1] *= past;
            }
        }
    }

    // Sums of one step, overlapped with the exponentials of the next step.
    template <bool MORE> __device__ __forceinline__ void advance() {
        float other[2];
        if (MORE) {
            scores();
        } else if (lane == 0) {
            barrier_arrive_at(at.queries_empty());
        }
        receive(other);
        join(other);
        values(mine);
        values(mine + 8);
        if (MORE) {
            wgmma_wait<2>();
            wgmma_pin(s);
            release(stage_before(3));
            find_frames();
        }
        wgmma_wait<1>();
        release(stage_before(2));
        values(theirs);
        if (MORE) {
            exponentials(0);
        }
        wgmma_wait<1>();
        release(stage_before(2));
        values(theirs + 8);
        if (MORE) {
            exponentials(1);
            send();
        }
        wgmma_wait<1>();
        release(stage_before(2));
        wgmma_wait<0>();
        wgmma_pin(o);
        release(stage_before(1));
    }

    __device__ __forceinline__ void attend(int steps) {
#pragma unroll
        for (int i = 0; i < 128; i++) {
            o[i] = 0.0f;
        }
        frame[0] = frame[1] = -INFINITY;
        sum[0] = sum[1] = 0.0f;
        barrier_wait(at.queries_full(), parity >> 1);
        scores();
        wgmma_wait<0>();
        wgmma_pin(s);
        release(stage_before(1));
        find_frames();
        exponentials(0);
        exponentials(1);
        send();
        for (int i = 1; i < steps; i++) {
            advance<true>();
        }
        advance<false>();
        add_totals();
        parity ^= 2;
    }

    // Adds each row's sum over the peer's keys
    __device__ __forceinline__ void add_totals() {
        const uint32_t box = at.totals(warp) + lane / 4 * 8, peer = cluster_rank() ^ 1;
        sum[0] = quad_sum(sum[0]);
        sum[1] = quad_sum(sum[1]);
        if ((lane & 3) == 0) {
            send2(cluster_place(box, peer), sum[0], sum[1], cluster_place(at.added(warp), peer));
        }
        barrier_wait(at.added(warp), parity >> 1);
        float other[2];
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(other[0]), "=f"(other[1]) : "r"(box) : "memory");
        sum[0] += other[0];
        sum[1] += other[1];
        __syncwarp();
        if (lane == 0) {
            barrier_expect(at.added(warp), 64);
        }
        __syncwarp();
    }

    __device__ __forceinline__ int row_of(int h) const {
        return warp * 16 + h * 8 + lane / 4;
    }

    __device__ __forceinline__ void store(const segment &g) {
        T *y = (T *)p.y + g.picture(p) * p.y_sn + g.head(p) * DIM + cluster_rank() * HALF + (lane & 3) * 2;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = g.row0(p) + row_of(h);
            const float share = 1.0f / sum[h];
            if (row < p.queries) {
#pragma unroll
                for (int i = 0; i < 32; i++) {
                    *(uint32_t *)(y + row * p.y_sw + i * 8) =
                        pack2(T(), o[4 * i + 2 * h] * share, o[4 * i + 2 * h + 1] * share);
                }
            }
        }
    }

    __device__ __forceinline__ void store_part(int slot) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t row = (int64_t)slot * ROWS + row_of(h);
            float *to = p.sums + row * DIM + cluster_rank() * HALF + (lane & 3) * 2;
#pragma unroll
            for (int i = 0; i < 32; i++) {
                *(float2 *)(to + i * 8) = make_float2(o[4 * i + 2 * h], o[4 * i + 2 * h + 1]);
            }
            if ((lane & 3) == 0 && cluster_rank() == 0) {
                *(float2 *)(p.totals + row * 2) = make_float2(frame[h], sum[h]);
            }
        }
    }

    __device__ __forceinline__ void run() {
        const int pair = (int)blockIdx.x / 2;
        for (int t = begin_of(p, pair); t < begin_of(p, pair + 1);) {
            {
                const segment g(p, t, begin_of(p, pair + 1));
                keys = p.keys - g.first * KEYS - (int)cluster_rank() * MINE;
                attend(g.steps);
            }
            asm volatile("" : "+r"(t)); // recomputed rather than kept, to save registers
            const segment g(p, t, begin_of(p, pair + 1));
            if (g.steps == p.steps) {
                store(g);
            } else {
                store_part(2 * pair + (t != begin_of(p, pair)));
            }
            t += g.steps;
        }
    }
};

__device__ __forceinline__ void prepare(const layout &at) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(at.full(i), 1);
            barrier_init(at.empty(i), 8);
        }
        for (int i = 0; i < 8; i++) {
            barrier_init(at.arrived(i), 1);
            barrier_init(at.taken(i), 1);
            barrier_init(at.added(i), 1);
            barrier_expect(at.arrived(i), DVK_ATTENTION_WGMMA_INBOX_BYTES);
            barrier_expect(at.added(i), 64);
        }
        barrier_init(at.queries_full(), 1);
        barrier_init(at.queries_empty(), 8);
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    cluster_meet();
    wait_for_launch_before();
    let_next_launch_begin();
}

template <typename T>
__device__ __forceinline__ void attend(const void *q, const void *k, const void *v, const dvk_attention_wgmma_params &p,
                                       uint32_t shared) {
    const layout at = {shared};
    const int warp = threadIdx.x / 32;
    const int pair = (int)blockIdx.x / 2, side = (int)cluster_rank();
    prepare(at);
    if (warp < 4) {
        set_registers_down<24>();
        if (threadIdx.x == 0) {
            producer c = {q, k, v, at, side, {}};
            c.run(p, begin_of(p, pair), begin_of(p, pair + 1));
        }
        __syncwarp();
    } else {
        set_registers_up<240>();
        consumer<T> c(p, at);
        c.run();
    }
    cluster_meet(); // the peer may still write to this block's memory
}

} // namespace

extern __shared__ __align__(1024) unsigned char dynamic_shared[];

struct __align__(64) tensor_map { // CUtensorMap
    unsigned char opaque[128];
};

#define ATTENTION(NAME, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(DVK_ATTENTION_WGMMA_THREADS, 1) attention_wgmma_##NAME(               \
        const __grid_constant__ tensor_map q, const __grid_constant__ tensor_map k,                                    \
        const __grid_constant__ tensor_map v, const __grid_constant__ dvk_attention_wgmma_params p) {                  \
        attend<T>(&q, &k, &v, p, shared_address(dynamic_shared));                                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(128)                                                                  \
        attention_wgmma_combine_##NAME(const __grid_constant__ dvk_attention_wgmma_params p) {                         \
        combine<T>(p);                                                                                                 \
    }

ATTENTION(f16, __half)
ATTENTION(bf16, __nv_bfloat16)
