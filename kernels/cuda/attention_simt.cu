// attention_simt.cu - attention in f32, for any sizes, types and strides. A block finds 32 queries' sums over SLAB
// channels of a head, 64 keys at a time; a head of more channels is cut into slabs, each with the scores found anew.
#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/attention_simt.h"
#include "kernels/cuda/elem.cuh"

using namespace attention;

namespace {

enum {
    BM = DVK_ATTENTION_SIMT_ROWS,
    BN = 64,
    THREADS = DVK_ATTENTION_SIMT_THREADS,
    DEPTH = 32, // channels of q and k at a time
    PITCH = DEPTH + 4,
    V_ROWS = 16,
    P_PITCH = BN + 4
};

// Four channels from c on, zeros past `dim`.
__device__ __forceinline__ float4 load4(const dvk_elem_view &v, int64_t token, int c, int dim) {
    if (v.vector && c + 4 <= dim) {
        return *(const float4 *)((const float *)v.data + token + c);
    }
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = c + i < dim ? load1(v.data, v.dtype, token + c + i) : 0.0f;
    }
    return make_float4(x[0], x[1], x[2], x[3]);
}

// Tokens first .. of one head and picture, whose channel 0 is `head` elements in; COLS channels from c0 on.
template <int ROWS, int COLS, int TO_PITCH>
__device__ __forceinline__ void load_tile(float *to, const dvk_elem_view &v, int w, int64_t head, int first, int count,
                                          int c0, int dim) {
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * COLS / 4; i += THREADS) {
        const int row = i / (COLS / 4);
        const int c = i % (COLS / 4) * 4;
        const int token = first + row;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (token < count) {
            x = load4(v, head + token / w * v.sh + token % w * v.sw, c0 + c, dim);
        }
        *(float4 *)(to + row * TO_PITCH + c) = x;
    }
}

template <int SLAB> struct simt {
    enum {
        CC = SLAB / 256 ? SLAB / 256 : 1, // four channels each, 128 apart
        COL_GROUPS = SLAB / (128 * CC),
        RR = BM * COL_GROUPS / 8, // queries of a thread
        SHARED = V_ROWS * SLAB > (BM + BN) * PITCH ? V_ROWS *SLAB : (BM + BN) * PITCH
    };
    const dvk_attention_simt_params &p;
    float *tile, *probs, *shrinks;
    int head, slab;
    float4 o[RR][CC];
    float top[2], sum[2];

    __device__ __forceinline__ simt(const dvk_attention_simt_params &params, float *shared) : p(params) {
        tile = shared;
        probs = tile + SHARED;
        shrinks = probs + BM * P_PITCH;
        head = blockIdx.y / p.slabs;
        slab = blockIdx.y % p.slabs * SLAB;
    }

    // s[r][i]: query threadIdx.x / 16 * 2 + r, key first + threadIdx.x % 16 + 16 i
    __device__ __forceinline__ void scores(float (&s)[2][4], int first) {
        float *q = tile, *k = tile + BM * PITCH;
        const float *q_row = q + threadIdx.x / 16 * 2 * PITCH;
        const float *k_row = k + threadIdx.x % 16 * PITCH;
        for (int c0 = 0; c0 < p.dim_qk; c0 += DEPTH) {
            __syncthreads();
            load_tile<BM, DEPTH, PITCH>(q, p.q, p.w[0], blockIdx.z * p.q.sn + (int64_t)head * p.dim_qk, blockIdx.x * BM,
                                        p.queries, c0, p.dim_qk);
            load_tile<BN, DEPTH, PITCH>(k, p.k, p.w[1], blockIdx.z * p.k.sn + (int64_t)head * p.dim_qk, first, p.keys,
                                        c0, p.dim_qk);
            __syncthreads();
#pragma unroll
            for (int d = 0; d < DEPTH; d += 4) {
                float4 b[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    b[i] = *(const float4 *)(k_row + i * 16 * PITCH + d);
                }
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const float4 a = *(const float4 *)(q_row + r * PITCH + d);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        s[r][i] = fmaf(a.x, b[i].x, s[r][i]);
                        s[r][i] = fmaf(a.y, b[i].y, s[r][i]);
                        s[r][i] = fmaf(a.z, b[i].z, s[r][i]);
                        s[r][i] = fmaf(a.w, b[i].w, s[r][i]);
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void softmax(float (&s)[2][4], int first) {
        const int row = threadIdx.x / 16 * 2, key = threadIdx.x % 16;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float t = top[r];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[r][i] = first + key + 16 * i < p.keys ? s[r][i] * p.scale_log2 : -INFINITY;
                t = fmaxf(t, s[r][i]);
            }
#pragma unroll
            for (int lanes = 1; lanes < 16; lanes *= 2) {
                t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, lanes));
            }
            const float frame = from(t);
            const float shrink = exp2_fast(top[r] - frame);
            top[r] = t;
            sum[r] *= shrink;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float e = exp2_fast(s[r][i] - frame);
                sum[r] += e;
                probs[(row + r) * P_PITCH + key + 16 * i] = e;
            }
            if (key == 0) {
                shrinks[row + r] = shrink;
            }
        }
    }

    __device__ __forceinline__ void values(int first) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int row0 = warp / COL_GROUPS * RR;
        const int col0 = warp % COL_GROUPS * (128 * CC) + lane * 4;
        for (int k0 = 0; k0 < BN && first + k0 < p.keys; k0 += V_ROWS) {
            __syncthreads();
            load_tile<V_ROWS, SLAB, SLAB>(tile, p.v, p.w[2], blockIdx.z * p.v.sn + (int64_t)head * p.dim_v, first + k0,
                                          p.keys, slab, p.dim_v);
            __syncthreads();
            if (k0 == 0) {
#pragma unroll
                for (int r = 0; r < RR; r++) {
                    const float shrink = shrinks[row0 + r];
#pragma unroll
                    for (int c = 0; c < CC; c++) {
                        o[r][c].x *= shrink;
                        o[r][c].y *= shrink;
                        o[r][c].z *= shrink;
                        o[r][c].w *= shrink;
                    }
                }
            }
#pragma unroll 2
            for (int k = 0; k < V_ROWS; k += 2) {
                float4 b[2][CC];
#pragma unroll
                for (int i = 0; i < 2 * CC; i++) {
                    b[i / CC][i % CC] = *(const float4 *)(tile + (k + i / CC) * SLAB + col0 + i % CC * 128);
                }
#pragma unroll
                for (int r = 0; r < RR; r++) {
                    const float2 e = *(const float2 *)(probs + (row0 + r) * P_PITCH + k0 + k);
#pragma unroll
                    for (int c = 0; c < CC; c++) {
                        o[r][c].x = fmaf(e.x, b[0][c].x, fmaf(e.y, b[1][c].x, o[r][c].x));
                        o[r][c].y = fmaf(e.x, b[0][c].y, fmaf(e.y, b[1][c].y, o[r][c].y));
                        o[r][c].z = fmaf(e.x, b[0][c].z, fmaf(e.y, b[1][c].z, o[r][c].z));
                        o[r][c].w = fmaf(e.x, b[0][c].w, fmaf(e.y, b[1][c].w, o[r][c].w));
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void store() {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int row0 = warp / COL_GROUPS * RR;
        const int col0 = slab + warp % COL_GROUPS * (128 * CC) + lane * 4;
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; r++) {
#pragma unroll
            for (int lanes = 1; lanes < 16; lanes *= 2) {
                sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], lanes);
            }
            if (threadIdx.x % 16 == 0) {
                shrinks[threadIdx.x / 16 * 2 + r] = 1.0f / sum[r];
            }
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < RR; r++) {
            const int token = blockIdx.x * BM + row0 + r;
            const float part = shrinks[row0 + r];
            if (token >= p.queries) {
                continue;
            }
            const int64_t at =
                blockIdx.z * p.y.sn + token / p.w[3] * p.y.sh + token % p.w[3] * p.y.sw + (int64_t)head * p.dim_v;
#pragma unroll
            for (int c = 0; c < CC; c++) {
                const float x[4] = {o[r][c].x, o[r][c].y, o[r][c].z, o[r][c].w};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (col0 + c * 128 + i < p.dim_v) {
                        store1(p.y.data, p.y.dtype, at + col0 + c * 128 + i, x[i] * part);
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void run() {
#pragma unroll
        for (int i = 0; i < RR * CC; i++) {
            o[i / CC][i % CC] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        top[0] = top[1] = -INFINITY;
        sum[0] = sum[1] = 0.0f;
        for (int first = 0; first < p.keys; first += BN) {
            float s[2][4] = {};
            scores(s, first);
            softmax(s, first);
            values(first);
        }
        store();
    }
};

} // namespace

#define ATTENTION(NAME, SLAB)                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                                                           \
        NAME(const __grid_constant__ dvk_attention_simt_params p) {                                                    \
        __shared__ __align__(16) float shared[simt<SLAB>::SHARED + BM * P_PITCH + BM];                                 \
        wait_for_launch_ahead();                                                                                       \
        simt<SLAB> a(p, shared);                                                                                       \
        a.run();                                                                                                       \
    }

ATTENTION(attention_simt_128, 128)
ATTENTION(attention_simt_512, 512)
