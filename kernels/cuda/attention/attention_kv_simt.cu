// attention_kv_simt.cu - attention over a cache in f32, for every form, head and mask. It multiplies 64 queries of a
// head with 32 positions at a time, channels in slabs of 64. If a block has queries of several sequences, it processes
// one sequence after another.
#include "kernels/cuda/attention/attention_kv.cuh"

using namespace attention;

namespace {

enum {
    ROWS = DVK_ATTENTION_KV_SIMT_ROWS,
    THREADS = DVK_ATTENTION_KV_SIMT_THREADS,
    KEYS = 32,
    SLAB = 64,
    PITCH = SLAB + 4 // floats
};

struct tile {
    float q[ROWS][PITCH];
    float kv[KEYS][PITCH];
    float weight[ROWS][KEYS + 1];
    float factor[ROWS];
    int first[ROWS], last[ROWS];
    int64_t key_row[KEYS];
};

// Channels c0 .. c0 + 63 of N rows; zeros past `count` rows and past the head.
template <int N, typename Row>
__device__ __forceinline__ void load_rows(float (*to)[PITCH], const dvk_rows_view &x, int head, int count, int c0,
                                          int dim, Row row) {
#pragma unroll
    for (int i = threadIdx.x; i < N * (SLAB / 4); i += THREADS) {
        const int r = i / (SLAB / 4), c = i % (SLAB / 4) * 4;
        float v[4];
        load4(x, r < count ? row(r) * x.row + head * x.head + c0 + c : 0, r < count ? dim - c0 - c : 0, v);
        *(float4 *)&to[r][c] = make_float4(v[0], v[1], v[2], v[3]);
    }
}

template <int SLABS> struct simt {
    const dvk_attention_kv_params &p;
    tile &t;
    const int head, kv, begin, rows; // queries begin .. begin + rows - 1
    const int two, four;             // this thread's two rows of scores and first of four columns (every eighth)
    const int o_row, o_col;          // of its 4 x 4 sums in each slab
    float o[SLABS][4][4], frame[2], sum[2];

    __device__ __forceinline__ simt(const dvk_attention_kv_params &params, tile &shared)
        : p(params), t(shared), head(blockIdx.y), kv(head / (p.heads / p.kv_heads)), begin(blockIdx.x * ROWS),
          rows(min(ROWS, p.m - begin)), two(threadIdx.x / 8 * 2), four(threadIdx.x % 8), o_row(threadIdx.x / 16 * 4),
          o_col(threadIdx.x % 16 * 4), o{} {
        frame[0] = frame[1] = -INFINITY;
        sum[0] = sum[1] = 0.0f;
    }

    __device__ __forceinline__ void load_queries(int slab) {
        load_rows<ROWS>(t.q, p.q, head, rows, slab * SLAB, p.dim, [&](int r) { return (int64_t)(begin + r); });
    }

    __device__ __forceinline__ void load_keys(const dvk_rows_view &x, int count, int slab) {
        load_rows<KEYS>(t.kv, x, kv, count, slab * SLAB, p.dim, [&](int r) { return t.key_row[r]; });
    }

    __device__ __forceinline__ void score(float (&s)[2][4]) const {
#pragma unroll 4
        for (int c = 0; c < SLAB; c += 4) {
            float4 a[2], b[4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                a[i] = *(const float4 *)&t.q[two + i][c];
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                b[i] = *(const float4 *)&t.kv[four + i * 8][c];
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float &d = s[i / 4][i % 4];
                d = fmaf(a[i / 4].x, b[i % 4].x, d);
                d = fmaf(a[i / 4].y, b[i % 4].y, d);
                d = fmaf(a[i / 4].z, b[i % 4].z, d);
                d = fmaf(a[i / 4].w, b[i % 4].w, d);
            }
        }
    }

    // Converts scores to weights; `factor` is the factor for earlier sums.
    __device__ __forceinline__ void weigh(float (&s)[2][4], int key) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int first = t.first[two + i], last = t.last[two + i];
            float top = frame[i];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int at = key + four + n * 8;
                s[i][n] = at >= first && at < last ? s[i][n] * p.scale_log2 : -INFINITY;
                top = fmaxf(top, s[i][n]);
            }
#pragma unroll
            for (int n = 1; n < 8; n *= 2) {
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, n));
            }
            const float factor = exp2f(frame[i] - from(top));
            frame[i] = top;
            sum[i] *= factor;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float w = exp2f(s[i][n] - from(top));
                sum[i] += w;
                t.weight[two + i][four + n * 8] = w;
            }
            if (four == 0) {
                t.factor[two + i] = factor;
            }
        }
    }

    __device__ __forceinline__ void add(float (&d)[4][4]) const {
#pragma unroll 4
        for (int k = 0; k < KEYS; k++) {
            const float4 v = *(const float4 *)&t.kv[k][o_col];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float w = t.weight[o_row + i][k];
                d[i][0] = fmaf(w, v.x, d[i][0]);
                d[i][1] = fmaf(w, v.y, d[i][1]);
                d[i][2] = fmaf(w, v.z, d[i][2]);
                d[i][3] = fmaf(w, v.w, d[i][3]);
            }
        }
    }

    __device__ __forceinline__ void step(int sequence, int key, int count) {
        __syncthreads();
        if (threadIdx.x < KEYS && (int)threadIdx.x < count) {
            t.key_row[threadIdx.x] = paged_row(p.in, sequence, key + threadIdx.x);
        }
        float s[2][4] = {};
#pragma unroll
        for (int slab = 0; slab < SLABS; slab++) {
            __syncthreads();
            if (SLABS > 1) {
                load_queries(slab);
            }
            load_keys(p.k, count, slab);
            __syncthreads();
            score(s);
        }
        weigh(s, key);
#pragma unroll
        for (int slab = 0; slab < SLABS; slab++) {
            __syncthreads();
            load_keys(p.v, count, slab);
            __syncthreads();
#pragma unroll
            for (int i = 0; i < 16; i++) {
                o[slab][i / 4][i % 4] *= t.factor[o_row + i / 4];
            }
            add(o[slab]);
        }
    }

    // Processes queries from .. to - 1 of the block, all of one sequence.
    __device__ __forceinline__ void run(int from_row, int to_row) {
        const int sequence = sequence_of(p.in, begin + from_row);
        __syncthreads();
        if (threadIdx.x < ROWS) {
            const int r = threadIdx.x, bound = bound_before(p, begin + from_row);
            span of = {0, 0};
            if (r >= from_row && r < to_row) {
                of = visible(p, begin + r, bound);
            }
            t.first[r] = of.first;
            t.last[r] = of.last;
        }
        __syncthreads();
        const int first = t.first[from_row], last = t.last[to_row - 1]; // both rise from row to row
        for (int key = first; key < last; key += KEYS) {
            step(sequence, key, min(KEYS, last - key));
        }
    }

    __device__ __forceinline__ void store() {
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int n = 1; n < 8; n *= 2) {
                sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], n);
            }
        }
        __syncthreads();
        if (four == 0) {
            t.factor[two] = 1.0f / sum[0];
            t.factor[two + 1] = 1.0f / sum[1];
        }
        __syncthreads();
#pragma unroll
        for (int slab = 0; slab < SLABS; slab++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int c = slab * SLAB + o_col, r = o_row + i;
                float v[4];
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    v[n] = o[slab][i][n] * t.factor[r];
                }
                if (r < rows && c < p.dim) {
                    store4(p.y, (int64_t)(begin + r) * p.y.row + head * p.y.head + c, p.dim - c, v);
                }
            }
        }
    }

    __device__ __forceinline__ void run_all() {
        if (SLABS == 1) {
            load_queries(0);
        }
        for (int row = 0; row < rows;) {
            const int sequence = sequence_of(p.in, begin + row);
            int to = row + 1;
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

#define SIMT(SLABS)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        attention_kv_simt_##SLABS(const __grid_constant__ dvk_attention_kv_params p) {                                 \
        __shared__ tile shared;                                                                                        \
        wait_for_launch_ahead();                                                                                       \
        simt<SLABS>(p, shared).run_all();                                                                              \
    }

SIMT(1)
SIMT(2)
SIMT(4)
SIMT(8)
