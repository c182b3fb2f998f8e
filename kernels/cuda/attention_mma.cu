// attention_mma.cu - attention for heads of up to 128 channels on mma.sync: one warp holds MT tiles of 16 queries,
// their scores against BN keys and their sums over all channels in registers; exponentials become the next product's
// operand in place. With AHEAD the next step's scores are found among this step's exponentials, where registers allow
// it.
#include "kernels/cuda/attention_mma.cuh"

using namespace attention;

namespace {

template <typename T, int D, int MT, int BN, bool KEEP_Q, bool AHEAD> struct narrow {
    enum {
        WARPS = 4,
        THREADS = WARPS * 32,
        BM = WARPS * MT * 16,
        PITCH = D + 8, // rows of 16 bytes more: eight of them lie in different banks
        STAGES = ASYNC_COPIES || AHEAD ? 2 : 1,
        TILE = BN * PITCH,
        DEPTHS = D / 16,
        BLOCKS = BN / 8
    };
    typedef float scores[MT][BLOCKS][4];

    const dvk_attention_mma_params &p;
    const int lane = threadIdx.x % 32;
    const T *queries, *keys, *vals;
    T *q_tile, *k_tiles, *v_tiles;
    float o[MT][D / 8][4];
    float frame[MT][2], sum[MT][2];
    uint32_t q[KEEP_Q ? MT : 1][KEEP_Q ? DEPTHS : 1][4];

    __device__ __forceinline__ narrow(const dvk_attention_mma_params &params, T *shared) : p(params) {
        const int64_t head = (int64_t)blockIdx.y * p.dim;
        queries = (const T *)p.q.data + blockIdx.z * p.q.sn + head;
        keys = (const T *)p.k.data + blockIdx.z * p.k.sn + head;
        vals = (const T *)p.v.data + blockIdx.z * p.v.sn + head;
        q_tile = shared;
        k_tiles = q_tile + BM * PITCH;
        v_tiles = k_tiles + STAGES * TILE;
    }

    __device__ __forceinline__ void load_keys(int step) {
        load_tile<BN, D, PITCH, THREADS>(k_tiles + step % STAGES * TILE, keys, p.k.sw, step * BN, p.keys, 0, p.dim);
    }

    __device__ __forceinline__ void load_values(int step) {
        load_tile<BN, D, PITCH, THREADS>(v_tiles + step % STAGES * TILE, vals, p.v.sw, step * BN, p.keys, 0, p.dim);
    }

    __device__ __forceinline__ void load_query(uint32_t (&a)[4], int m, int depth) {
        const int row = (threadIdx.x / 32 * MT + m) * 16 + (lane & 15);
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
    __device__ __forceinline__ void score(scores &s, int step, int depth) {
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
        const T *k = k_tiles + step % STAGES * TILE;
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

    __device__ __forceinline__ void mask(scores &s, int keys_left) {
#pragma unroll
        for (int i = 0; i < BLOCKS * 4; i++) {
            if (i / 4 * 8 + (lane & 3) * 2 + (i & 1) >= keys_left) {
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    s[m][i / 4][i % 4] = -INFINITY;
                }
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

    // s = exp(s - frame), of eight keys each in blocks first .. last - 1
    __device__ __forceinline__ void exponentials(scores &s, int first, int last) {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            const float minus = -from(frame[m][h]);
#pragma unroll
            for (int n = 0; n < BLOCKS; n++) {
                if (n >= first && n < last) {
#pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; e++) {
                        s[m][n][e] = exp2_fast(fmaf(s[m][n][e], p.scale_log2, minus));
                        sum[m][h] += s[m][n][e];
                    }
                }
            }
        }
    }

    // o += s v
    __device__ __forceinline__ void add_values(const scores &s, int step) {
        const uint32_t v = shared_address(v_tiles + step % STAGES * TILE + (lane & 15) * PITCH + (lane >> 4) * 8);
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
            const int token = blockIdx.x * BM + (threadIdx.x / 32 * MT + m) * 16 + h * 8 + lane / 4;
            if (token >= p.queries) {
                continue;
            }
            T *y = (T *)p.y.data + blockIdx.z * p.y.sn + (int64_t)token * p.y.sw + (int64_t)blockIdx.y * p.dim +
                   (lane & 3) * 2;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                if (n * 8 < p.dim) {
                    *(uint32_t *)(y + n * 8) = pack2(T(), o[m][n][2 * h] * share, o[m][n][2 * h + 1] * share);
                }
            }
        }
    }

    __device__ __forceinline__ void clear() {
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

    __device__ __forceinline__ void run() {
        const int steps = (p.keys + BN - 1) / BN;
        scores s;
        clear();
        load_tile<BM, D, PITCH, THREADS>(q_tile, queries, p.q.sw, blockIdx.x * BM, p.queries, 0, p.dim);
        load_keys(0);
        load_values(0);
        commit_copies();
        for (int j = 0; j < steps; j++) {
            wait_copies<0>();
            __syncthreads();
            if (j == 0) {
                keep_queries();
            }
            if (STAGES == 2 && j + 1 < steps) {
                load_keys(j + 1);
                load_values(j + 1);
                commit_copies();
            }
#pragma unroll
            for (int d = 0; d < DEPTHS; d++) {
                score(s, j, d);
            }
            if ((j + 1) * BN > p.keys) {
                mask(s, p.keys - j * BN);
            }
            find_frames(s);
            exponentials(s, 0, BLOCKS);
            add_values(s, j);
            if (STAGES == 1 && j + 1 < steps) {
                __syncthreads();
                load_keys(j + 1);
                load_values(j + 1);
            }
        }
        store();
    }

    // Step j's sums, the scores of the step after it meanwhile
    __device__ __forceinline__ void advance(scores &s, scores &next, int j, int steps) {
        wait_copies<0>();
        __syncthreads();
        if (j + 1 < steps) {
            load_keys(j + 2);
            load_values(j + 1);
            commit_copies();
        }
        if ((j + 1) * BN > p.keys) {
            mask(s, p.keys - j * BN);
        }
        find_frames(s);
#pragma unroll
        for (int d = 0; d < DEPTHS; d++) {
            score(next, j + 1, d);
            exponentials(s, d * BLOCKS / DEPTHS, (d + 1) * BLOCKS / DEPTHS);
        }
        add_values(s, j);
    }

    // Keys are loaded a step earlier. The last step finds scores that nobody looks at.
    __device__ __forceinline__ void run_ahead() {
        const int steps = (p.keys + BN - 1) / BN;
        scores even, odd;
        clear();
        load_tile<BM, D, PITCH, THREADS>(q_tile, queries, p.q.sw, blockIdx.x * BM, p.queries, 0, p.dim);
        load_keys(0);
        commit_copies();
        load_keys(1);
        load_values(0);
        commit_copies();
        wait_copies<1>();
        __syncthreads();
        keep_queries();
#pragma unroll
        for (int d = 0; d < DEPTHS; d++) {
            score(even, 0, d);
        }
        for (int j = 0; j < steps; j += 2) {
            advance(even, odd, j, steps);
            if (j + 1 == steps) {
                break;
            }
            advance(odd, even, j + 1, steps);
        }
        store();
    }
};

} // namespace

extern __shared__ __align__(16) unsigned char dynamic_shared[];

#define ATTENTION(NAME, T, D, MT, BN, KEEP_Q, AHEAD)                                                                   \
    extern "C" __global__ void __launch_bounds__(128) NAME(const __grid_constant__ dvk_attention_mma_params p) {       \
        wait_for_launch_ahead();                                                                                       \
        narrow<T, D, MT, BN, KEEP_Q, AHEAD> a(p, (T *)dynamic_shared);                                                 \
        if (AHEAD) {                                                                                                   \
            a.run_ahead();                                                                                             \
        } else {                                                                                                       \
            a.run();                                                                                                   \
        }                                                                                                              \
    }
#define ATTENTION2(D, MT, BN, KEEP_Q, AHEAD)                                                                           \
    ATTENTION(attention_mma_f16_##D##_##MT, __half, D, MT, BN, KEEP_Q, AHEAD)                                          \
    ATTENTION(attention_mma_bf16_##D##_##MT, __nv_bfloat16, D, MT, BN, KEEP_Q, AHEAD)

#ifndef ATTENTION_EXPERIMENT // attention_mma.c knows BN and AHEAD too
ATTENTION2(32, 2, 64, true, true)
ATTENTION2(48, 2, 64, true, false)
ATTENTION2(64, 2, 48, true, true)
ATTENTION2(80, 2, 64, false, false)
ATTENTION2(96, 2, 64, false, false)
ATTENTION2(128, 2, 48, false, false)
#endif
