// attention_kv_mma.cu - attention of many queries over a cache on mma.sync: as attention_mma.cu, each row with the
// positions that it sees. Warps skip the keys that none of their rows sees; queries of one sequence after another where
// a block has several.
#include "kernels/cuda/attention_kv.cuh"
#include "kernels/cuda/attention_mma.cuh"

using namespace attention;

namespace {

__device__ __forceinline__ int warp_min(int x) {
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        x = min(x, __shfl_xor_sync(0xffffffffu, x, i));
    }
    return x;
}

template <typename T, int D, int MT, int BN, int WARPS, bool KEEP_Q> struct many {
    enum {
        THREADS = WARPS * 32,
        BM = WARPS * MT * 16,
        PITCH = D + 8, // rows of 16 bytes more: eight of them lie in different banks
        STAGES = ASYNC_COPIES ? 2 : 1,
        TILE = BN * PITCH,
        DEPTHS = D / 16,
        BLOCKS = BN / 8
    };
    typedef float scores[MT][BLOCKS][4];

    const dvk_attention_kv_params &p;
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * MT * 16;
    const int head, begin, rows; // queries begin .. begin + rows - 1
    const T *keys, *vals;
    T *q_tile, *k_tiles, *v_tiles;
    float o[MT][D / 8][4];
    float frame[MT][2], sum[MT][2];
    int first[MT][2], last[MT][2]; // of a row
    uint32_t q[KEEP_Q ? MT : 1][KEEP_Q ? DEPTHS : 1][4];

    // Later queries see more: their blocks begin first.
    __device__ __forceinline__ many(const dvk_attention_kv_params &params, T *shared)
        : p(params), head(blockIdx.y), begin((gridDim.x - 1 - blockIdx.x) * BM), rows(min((int)BM, p.m - begin)) {
        const int64_t kv = head / (p.heads / p.kv_heads);
        keys = (const T *)p.k.data + kv * p.k.head;
        vals = (const T *)p.v.data + kv * p.v.head;
        q_tile = shared;
        k_tiles = q_tile + BM * PITCH;
        v_tiles = k_tiles + STAGES * TILE;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            frame[m][0] = frame[m][1] = -INFINITY;
            sum[m][0] = sum[m][1] = 0.0f;
#pragma unroll
            for (int i = 0; i < D / 2; i++) {
                o[m][i / 4][i % 4] = 0.0f;
            }
        }
    }

    __device__ __forceinline__ void load_queries() {
        if (p.q.form == form_of(T()) && p.q.vector) {
            const T *from = (const T *)p.q.data + begin * p.q.row + head * p.q.head;
            load_tile<BM, D, PITCH, THREADS>(q_tile, from, (int)p.q.row, 0, rows, 0, p.dim);
            return;
        }
        for (int i = threadIdx.x; i < BM * (D / 4); i += THREADS) {
            const int r = i / (D / 4), c = i % (D / 4) * 4;
            float v[4];
            load4(p.q, r < rows ? (int64_t)(begin + r) * p.q.row + head * p.q.head + c : 0, r < rows ? p.dim - c : 0,
                  v);
            *(uint2 *)(q_tile + r * PITCH + c) = make_uint2(pack2(T(), v[0], v[1]), pack2(T(), v[2], v[3]));
        }
    }

    // Keys and values of one page, `count` of them
    __device__ __forceinline__ void load(int stage, int sequence, int key, int count) {
        const int64_t row = paged_row(p.in, sequence, key);
        load_tile<BN, D, PITCH, THREADS>(k_tiles + stage * TILE, keys + row * p.k.row, (int)p.k.row, 0, count, 0,
                                         p.dim);
        load_tile<BN, D, PITCH, THREADS>(v_tiles + stage * TILE, vals + row * p.v.row, (int)p.v.row, 0, count, 0,
                                         p.dim);
        commit_copies();
    }

    __device__ __forceinline__ void load_query(uint32_t (&a)[4], int m, int depth) {
        const int row = warp_row + m * 16 + (lane & 15);
        ldmatrix4(a, shared_address(q_tile + row * PITCH + (lane >> 4) * 8) + depth * 32);
    }

    __device__ __forceinline__ void keep_queries() {
        if constexpr (KEEP_Q) {
#pragma unroll
            for (int i = 0; i < MT * DEPTHS; i++) {
                load_query(q[i / DEPTHS][i % DEPTHS], i / DEPTHS, i % DEPTHS);
            }
        }
    }

    // s (+)= q k^T over 16 channels
    __device__ __forceinline__ void score(scores &s, int stage, int depth) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            if constexpr (KEEP_Q) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    a[m][i] = q[m][depth][i];
                }
            } else {
                load_query(a[m], m, depth);
            }
        }
        const T *k = k_tiles + stage * TILE;
        const uint32_t at =
            shared_address(k + ((lane & 7) + (lane >> 4) * 8) * PITCH + (lane >> 3 & 1) * 8) + depth * 32;
#pragma unroll
        for (int n = 0; n < BLOCKS; n += 2) {
            uint32_t b[4];
            ldmatrix4(b, at + n * 8 * PITCH * 2);
#pragma unroll
            for (int i = 0; i < 2 * MT; i++) {
                float(&d)[4] = s[i / 2][n + i % 2];
                if (depth == 0) {
                    mma<false>(T(), d, a[i / 2], b[i % 2 * 2], b[i % 2 * 2 + 1]);
                } else {
                    mma<true>(T(), d, a[i / 2], b[i % 2 * 2], b[i % 2 * 2 + 1]);
                }
            }
        }
    }

    __device__ __forceinline__ void mask(scores &s, int key) {
#pragma unroll
        for (int i = 0; i < MT * BLOCKS * 4; i++) {
            const int m = i / (BLOCKS * 4), n = i / 4 % BLOCKS, e = i % 4;
            const int at = key + n * 8 + (lane & 3) * 2 + (e & 1);
            if (at < first[m][e / 2] || at >= last[m][e / 2]) {
                s[m][n][e] = -INFINITY;
            }
        }
    }

    // Where a frame is raised, what has been summed is brought to it.
    __device__ __forceinline__ void find_frames(const scores &s) {
        float shrink[MT][2];
        bool rise = false;
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            float t = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
            for (int n = 1; n < BLOCKS; n++) {
                t = fmaxf(t, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            }
            t = raised(frame[m][h], quad_max(t) * p.scale_log2);
            shrink[m][h] = exp2_fast(frame[m][h] - from(t));
            rise = rise || t != frame[m][h];
            frame[m][h] = t;
        }
        if (!__any_sync(0xffffffffu, rise)) {
            return;
        }
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            sum[m][h] *= shrink[m][h];
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                o[m][n][2 * h] *= shrink[m][h];
                o[m][n][2 * h + 1] *= shrink[m][h];
            }
        }
    }

    __device__ __forceinline__ void exponentials(scores &s) {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            const float minus = -from(frame[m][h]);
#pragma unroll
            for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    s[m][n][e] = exp2_fast(fmaf(s[m][n][e], p.scale_log2, minus));
                    sum[m][h] += s[m][n][e];
                }
            }
        }
    }

    // o += s v
    __device__ __forceinline__ void add_values(const scores &s, int stage) {
        const uint32_t v = shared_address(v_tiles + stage * TILE + (lane & 15) * PITCH + (lane >> 4) * 8);
#pragma unroll
        for (int k = 0; k < BN / 16; k++) {
            uint32_t a[MT][4];
#pragma unroll
            for (int i = 0; i < MT * 4; i++) {
                const float *pair = &s[i / 4][2 * k + i % 4 / 2][i % 2 * 2];
                a[i / 4][i % 4] = pack2(T(), pair[0], pair[1]);
            }
#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
                uint32_t b[4];
                ldmatrix4_trans(b, v + (k * 16 * PITCH + n * 8) * 2);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma<true>(T(), o[m][n], a[m], b[0], b[1]);
                    mma<true>(T(), o[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    __device__ __forceinline__ void store() {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            const float share = 1.0f / quad_sum(sum[m][h]);
            const int row = warp_row + m * 16 + h * 8 + lane / 4;
            if (row >= rows) {
                continue;
            }
            const int64_t at = (int64_t)(begin + row) * p.y.row + head * p.y.head + (lane & 3) * 2;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                const float a = o[m][n][2 * h] * share, b = o[m][n][2 * h + 1] * share;
                if (n * 8 >= p.dim) {
                    continue;
                }
                if (p.y.form == DVK_ROWS_F32) {
                    *(float2 *)((float *)p.y.data + at + n * 8) = make_float2(a, b);
                } else {
                    *(uint32_t *)((uint16_t *)p.y.data + at + n * 8) = bits_of(a, p.y.form) | bits_of(b, p.y.form)
                                                                                                  << 16;
                }
            }
        }
    }

    // What the rows of this thread see, of those from .. to - 1
    __device__ __forceinline__ void look(int from_row, int to_row, int bound) {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int row = warp_row + i / 2 * 16 + i % 2 * 8 + lane / 4;
            span of = {0, 0};
            if (row >= from_row && row < to_row) {
                of = visible(p, begin + row, bound);
            }
            first[i / 2][i % 2] = of.first;
            last[i / 2][i % 2] = of.last;
        }
    }

    // Queries from .. to - 1 of the block, all of one sequence
    __device__ __forceinline__ void run(int from_row, int to_row) {
        const int sequence = sequence_of(p.in, begin + from_row);
        const int bound = bound_before(p, begin + from_row);
        const int end = visible(p, begin + to_row - 1, bound).last; // both rise from row to row
        int start = visible(p, begin + from_row, bound).first;
        start = p.in.table != nullptr ? start / BN * BN : start; // a step lies in one page
        if (from_row > 0) {
            __syncthreads();
        }
        load(0, sequence, start, end - start);
        look(from_row, to_row, bound);
        int any_first = INT_MAX, any_last = 0, all_first = 0, all_last = INT_MAX;
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int f = first[i / 2][i % 2], l = last[i / 2][i % 2];
            any_first = l > 0 ? min(any_first, f) : any_first;
            any_last = max(any_last, l);
            all_first = max(all_first, f);
            all_last = min(all_last, l);
        }
        any_first = warp_min(any_first);
        any_last = -warp_min(-any_last);
        all_first = -warp_min(-all_first);
        all_last = warp_min(all_last);
        const int steps = (end - start + BN - 1) / BN;
        for (int j = 0; j < steps; j++) {
            wait_copies<0>();
            __syncthreads();
            const int key = start + j * BN;
            if (j == 0 && from_row == 0) {
                keep_queries();
            }
            if (STAGES == 2 && j + 1 < steps) {
                load((j + 1) % STAGES, sequence, key + BN, end - key - BN);
            }
            if (key < any_last && key + BN > any_first) {
                scores s;
#pragma unroll
                for (int d = 0; d < DEPTHS; d++) {
                    score(s, j % STAGES, d);
                }
                if (key < all_first || key + BN > all_last) {
                    mask(s, key);
                }
                find_frames(s);
                exponentials(s);
                add_values(s, j % STAGES);
            }
            if (STAGES == 1 && j + 1 < steps) {
                __syncthreads();
                load(0, sequence, key + BN, end - key - BN);
            }
        }
    }

    __device__ __forceinline__ void run_all() {
        load_queries();
        for (int row = 0; row < rows;) {
            const int sequence = sequence_of(p.in, begin + row);
            int to = p.in.sequence == nullptr ? rows : row + 1;
            while (to < rows && sequence_of(p.in, begin + to) == sequence) {
                to++;
            }
            run(row, to);
            row = to;
        }
        store();
    }
};

} // namespace

extern __shared__ __align__(16) unsigned char dynamic_shared[];

#define MANY(NAME, T, D, MT, BN, WARPS, KEEP_Q)                                                                        \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) NAME(const __grid_constant__ dvk_attention_kv_params p) { \
        wait_for_launch_ahead();                                                                                       \
        many<T, D, MT, BN, WARPS, KEEP_Q>(p, (T *)dynamic_shared).run_all();                                           \
    }
#define MANY2(D, MT, BN, WARPS, KEEP_Q)                                                                                \
    MANY(attention_kv_mma_f16_##D##_##MT, __half, D, MT, BN, WARPS, KEEP_Q)                                            \
    MANY(attention_kv_mma_bf16_##D##_##MT, __nv_bfloat16, D, MT, BN, WARPS, KEEP_Q)

// attention_kv_mma.c knows MT and BN too
MANY2(32, 2, 64, 4, true)
MANY2(64, 1, 64, 4, true)
MANY2(64, 2, 64, 4, true)
MANY2(80, 1, 64, 4, false)
MANY2(80, 2, 64, 4, false)
MANY2(96, 2, 64, 4, false)
MANY2(128, 1, 32, 4, false)
MANY2(128, 2, 32, 4, false)
