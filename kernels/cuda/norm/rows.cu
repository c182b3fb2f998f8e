// rows.cu - the plain ops over rows: norms, conversion, rotation, moves. A thread processes four values at a time.
#include "kernels/cuda/norm/rows.cuh"

namespace {

enum { HELD = 4 }; // pieces of four values that a thread keeps in registers; longer rows are read again

template <int THREADS> __device__ __forceinline__ float group_sum(float x) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, i);
    }
    if constexpr (THREADS > 32) {
        __shared__ float parts[THREADS / 32];
        __syncthreads(); // the previous sum has been read
        if (threadIdx.x % 32 == 0) {
            parts[threadIdx.x / 32] = x;
        }
        __syncthreads();
        x = 0.0f;
#pragma unroll
        for (int i = 0; i < THREADS / 32; i++) {
            x += parts[i];
        }
    }
    return x;
}

// One head of one row, by THREADS threads.
template <int THREADS> struct norm_of {
    const dvk_row_norm_params &p;
    const int lane = threadIdx.x % THREADS;
    float held[HELD][4], w[HELD][4]; // values and their factors

    // Loads factors before the preceding launch has ended.
    __device__ __forceinline__ norm_of(const dvk_row_norm_params &params) : p(params) {
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            parameters(p.w, (i * THREADS + lane) * 4, 1.0f, w[i]);
        }
        wait_for_launch_ahead();
    }

    __device__ __forceinline__ void parameters(const float *of, int c, float otherwise, float (&v)[4]) const {
        if (of != nullptr && p.vector && c + 4 <= p.dim) {
            const float4 t = *(const float4 *)(of + c);
            v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
            return;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = of != nullptr && c + i < p.dim ? of[c + i] : otherwise;
        }
    }

    // Calls f(values, factors, index of the first) for every piece, up to whole blocks of q8
    template <typename F> __device__ __forceinline__ void each(int64_t from, F f) const {
        const int end = (p.dim + 31) / 32 * 32;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            const int c = (i * THREADS + lane) * 4;
            if (c < end) {
                f(held[i], w[i], c);
            }
        }
        for (int c = (HELD * THREADS + lane) * 4; c < end; c += THREADS * 4) {
            float v[4], factors[4];
            load4(p.x, from + c, p.dim - c, v);
            parameters(p.w, c, 1.0f, factors);
            f(v, factors, c);
        }
    }

    __device__ __forceinline__ void run(uint32_t group) {
        const int64_t head = group % (uint32_t)p.heads, row = group / (uint32_t)p.heads,
                      from = row * p.x.row + head * p.x.head;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
            const int c = (i * THREADS + lane) * 4;
            load4(p.x, c < p.dim ? from + c : 0, p.dim - c, held[i]);
        }
        float mean = 0.0f, squares = 0.0f;
        if (p.center) {
            each(from, [&](const float(&v)[4], const float(&)[4], int) { mean += v[0] + v[1] + (v[2] + v[3]); });
            mean = group_sum<THREADS>(mean) / (float)p.dim;
        }
        each(from, [&](const float(&v)[4], const float(&)[4], int c) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float t = c + i < p.dim ? v[i] - mean : 0.0f;
                squares = fmaf(t, t, squares);
            }
        });
        const float scale = 1.0f / sqrtf(group_sum<THREADS>(squares) / (float)p.dim + p.eps);
        each(from, [&](const float(&v)[4], const float(&factors)[4], int c) {
            float b[4], t[4];
            parameters(p.b, c, 0.0f, b);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                t[i] = c + i < p.dim ? fmaf((v[i] - mean) * scale, factors[i], b[i]) : 0.0f;
            }
            if (p.y.form == DVK_ROWS_Q8) {
                store_q8((dvk_q8 *)p.y.data + row * p.y.row + c / 32, t);
            } else {
                store4(p.y, row * p.y.row + head * p.y.head + c, p.dim - c, t);
            }
        });
    }
};

} // namespace

// Several groups per block if one group needs only a warp.
#define ROW_NORM(THREADS, BLOCK)                                                                                       \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                \
        row_norm_##THREADS(const __grid_constant__ dvk_row_norm_params p) {                                            \
        const uint32_t group = blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;                                 \
        norm_of<THREADS> n(p);                                                                                         \
        if (group < (uint32_t)p.groups) {                                                                              \
            n.run(group);                                                                                              \
        }                                                                                                              \
    }

ROW_NORM(32, 128)
ROW_NORM(128, 128)
ROW_NORM(512, 512)

extern "C" __global__ void __launch_bounds__(256) row_convert(const __grid_constant__ dvk_row_convert_params p) {
    wait_for_launch_ahead();
    const uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= (uint32_t)p.items) {
        return;
    }
    const uint32_t group = item / (uint32_t)p.per_head;
    const int c = (int)(item - group * (uint32_t)p.per_head) * 4;
    const int64_t row = group / (uint32_t)p.heads, head = group % (uint32_t)p.heads;
    float v[4];
    load4(p.x, row * p.x.row + head * p.x.head + c, p.dim - c, v);
    if (p.y.form == DVK_ROWS_Q8) {
        store_q8((dvk_q8 *)p.y.data + row * p.y.row + c / 32, v);
    } else {
        store4(p.y, row * p.y.row + head * p.y.head + c, p.dim - c, v);
    }
}

extern "C" __global__ void __launch_bounds__(128) rope_table(const __grid_constant__ dvk_rope_table_args p) {
    wait_for_launch_ahead();
    const int64_t item = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= p.m * p.pairs) {
        return;
    }
    turn_of(p, item);
}

namespace {

// Rotates four pairs from pair j on. The two values of a pair are in separate halves, or adjacent.
__device__ __forceinline__ void turn(const dvk_rope_params &p, const dvk_rope_part &part, int64_t x, int64_t y, int j,
                                     const float *cs) {
    const int count = part.pairs - j < 4 ? part.pairs - j : 4;
    const int ia = p.interleaved ? 2 * j : j, ib = p.interleaved ? 2 * j + 4 : j + part.pairs;
    float a[4], b[4], c[4], s[4];
    load4(part.x, x + ia, p.interleaved ? 2 * count : count, a);
    load4(part.x, x + ib, p.interleaved ? 2 * count - 4 : count, b);
    if (p.vector && count == 4) {
        const float4 t = *(const float4 *)(cs + 2 * j), r = *(const float4 *)(cs + 2 * j + 4);
        c[0] = t.x, s[0] = t.y, c[1] = t.z, s[1] = t.w;
        c[2] = r.x, s[2] = r.y, c[3] = r.z, s[3] = r.w;
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            c[i] = i < count ? cs[2 * (j + i)] : 0.0f;
            s[i] = i < count ? cs[2 * (j + i) + 1] : 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s[i] = p.inverse ? -s[i] : s[i];
    }
    float u[4], v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (p.interleaved) {
            const float(&t)[4] = i < 2 ? a : b;
            float(&r)[4] = i < 2 ? u : v;
            const int k = i % 2 * 2;
            r[k] = t[k] * c[i] - t[k + 1] * s[i];
            r[k + 1] = t[k + 1] * c[i] + t[k] * s[i];
        } else {
            u[i] = a[i] * c[i] - b[i] * s[i];
            v[i] = b[i] * c[i] + a[i] * s[i];
        }
    }
    store4(part.y, y + ia, p.interleaved ? 2 * count : count, u);
    store4(part.y, y + ib, p.interleaved ? 2 * count - 4 : count, v);
}

} // namespace

extern "C" __global__ void __launch_bounds__(128) rope(const __grid_constant__ dvk_rope_params p) {
    wait_for_launch_ahead();
    const uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= (uint32_t)p.items) {
        return;
    }
    const uint32_t group = item / (uint32_t)p.per_head, place = item - group * (uint32_t)p.per_head;
    const int64_t i = group / (uint32_t)p.heads;
    int head = (int)(group % (uint32_t)p.heads), n = 0;
    while (head >= p.part[n].heads) {
        head -= p.part[n++].heads;
    }
    const dvk_rope_part &part = p.part[n];
    int64_t to = i;
    if (part.paged) {
        to = paged_row(p.to, sequence_of(p.to, i), p.to.position[i]);
    }
    const int64_t x = i * part.x.row + head * part.x.head, y = to * part.y.row + head * part.y.head;
    const uint32_t turns = (uint32_t)(part.pairs + 3) / 4;
    if (place < turns) {
        turn(p, part, x, y, (int)place * 4, p.cs + i * p.pairs * 2);
        return;
    }
    const int c = 2 * part.pairs + (int)(place - turns) * 4;
    if (c < p.dim) {
        float v[4];
        load4(part.x, x + c, p.dim - c, v);
        store4(part.y, y + c, p.dim - c, v);
    }
}

extern "C" __global__ void __launch_bounds__(256) gather_rows(const __grid_constant__ dvk_move_rows_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(i, p.m, item, p.vector ? p.dim / 4 : p.dim) {
        const int64_t from = (int64_t)p.row[i] * p.dim, to = (int64_t)i * p.dim;
        if (p.vector) {
            ((float4 *)(p.y + to))[item] = ((const float4 *)(p.x + from))[item];
        } else {
            p.y[to + item] = p.x[from + item];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) add_rows(const __grid_constant__ dvk_move_rows_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(i, p.m, item, p.dim) {
        float *y = p.y + (int64_t)i * p.dim + item;
        float sum = *y;
        for (int k = (int)i * p.taps; k < (int)(i + 1) * p.taps; k++) {
            const int32_t row = p.row[k];
            if (row >= 0) {
                sum = fmaf(p.weight != nullptr ? p.weight[k] : 1.0f, p.x[(int64_t)row * p.dim + item], sum);
            }
        }
        *y = sum;
    }
}
