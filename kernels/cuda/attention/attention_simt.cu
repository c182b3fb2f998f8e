// attention_simt.cu - attention in f32 for any sizes, types and strides. A block computes 64 queries' sums over SLAB
// channels of a head, 96 keys at a time. Heads with more channels are cut into slabs, and each slab recomputes the
// scores. Inputs are read in parts, first of q and k, then of v. The copy of the next part overlaps the use of the
// current one.
#include "kernels/cuda/attention/attention_common.cuh"
#include "kernels/cuda/attention/attention_simt.h"
#include "kernels/cuda/common/elem.cuh"

using namespace attention;

namespace {

enum {
    BM = DVK_ATTENTION_SIMT_ROWS,
    BN = DVK_ATTENTION_SIMT_KEYS,
    THREADS = DVK_ATTENTION_SIMT_THREADS,
    DEPTH = 16, // channels of q and k in a part
    PITCH = DEPTH + 4,
    V_ROWS = 8, // keys of v in a part
    PART = DVK_ATTENTION_SIMT_PART,
    P_PITCH = DVK_ATTENTION_SIMT_P_PITCH,
    OWN_KEYS = BN / 16 // scores of a thread, 16 keys apart, for each of four queries
};

// Copies four channels from c on to shared memory, with zeros past `dim`. Synchronous only if a conversion is needed.
__device__ __forceinline__ void copy4(float *to, const dvk_elem_view &v, int64_t token, int c, int dim, bool valid) {
    if (v.vector) {
        const float *from = (const float *)v.data + (valid && c < dim ? token + c : 0);
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                     "l"(from), "r"(valid && c < dim ? 16 : 0)
                     : "memory");
#else
        *(float4 *)to = valid && c < dim ? *(const float4 *)from : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#endif
        return;
    }
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = valid && c + i < dim ? load1(v.data, v.dtype, token + c + i) : 0.0f;
    }
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
}

// Tokens from `first` on of one head and picture, whose channel 0 is `head` elements in; COLS channels from c0 on.
template <int ROWS, int COLS, int TO_PITCH>
__device__ __forceinline__ void load_tile(float *to, const dvk_elem_view &v, int w, int64_t head, int first, int count,
                                          int c0, int dim) {
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * COLS / 4; i += THREADS) {
        const int row = i / (COLS / 4), c = i % (COLS / 4) * 4;
        const int token = first + row;
        const int64_t at = w == 0 ? token * v.sw : token / w * v.sh + token % w * v.sw;
        copy4(to + row * TO_PITCH + c, v, head + at, c0 + c, dim, token < count);
    }
}

template <int SLAB> struct simt {
    enum { COLS = SLAB / 128, ROWS = BM / 8 }; // a thread's sums: four channels each, 128 apart; queries
    const dvk_attention_simt_params &p;
    float *parts, *probs, *shrinks;
    int64_t q_head, k_head, v_head;
    int slab, k_parts, step_parts, count;
    float4 o[ROWS][COLS];
    float top[4], sum[4]; // of queries threadIdx.x / 16 * 4 + r

    __device__ __forceinline__ simt(const dvk_attention_simt_params &params, float *shared) : p(params) {
        parts = shared;
        probs = parts + 2 * PART; // [key][query]
        shrinks = probs + BN * P_PITCH;
        const int64_t head = blockIdx.y / p.slabs;
        slab = blockIdx.y % p.slabs * SLAB;
        q_head = blockIdx.z * p.q.sn + head * p.dim_qk;
        k_head = blockIdx.z * p.k.sn + head * p.dim_qk;
        v_head = blockIdx.z * p.v.sn + head * p.dim_v;
        k_parts = (p.dim_qk + DEPTH - 1) / DEPTH;
        step_parts = k_parts + BN / V_ROWS;
        count = (p.keys + BN - 1) / BN * step_parts;
    }

    __device__ __forceinline__ void load_part(int i) {
        float *to = parts + i % 2 * PART;
        const int first = i / step_parts * BN, part = i % step_parts;
        if (part < k_parts) {
            load_tile<BM, DEPTH, PITCH>(to, p.q, p.w[0], q_head, blockIdx.x * BM, p.queries, part * DEPTH, p.dim_qk);
            load_tile<BN, DEPTH, PITCH>(to + BM * PITCH, p.k, p.w[1], k_head, first, p.keys, part * DEPTH, p.dim_qk);
        } else {
            const int row = first + (part - k_parts) * V_ROWS;
            load_tile<V_ROWS, SLAB, SLAB>(to, p.v, p.w[2], v_head, row, p.keys, slab, p.dim_v);
        }
    }

    // Returns part i; the next part is in flight.
    __device__ __forceinline__ const float *next_part(int i) {
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.wait_all;" ::: "memory");
#endif
        __syncthreads();
        if (i + 1 < count) {
            load_part(i + 1);
        }
        return parts + i % 2 * PART;
    }

    // s[r][i]: query threadIdx.x / 16 * 4 + r, key threadIdx.x % 16 + 16 i
    __device__ __forceinline__ void scores(float (&s)[4][OWN_KEYS], const float *part) {
        const float *q = part + threadIdx.x / 16 * 4 * PITCH;
        const float *k = part + (BM + threadIdx.x % 16) * PITCH;
#pragma unroll
        for (int d = 0; d < DEPTH; d += 4) {
            float4 a[4];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                a[r] = *(const float4 *)(q + r * PITCH + d);
            }
#pragma unroll
            for (int i = 0; i < OWN_KEYS; i++) {
                const float4 b = *(const float4 *)(k + i * 16 * PITCH + d);
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    s[r][i] = fmaf(a[r].x, b.x, s[r][i]);
                    s[r][i] = fmaf(a[r].y, b.y, s[r][i]);
                    s[r][i] = fmaf(a[r].z, b.z, s[r][i]);
                    s[r][i] = fmaf(a[r].w, b.w, s[r][i]);
                }
            }
        }
    }

    __device__ __forceinline__ void softmax(float (&s)[4][OWN_KEYS], int first) {
        const int row = threadIdx.x / 16 * 4, key = threadIdx.x % 16;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float t = top[r];
#pragma unroll
            for (int i = 0; i < OWN_KEYS; i++) {
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
            for (int i = 0; i < OWN_KEYS; i++) {
                s[r][i] = exp2_fast(s[r][i] - frame);
                sum[r] += s[r][i];
            }
            if (key == 0) {
                shrinks[row + r] = shrink;
            }
        }
#pragma unroll
        for (int i = 0; i < OWN_KEYS; i++) {
            *(float4 *)(probs + (key + 16 * i) * P_PITCH + row) = make_float4(s[0][i], s[1][i], s[2][i], s[3][i]);
        }
    }

    // Applies the per-query factors in `shrinks` to this thread's sums
    __device__ __forceinline__ void scale_sums() {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float f = shrinks[threadIdx.x / 32 * ROWS + r];
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                o[r][c].x *= f;
                o[r][c].y *= f;
                o[r][c].z *= f;
                o[r][c].w *= f;
            }
        }
    }

    __device__ __forceinline__ void values(const float *part, int first) {
        const float *prob = probs + first * P_PITCH + threadIdx.x / 32 * ROWS;
        const float *v = part + threadIdx.x % 32 * 4;
#pragma unroll
        for (int k = 0; k < V_ROWS; k++) {
            const float4 lo = *(const float4 *)(prob + k * P_PITCH), hi = *(const float4 *)(prob + k * P_PITCH + 4);
            const float e[ROWS] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                const float4 b = *(const float4 *)(v + k * SLAB + c * 128);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    o[r][c].x = fmaf(e[r], b.x, o[r][c].x);
                    o[r][c].y = fmaf(e[r], b.y, o[r][c].y);
                    o[r][c].z = fmaf(e[r], b.z, o[r][c].z);
                    o[r][c].w = fmaf(e[r], b.w, o[r][c].w);
                }
            }
        }
    }

    __device__ __forceinline__ void store() {
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 4; r++) {
#pragma unroll
            for (int lanes = 1; lanes < 16; lanes *= 2) {
                sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], lanes);
            }
            if (threadIdx.x % 16 == 0) {
                shrinks[threadIdx.x / 16 * 4 + r] = 1.0f / sum[r];
            }
        }
        __syncthreads();
        scale_sums();
        const int c0 = slab + threadIdx.x % 32 * 4;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int token = blockIdx.x * BM + threadIdx.x / 32 * ROWS + r;
            if (token >= p.queries) {
                continue;
            }
            const int64_t pixel = p.w[3] == 0 ? token * p.y.sw : token / p.w[3] * p.y.sh + token % p.w[3] * p.y.sw;
            const int64_t at = blockIdx.z * p.y.sn + pixel + (int64_t)(blockIdx.y / p.slabs) * p.dim_v;
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                const float x[4] = {o[r][c].x, o[r][c].y, o[r][c].z, o[r][c].w};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (c0 + c * 128 + i < p.dim_v) {
                        store1(p.y.data, p.y.dtype, at + c0 + c * 128 + i, x[i]);
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void run() {
#pragma unroll
        for (int i = 0; i < ROWS * COLS; i++) {
            o[i / COLS][i % COLS] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll
        for (int r = 0; r < 4; r++) {
            top[r] = -INFINITY;
            sum[r] = 0.0f;
        }
        load_part(0);
        for (int i = 0, first = 0; first < p.keys; first += BN) {
            float s[4][OWN_KEYS] = {};
            for (int end = i + k_parts; i < end; i++) {
                scores(s, next_part(i));
            }
            softmax(s, first);
            for (int key = 0; key < BN; key += V_ROWS, i++) {
                const float *part = next_part(i);
                if (key == 0) {
                    scale_sums();
                }
                values(part, key);
            }
        }
        store();
    }
};

} // namespace

extern __shared__ __align__(16) float dynamic_shared[];

#define ATTENTION(NAME, SLAB)                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        NAME(const __grid_constant__ dvk_attention_simt_params p) {                                                    \
        wait_for_launch_ahead();                                                                                       \
        simt<SLAB> a(p, dynamic_shared);                                                                               \
        a.run();                                                                                                       \
    }

ATTENTION(attention_simt_128, 128)
ATTENTION(attention_simt_512, 512)
