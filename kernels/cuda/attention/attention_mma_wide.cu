// attention_mma_wide.cu - attention for heads of 129 to 512 channels on mma.sync. Four warps share the same MT * 16
// queries. Each computes the scores of a quarter of the keys of a step and sums a quarter of the channels. Scores are
// exchanged through shared memory. Keys and values stream in parts of 16 KiB.
#include "kernels/cuda/attention/attention_mma.cuh"

using namespace attention;

namespace {

template <typename T, int D, int MT, int BN, int PARTS_HELD> struct wide {
    enum {
        GROUPS = 2, // of four warps
        THREADS = GROUPS * 128,
        ROWS = MT * 16, // of a group
        BM = GROUPS * ROWS,
        NT = BN / 32, // pieces of eight keys of a warp
        K_COLS = 8192 / BN,
        V_ROWS = 8192 / D,
        K_PARTS = D / K_COLS,
        PARTS = K_PARTS + BN / V_ROWS, // per step
        STAGES = ASYNC_COPIES ? PARTS_HELD : 1,
        PITCH = D + 8,
        K_PITCH = K_COLS + 8,
        P_PITCH = BN + 8,
        PART = BN * K_PITCH > V_ROWS *PITCH ? BN *K_PITCH : V_ROWS *PITCH
    };
    const dvk_attention_mma_params &p;
    const T *k, *v;
    T *q_tile, *p_tile, *parts;
    float *tops; // [4][BM]
    int lane, share, row0;
    float o[MT][D / 32][4], s[MT][NT][4];
    float frame[MT][2], sum[MT][2];

    __device__ __forceinline__ wide(const dvk_attention_mma_params &params, T *shared) : p(params) {
        lane = threadIdx.x % 32;
        share = threadIdx.x / 32 % 4;
        row0 = threadIdx.x / 128 * ROWS;
        q_tile = shared;
        p_tile = q_tile + BM * PITCH;
        parts = p_tile + BM * P_PITCH;
        tops = (float *)(parts + STAGES * PART);
        k = (const T *)p.k.data + blockIdx.z * p.k.sn + (int64_t)blockIdx.y * p.dim;
        v = (const T *)p.v.data + blockIdx.z * p.v.sn + (int64_t)blockIdx.y * p.dim;
    }

    __device__ __forceinline__ void load_part(int i) {
        T *to = parts + i % STAGES * PART;
        const int first = i / PARTS * BN;
        const int part = i % PARTS;
        if (part < K_PARTS) {
            load_tile<BN, K_COLS, K_PITCH, THREADS>(to, k, p.k.sw, first, p.keys, part * K_COLS, p.dim);
        } else {
            const int row = first + (part - K_PARTS) * V_ROWS;
            load_tile<V_ROWS, D, PITCH, THREADS>(to, v, p.v.sw, row, p.keys, 0, p.dim);
        }
    }

    // Returns part i; later parts are in flight.
    __device__ __forceinline__ const T *next_part(int i, int count) {
        if (STAGES == 1) {
            __syncthreads();
            load_part(i);
        }
        wait_copies<(STAGES > 2 ? STAGES - 2 : 0)>();
        __syncthreads();
        if (STAGES > 1) {
            if (i + STAGES - 1 < count) {
                load_part(i + STAGES - 1);
            }
            commit_copies();
        }
        return parts + i % STAGES * PART;
    }

    __device__ __forceinline__ void scores(const T *tile, int c0) {
        const uint32_t qa = shared_address(q_tile + (row0 + (lane & 15)) * PITCH + c0 + (lane >> 4) * 8);
        const uint32_t ka =
            shared_address(tile + (share * (BN / 4) + (lane & 7) + (lane >> 4) * 8) * K_PITCH + (lane >> 3 & 1) * 8);
#pragma unroll
        for (int d = 0; d < K_COLS; d += 16) {
            uint32_t b[NT / 2][4];
#pragma unroll
            for (int n = 0; n < NT / 2; n++) {
                ldmatrix4(b[n], ka + (n * 16 * K_PITCH + d) * 2);
            }
#pragma unroll
            for (int m = 0; m < MT; m++) {
                uint32_t a[4];
                ldmatrix4(a, qa + (m * 16 * PITCH + d) * 2);
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    mma<true>(T(), s[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
                }
            }
        }
    }

    __device__ __forceinline__ void mask(int keys_left) {
#pragma unroll
        for (int i = 0; i < 4 * NT; i++) {
            if (share * (BN / 4) + i / 4 * 8 + (lane & 3) * 2 + (i & 1) >= keys_left) {
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    s[m][i / 4][i % 4] = -INFINITY;
                }
            }
        }
    }

    // Writes the exponentials of the scores to p_tile; all four warps share the maximum of each row.
    __device__ __forceinline__ void softmax() {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2 * 2;
            float t = fmaxf(s[m][0][h], s[m][0][h + 1]);
#pragma unroll
            for (int n = 1; n < NT; n++) {
                t = fmaxf(t, fmaxf(s[m][n][h], s[m][n][h + 1]));
            }
            const float most = quad_max(t) * p.scale_log2;
            if ((lane & 3) == 0) {
                tops[share * BM + row0 + m * 16 + h * 4 + lane / 4] = most;
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2 * 2;
            const int row = row0 + m * 16 + h * 4 + lane / 4;
            const float t = fmaxf(fmaxf(tops[row], tops[BM + row]), fmaxf(tops[2 * BM + row], tops[3 * BM + row]));
            const float rise = raised(frame[m][i % 2], t);
            if (__any_sync(0xffffffffu, rise != frame[m][i % 2])) {
                const float shrink = exp2_fast(frame[m][i % 2] - from(rise));
                frame[m][i % 2] = rise;
                sum[m][i % 2] *= shrink;
#pragma unroll
                for (int n = 0; n < D / 32; n++) {
                    o[m][n][h] *= shrink;
                    o[m][n][h + 1] *= shrink;
                }
            }
            const float minus = -from(rise);
            float part = 0.0f;
#pragma unroll
            for (int n = 0; n < NT; n++) {
                const float e0 = exp2_fast(fmaf(s[m][n][h], p.scale_log2, minus));
                const float e1 = exp2_fast(fmaf(s[m][n][h + 1], p.scale_log2, minus));
                part += e0 + e1;
                *(uint32_t *)(p_tile + row * P_PITCH + share * (BN / 4) + n * 8 + (lane & 3) * 2) = pack2(T(), e0, e1);
            }
            sum[m][i % 2] += part;
        }
    }

    __device__ __forceinline__ void values(const T *tile, int first) {
        const uint32_t pa = shared_address(p_tile + (row0 + (lane & 15)) * P_PITCH + first + (lane >> 4) * 8);
        const uint32_t va = shared_address(tile + (lane & 15) * PITCH + share * (D / 4) + (lane >> 4) * 8);
#pragma unroll
        for (int k16 = 0; k16 < V_ROWS; k16 += 16) {
            uint32_t a[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                ldmatrix4(a[m], pa + (m * 16 * P_PITCH + k16) * 2);
            }
#pragma unroll
            for (int n = 0; n < D / 64; n++) {
                uint32_t b[4];
                ldmatrix4_trans(b, va + (k16 * PITCH + n * 16) * 2);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma<true>(T(), o[m][2 * n], a[m], b[0], b[1]);
                    mma<true>(T(), o[m][2 * n + 1], a[m], b[2], b[3]);
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
            for (int n = 0; n < D / 32; n++) {
                o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0.0f;
            }
        }
    }

    __device__ __forceinline__ void run() {
        const T *q = (const T *)p.q.data + blockIdx.z * p.q.sn + (int64_t)blockIdx.y * p.dim;
        const int count = (p.keys + BN - 1) / BN * PARTS;
        clear();
        load_tile<BM, D, PITCH, THREADS>(q_tile, q, p.q.sw, blockIdx.x * BM, p.queries, 0, p.dim);
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++) {
            load_part(i);
            commit_copies();
        }
        for (int i = 0; i < count;) {
#pragma unroll
            for (int m = 0; m < MT; m++) {
#pragma unroll
                for (int e = 0; e < 4 * NT; e++) {
                    s[m][e / 4][e % 4] = 0.0f;
                }
            }
            const int first = i / PARTS * BN;
            for (int part = 0; part < K_PARTS; part++, i++) {
                scores(next_part(i, count), part * K_COLS);
            }
            if (first + BN > p.keys) {
                mask(p.keys - first);
            }
            softmax();
            for (int row = 0; row < BN; row += V_ROWS, i++) {
                values(next_part(i, count), row);
            }
        }
        store();
    }

    __device__ __forceinline__ void store() {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const float part = quad_sum(sum[i / 2][i % 2]);
            if ((lane & 3) == 0) {
                tops[share * BM + row0 + i * 8 + lane / 4] = part;
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2 * 2;
            const int row = row0 + i * 8 + lane / 4;
            const float part = 1.0f / (tops[row] + tops[BM + row] + tops[2 * BM + row] + tops[3 * BM + row]);
            const int token = blockIdx.x * BM + row;
            if (token >= p.queries) {
                continue;
            }
            T *y = (T *)p.y.data + blockIdx.z * p.y.sn + (int64_t)token * p.y.sw + (int64_t)blockIdx.y * p.dim;
#pragma unroll
            for (int n = 0; n < D / 32; n++) {
                const int c = share * (D / 4) + n * 8;
                if (c < p.dim) {
                    *(uint32_t *)(y + c + (lane & 3) * 2) = pack2(T(), o[m][n][h] * part, o[m][n][h + 1] * part);
                }
            }
        }
    }
};

} // namespace

extern __shared__ __align__(16) unsigned char dynamic_shared[];

#define ATTENTION(NAME, T, D, MT, BN, PARTS_HELD)                                                                      \
    extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ dvk_attention_mma_params p) {       \
        wait_for_launch_ahead();                                                                                       \
        wide<T, D, MT, BN, PARTS_HELD> a(p, (T *)dynamic_shared);                                                      \
        a.run();                                                                                                       \
    }
#define ATTENTION2(D, MT, BN, PARTS_HELD)                                                                              \
    ATTENTION(attention_mma_f16_##D##_##MT, __half, D, MT, BN, PARTS_HELD)                                             \
    ATTENTION(attention_mma_bf16_##D##_##MT, __nv_bfloat16, D, MT, BN, PARTS_HELD)

// keep BN and PARTS_HELD in step with attention_mma.c
ATTENTION2(256, 1, 64, 3)
ATTENTION2(256, 2, 64, 3)
ATTENTION2(512, 1, 128, 3)
ATTENTION2(512, 2, 128, 4)
