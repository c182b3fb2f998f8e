// attention_mma.cu - attention for heads of up to 128 channels on mma.sync. With AHEAD, the scores of the next step
// overlap the exponentials of this step, if registers suffice.
#include "kernels/cuda/attention/attention_mma_tiles.cuh"

using namespace attention;

namespace {

template <typename T, int D, int MT, int BN, bool KEEP_Q, bool AHEAD>
struct narrow : mma_tiles<T, D, MT, BN, 4, ASYNC_COPIES || AHEAD ? 2 : 1, KEEP_Q> {
    using tiles = mma_tiles<T, D, MT, BN, 4, ASYNC_COPIES || AHEAD ? 2 : 1, KEEP_Q>;
    using tiles::lane, tiles::q_tile, tiles::k_tiles, tiles::v_tiles, tiles::o, tiles::sum;
    using tiles::THREADS, tiles::BM, tiles::PITCH, tiles::STAGES, tiles::TILE, tiles::DEPTHS, tiles::BLOCKS;
    using typename tiles::scores;

    const dvk_attention_mma_params &p;
    const T *queries, *keys, *vals;

    __device__ __forceinline__ narrow(const dvk_attention_mma_params &params, T *shared) : p(params) {
        const int64_t head = (int64_t)blockIdx.y * p.dim;
        queries = (const T *)p.q.data + blockIdx.z * p.q.sn + head;
        keys = (const T *)p.k.data + blockIdx.z * p.k.sn + head;
        vals = (const T *)p.v.data + blockIdx.z * p.v.sn + head;
        this->place(shared);
    }

    __device__ __forceinline__ void load_keys(int step) {
        load_tile<BN, D, PITCH, THREADS>(k_tiles + step % STAGES * TILE, keys, p.k.sw, step * BN, p.keys, 0, p.dim);
    }

    __device__ __forceinline__ void load_values(int step) {
        load_tile<BN, D, PITCH, THREADS>(v_tiles + step % STAGES * TILE, vals, p.v.sw, step * BN, p.keys, 0, p.dim);
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

    __device__ __forceinline__ void run() {
        const int steps = (p.keys + BN - 1) / BN;
        scores s;
        this->clear();
        load_tile<BM, D, PITCH, THREADS>(q_tile, queries, p.q.sw, blockIdx.x * BM, p.queries, 0, p.dim);
        load_keys(0);
        load_values(0);
        commit_copies();
        for (int j = 0; j < steps; j++) {
            wait_copies<0>();
            __syncthreads();
            if (j == 0) {
                this->keep_queries();
            }
            if (STAGES == 2 && j + 1 < steps) {
                load_keys(j + 1);
                load_values(j + 1);
                commit_copies();
            }
#pragma unroll
            for (int d = 0; d < DEPTHS; d++) {
                this->score(s, j % STAGES, d);
            }
            if ((j + 1) * BN > p.keys) {
                mask(s, p.keys - j * BN);
            }
            this->find_frames(s, p.scale_log2);
            this->exponentials(s, p.scale_log2, 0, BLOCKS);
            this->add_values(s, j % STAGES);
            if (STAGES == 1 && j + 1 < steps) {
                __syncthreads();
                load_keys(j + 1);
                load_values(j + 1);
            }
        }
        store();
    }

    // Sums of step j, overlapped with the scores of the next step
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
        this->find_frames(s, p.scale_log2);
#pragma unroll
        for (int d = 0; d < DEPTHS; d++) {
            this->score(next, (j + 1) % STAGES, d);
            this->exponentials(s, p.scale_log2, d * BLOCKS / DEPTHS, (d + 1) * BLOCKS / DEPTHS);
        }
        this->add_values(s, j % STAGES);
    }

    // Keys are loaded one step early. The last step computes unused scores.
    __device__ __forceinline__ void run_ahead() {
        const int steps = (p.keys + BN - 1) / BN;
        scores even, odd;
        this->clear();
        load_tile<BM, D, PITCH, THREADS>(q_tile, queries, p.q.sw, blockIdx.x * BM, p.queries, 0, p.dim);
        load_keys(0);
        commit_copies();
        load_keys(1);
        load_values(0);
        commit_copies();
        wait_copies<1>();
        __syncthreads();
        this->keep_queries();
#pragma unroll
        for (int d = 0; d < DEPTHS; d++) {
            this->score(even, 0, d);
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

#ifndef ATTENTION_EXPERIMENT // keep BN and AHEAD in step with attention_mma.c
ATTENTION2(32, 2, 64, true, true)
ATTENTION2(48, 2, 64, true, false)
ATTENTION2(64, 2, 48, true, true)
ATTENTION2(80, 2, 64, false, false)
ATTENTION2(96, 2, 64, false, false)
ATTENTION2(128, 2, 48, false, false)
#endif
