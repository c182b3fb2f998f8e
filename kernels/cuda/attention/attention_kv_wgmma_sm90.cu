// attention_kv_wgmma_sm90.cu - attention of many queries over a cache on Hopper's wgmma. One producer warp copies keys
// and values; two consumer warpgroups have 64 queries each. The exponentials of a step overlap the products of the
// previous step.
#include <type_traits>

#include "kernels/cuda/attention/attention_kv_wgmma.cuh"

using namespace attention;

namespace {

// A consumer warpgroup. A thread holds rows lane / 4 and lane / 4 + 8 of its warp's 16; index h selects one.
template <typename T, int D> struct consumer {
    enum { PIECES = (D + 63) / 64, STEPS = D / 16 };
    const dvk_attention_kv_params &p;
    const layout<PIECES> at;
    const int head, begin, rows, group, lane;
    const int own; // first row of this thread
    place keys, values;
    float o[D / 2], s[KEYS / 2];
    uint32_t weights[KEYS / 4];
    float frame[2], sum[2];
    int first[2], last[2];

    __device__ __forceinline__ consumer(const dvk_attention_kv_params &params, const layout<PIECES> &shared, int h,
                                        int b, int n)
        : p(params), at(shared), head(h), begin(b), rows(n), group((int)threadIdx.x / 128 - 1),
          lane((int)threadIdx.x % 32), own((int)threadIdx.x / 32 * 16 - 64 + lane / 4) {
#pragma unroll
        for (int i = 0; i < D / 2; i++) {
            o[i] = 0.0f;
        }
        frame[0] = frame[1] = -INFINITY;
        sum[0] = sum[1] = 0.0f;
    }

    // This group's 64 rows in the swizzled layout
    __device__ __forceinline__ void load_queries() {
        for (int i = (int)threadIdx.x % 128; i < 64 * PIECES * 8; i += 128) {
            const int r = i / (PIECES * 8), c = i % (PIECES * 8) * 8, row = group * 64 + r;
            const int count = row < rows ? p.dim - c : 0;
            const int64_t from = count > 0 ? (int64_t)(begin + row) * p.q.row + head * p.q.head + c : 0;
            uint4 x;
            if (count >= 8 && p.q.form == form_of(T()) && p.q.vector) {
                const uint2 a = *(const uint2 *)((const T *)p.q.data + from);
                const uint2 b = *(const uint2 *)((const T *)p.q.data + from + 4);
                x = make_uint4(a.x, a.y, b.x, b.y);
            } else {
                float a[4], b[4];
                load4(p.q, from, count, a);
                load4(p.q, from + 4, count - 4, b);
                x = make_uint4(pack2(T(), a[0], a[1]), pack2(T(), a[2], a[3]), pack2(T(), b[0], b[1]),
                               pack2(T(), b[2], b[3]));
            }
            const uint32_t to = at.queries(group) + c / 64 * (TILE / 2) + r * 128 + ((c / 8 % 8) ^ (r % 8)) * 16;
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                         : "memory");
        }
        fence_async();
        named_barrier(1 + group, 128);
    }

    __device__ __forceinline__ void release(int ring, int stage) {
        if (lane == 0) {
            barrier_arrive(at.empty(ring, stage));
        }
        __syncwarp();
    }

    __device__ __forceinline__ void skip(int from, int to) {
        for (int j = from; j < to; j++) {
            barrier_wait(at.full(0, keys.stage), keys.phase);
            release(0, keys.stage);
            keys.next();
            barrier_wait(at.full(1, values.stage), values.phase);
            release(1, values.stage);
            values.next();
        }
    }

    // Issues s = q k^T
    __device__ __forceinline__ void scores() {
        barrier_wait(at.full(0, keys.stage), keys.phase);
        const uint64_t q = wgmma_operand(at.queries(group), 1024), k = wgmma_operand(at.tile(0, keys.stage), 1024);
        wgmma_fence();
#pragma unroll
        for (int d = 0; d < STEPS; d++) {
            const int inner = d % 4 * 32;
            wgmma_product<std::is_same<T, __nv_bfloat16>::value, 128>(s, q + ((d / 4 * (TILE / 2) + inner) >> 4),
                                                                      k + ((d / 4 * TILE + inner) >> 4), d > 0);
        }
        wgmma_commit();
    }

    // Issues o += weights v. The last step's values may contain arbitrary data behind the last key.
    __device__ __forceinline__ void add_values(int valid) {
        const uint32_t tile = at.tile(1, values.stage);
        barrier_wait(at.full(1, values.stage), values.phase);
        if (valid < KEYS) {
            for (int i = valid * 8 + (int)threadIdx.x % 128; i < KEYS * 8; i += 128) {
#pragma unroll
                for (int c = 0; c < PIECES; c++) {
                    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(tile + c * TILE + i * 16), "r"(0)
                                 : "memory");
                }
            }
            fence_async();
            named_barrier(1 + group, 128);
        }
        const uint64_t v = columns(tile);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) {
            kv_values(T(), o, weights + 4 * k, v + (k * 16 * 128 >> 4));
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void mask(int key) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            const int place = key + i / 4 * 8 + (lane & 3) * 2 + (i & 1), h = i / 2 % 2;
            if (place < first[h] || place >= last[h]) {
                s[i] = -INFINITY;
            }
        }
    }

    // Converts s to exponentials. Returns true if earlier sums must be multiplied by `shrink`.
    __device__ __forceinline__ bool weigh(float (&shrink)[2]) {
        bool rise = false;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float t = fmaxf(s[2 * h], s[2 * h + 1]);
#pragma unroll
            for (int i = 4; i < KEYS / 2; i += 4) {
                t = fmaxf(t, fmaxf(s[i + 2 * h], s[i + 2 * h + 1]));
            }
            t = raised(frame[h], quad_max(t) * p.scale_log2);
            shrink[h] = exp2_fast(frame[h] - from(t));
            rise = rise || t != frame[h];
            frame[h] = t;
            sum[h] *= shrink[h];
        }
        const float minus[2] = {-from(frame[0]), -from(frame[1])};
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            s[i] = exp2_fast(fmaf(s[i], p.scale_log2, minus[i / 2 % 2]));
            sum[i / 2 % 2] += s[i];
        }
        // always false, as no sum is negative: the dependence makes the vote wait for all exponentials, see advance()
        return __any_sync(0xffffffffu, rise || sum[0] + sum[1] < 0.0f);
    }

    __device__ __forceinline__ void pack_weights() {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            weights[i] = pack2(T(), s[2 * i], s[2 * i + 1]);
        }
    }

    __device__ __forceinline__ void shrink_sums(const float (&shrink)[2]) {
#pragma unroll
        for (int i = 0; i < D / 2; i++) {
            o[i] *= shrink[i / 2 % 2];
        }
    }

    struct limits { // over the group's rows: keys that any row sees, keys that all rows see
        int any_first, any_last, all_first, all_last;
    };

    __device__ __forceinline__ limits look(const segment &g) {
        const int low = max(g.from_row, group * 64), high = min(g.to_row, group * 64 + 64) - 1;
        if (low > high) {
            return {0, 0, 0, 0};
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = own + h * 8;
            span of = {0, 0};
            if (row >= g.from_row && row < g.to_row) {
                of = visible(p, begin + row, g.bound);
            }
            first[h] = of.first;
            last[h] = of.last;
        }
        const span lowest = visible(p, begin + low, g.bound), highest = visible(p, begin + high, g.bound);
        return {lowest.first, highest.last, high - low == 63 ? highest.first : INT_MAX, lowest.last};
    }

    __device__ __forceinline__ void settle(const segment &g, const limits &l, int step, float (&shrink)[2],
                                           bool &rise) {
        const int key = g.start + step * KEYS;
        wgmma_pin(s);
        release(0, keys.stage);
        keys.next();
        if (key < l.all_first || key + KEYS > l.all_last) {
            mask(key);
        }
        rise = weigh(shrink);
    }

    // Sums of one step, overlapped with the exponentials of the next step
    template <bool MORE> __device__ __forceinline__ void advance(const segment &g, const limits &l, int step) {
        float shrink[2];
        bool rise = false;
        if (MORE) {
            scores();
        }
        add_values(g.end - g.start - step * KEYS);
        if (MORE) {
            wgmma_wait<1>();
            settle(g, l, step + 1, shrink, rise);
        }
        if (MORE && rise) { // the branch keeps the exponentials before the wait, so that they overlap the products
            asm volatile("wgmma.wait_group.sync.aligned 0; // and shrink" ::: "memory");
            wgmma_pin(o);
            shrink_sums(shrink);
        } else {
            wgmma_wait<0>();
            wgmma_pin(o);
        }
        release(1, values.stage);
        values.next();
        if (MORE) {
            pack_weights();
        }
    }

    __device__ __forceinline__ void run(const segment &g) {
        const limits l = look(g);
        const int from_step = l.any_last > 0 ? (l.any_first - g.start) / KEYS : g.steps;
        const int to_step = l.any_last > 0 ? (l.any_last - g.start + KEYS - 1) / KEYS : g.steps;
        skip(0, from_step);
        if (from_step < to_step) {
            float shrink[2];
            bool rise;
            scores();
            wgmma_wait<0>();
            settle(g, l, from_step, shrink, rise);
            if (rise) {
                shrink_sums(shrink);
            }
            pack_weights();
            for (int j = from_step; j + 1 < to_step; j++) {
                advance<true>(g, l, j);
            }
            advance<false>(g, l, to_step - 1);
        }
        skip(to_step, g.steps);
    }

    __device__ __forceinline__ void store() {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float share = 1.0f / quad_sum(sum[h]);
            const int row = own + h * 8;
            if (row >= rows) {
                continue;
            }
            const int64_t to = (int64_t)(begin + row) * p.y.row + head * p.y.head + (lane & 3) * 2;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                const float a = o[4 * n + 2 * h] * share, b = o[4 * n + 2 * h + 1] * share;
                if (n * 8 >= p.dim) {
                    continue;
                }
                if (p.y.form == DVK_ROWS_F32) {
                    *(float2 *)((float *)p.y.data + to + n * 8) = make_float2(a, b);
                } else {
                    *(uint32_t *)((uint16_t *)p.y.data + to + n * 8) = bits_of(a, p.y.form) | bits_of(b, p.y.form)
                                                                                                  << 16;
                }
            }
        }
    }
};

template <int PIECES> __device__ __forceinline__ void prepare(const layout<PIECES> &at) {
    if (threadIdx.x == 0) {
        for (int ring = 0; ring < 2; ring++) {
            for (int i = 0; i < STAGES; i++) {
                barrier_init(at.full(ring, i), 1);
                barrier_init(at.empty(ring, i), WARPS);
            }
        }
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    wait_for_launch_before();
    let_next_launch_begin();
}

// Later queries see more keys, so their blocks begin first.
template <typename T, int D>
__device__ __forceinline__ void attend(const void *k, const void *v, const dvk_attention_kv_params &p,
                                       uint32_t shared) {
    constexpr int PIECES = (D + 63) / 64;
    const layout<PIECES> at = {shared};
    const int head = blockIdx.x, begin = (gridDim.y - 1 - blockIdx.y) * ROWS, rows = min((int)ROWS, p.m - begin);
    prepare(at);
    if (threadIdx.x < 128) {
        set_registers_down<24>();
        if (threadIdx.x < 32) {
            producer<PIECES> c = {p, at, {k, v}, head / (p.heads / p.kv_heads), {}};
            c.run(begin, rows);
        }
    } else {
        set_registers_up<240>();
        consumer<T, D> c(p, at, head, begin, rows);
        c.load_queries();
        for (int row = 0; row < rows;) {
            const segment g(p, begin, rows, row);
            c.run(g);
            row = g.to_row;
        }
        c.store();
    }
}

} // namespace

extern __shared__ __align__(1024) unsigned char dynamic_shared[];

struct __align__(64) tensor_map { // CUtensorMap
    unsigned char opaque[128];
};

#define ATTENTION_KV(NAME, T, D)                                                                                       \
    extern "C" __global__ void __launch_bounds__(DVK_ATTENTION_KV_WGMMA_THREADS, 1)                                    \
        NAME(const __grid_constant__ tensor_map k, const __grid_constant__ tensor_map v,                               \
             const __grid_constant__ dvk_attention_kv_params p) {                                                      \
        attend<T, D>(&k, &v, p, shared_address(dynamic_shared));                                                       \
    }
#define ATTENTION_KV2(D)                                                                                               \
    ATTENTION_KV(attention_kv_wgmma_f16_##D, __half, D)                                                                \
    ATTENTION_KV(attention_kv_wgmma_bf16_##D, __nv_bfloat16, D)

ATTENTION_KV2(64)
ATTENTION_KV2(80)
ATTENTION_KV2(96)
ATTENTION_KV2(128)
