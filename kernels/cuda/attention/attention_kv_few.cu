// attention_kv_few.cu - attention of few queries over many positions. Each block has a piece of the positions of one
// query and some of the heads that share its keys. A second launch merges the pieces. A thread holds eight channels of
// a key, so a warp processes 32 / L keys at a time. Sums are f32 throughout.
#include "kernels/cuda/attention/attention_kv.cuh"

using namespace attention;

namespace {

enum { WARPS = 4, AT_ONCE = 4 }; // keys in flight per thread

template <typename T> struct raw { // eight channels as stored
    uint4 a, b;
};

template <typename T> __device__ __forceinline__ raw<T> fetch8(const void *data, int64_t at) {
    raw<T> r;
    const uint4 *from = (const uint4 *)((const T *)data + at);
    r.a = from[0];
    if constexpr (sizeof(T) == 4) {
        r.b = from[1];
    }
    return r;
}

__device__ __forceinline__ void open(const raw<float> &r, float (&v)[8]) {
    const uint32_t w[8] = {r.a.x, r.a.y, r.a.z, r.a.w, r.b.x, r.b.y, r.b.z, r.b.w};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = __uint_as_float(w[i]);
    }
}

__device__ __forceinline__ void open(const raw<__half> &r, float (&v)[8]) {
    const uint32_t w[4] = {r.a.x, r.a.y, r.a.z, r.a.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 t = __half22float2(*(const __half2 *)&w[i]);
        v[2 * i] = t.x;
        v[2 * i + 1] = t.y;
    }
}

__device__ __forceinline__ void open(const raw<__nv_bfloat16> &r, float (&v)[8]) {
    const uint32_t w[4] = {r.a.x, r.a.y, r.a.z, r.a.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(w[i] << 16);
        v[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}

// G heads of one query, L threads per key.
template <typename T, int L, int G> struct few {
    enum { KEYS = 32 / L, STEP = WARPS * KEYS * AT_ONCE };
    const dvk_attention_kv_params &p;
    const int query, kv, first_head, heads; // `heads` of the G are valid
    const int warp, key_of_warp, c;
    float q[G][8], o[G][8], frame[G], sum[G];

    __device__ __forceinline__ few(const dvk_attention_kv_params &params)
        : p(params), query(blockIdx.z), kv(blockIdx.y % p.kv_heads),
          first_head(kv * (p.heads / p.kv_heads) + blockIdx.y / p.kv_heads * G),
          heads(min(G, (kv + 1) * (p.heads / p.kv_heads) - first_head)), warp(threadIdx.x / 32),
          key_of_warp(threadIdx.x % 32 / L), c(threadIdx.x % L * 8) {
#pragma unroll
        for (int g = 0; g < G; g++) {
            const int64_t at = query * p.q.row + (int64_t)(first_head + g) * p.q.head + c;
            const int count = g < heads ? p.dim - c : 0;
            float(&lower)[4] = *(float(*)[4]) & q[g][0], (&upper)[4] = *(float(*)[4]) & q[g][4];
            load4(p.q, at, count, lower);
            load4(p.q, at + 4, count - 4, upper);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                q[g][i] *= p.scale_log2;
                o[g][i] = 0.0f;
            }
            frame[g] = -INFINITY;
            sum[g] = 0.0f;
        }
    }

    // Processes AT_ONCE keys, which are KEYS apart.
    __device__ __forceinline__ void step(int sequence, int key, int end) {
        raw<T> k[AT_ONCE], v[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            k[u] = v[u] = {};
            if (key + u * KEYS < end && c < p.dim) {
                const int64_t row = paged_row(p.in, sequence, key + u * KEYS);
                k[u] = fetch8<T>(p.k.data, row * p.k.row + kv * p.k.head + c);
                v[u] = fetch8<T>(p.v.data, row * p.v.row + kv * p.v.head + c);
            }
        }
        float s[AT_ONCE][G];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            float t[8];
            open(k[u], t);
#pragma unroll
            for (int g = 0; g < G; g++) {
                s[u][g] = 0.0f;
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    s[u][g] = fmaf(q[g][i], t[i], s[u][g]);
                }
            }
        }
#pragma unroll
        for (int i = 1; i < L; i *= 2) {
#pragma unroll
            for (int n = 0; n < AT_ONCE * G; n++) {
                s[n / G][n % G] += __shfl_xor_sync(0xffffffffu, s[n / G][n % G], i);
            }
        }
#pragma unroll
        for (int g = 0; g < G; g++) {
            float top = -INFINITY;
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                s[u][g] = key + u * KEYS < end ? s[u][g] : -INFINITY;
                top = fmaxf(top, s[u][g]);
            }
            rescale(g, fmaxf(frame[g], top));
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            float t[8];
            open(v[u], t);
#pragma unroll
            for (int g = 0; g < G; g++) {
                const float weight = exp2_fast(s[u][g] - from(frame[g]));
                sum[g] += weight;
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    o[g][i] = fmaf(weight, t[i], o[g][i]);
                }
            }
        }
    }

    __device__ __forceinline__ void rescale(int g, float to) {
        const float shrink = exp2_fast(frame[g] - from(to));
        frame[g] = to;
        sum[g] *= shrink;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            o[g][i] *= shrink;
        }
    }

    // Merges the results of the keys of a warp.
    __device__ __forceinline__ void merge_keys() {
#pragma unroll
        for (int g = 0; g < G; g++) {
            float to = frame[g];
#pragma unroll
            for (int i = L; i < 32; i *= 2) {
                to = fmaxf(to, __shfl_xor_sync(0xffffffffu, to, i));
            }
            rescale(g, to);
#pragma unroll
            for (int i = L; i < 32; i *= 2) {
                sum[g] += __shfl_xor_sync(0xffffffffu, sum[g], i);
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    o[g][n] += __shfl_xor_sync(0xffffffffu, o[g][n], i);
                }
            }
        }
    }

    __device__ __forceinline__ void run() {
        __shared__ float tops[WARPS][G], sums[WARPS][G], parts[WARPS][G][L * 8];
        const pieces of(p, query);
        const int begin = max(of.start + (int)blockIdx.x * of.piece, of.seen.first), end = of.end(blockIdx.x);
        if (begin >= end) {
            return;
        }
        const int sequence = sequence_of(p.in, query);
        for (int key = begin; key < end; key += STEP) {
            step(sequence, key + warp * KEYS * AT_ONCE + key_of_warp, end);
        }
        merge_keys();
        if (key_of_warp == 0) {
#pragma unroll
            for (int g = 0; g < G; g++) {
                tops[warp][g] = frame[g];
                sums[warp][g] = sum[g];
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    parts[warp][g][c + i] = o[g][i];
                }
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < heads * p.dim; i += WARPS * 32) {
            const int g = i / p.dim, channel = i % p.dim;
            float top = -INFINITY, all = 0.0f, value = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                top = fmaxf(top, tops[w][g]);
            }
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                const float share = exp2_fast(tops[w][g] - top);
                all = fmaf(share, sums[w][g], all);
                value = fmaf(share, parts[w][g][channel], value);
            }
            put(first_head + g, channel, top, all, value);
        }
    }

    __device__ __forceinline__ void put(int head, int channel, float top, float all, float value) {
        if (p.splits == 1) {
            store1(p.y.data, p.y.form, query * p.y.row + head * p.y.head + channel, value / all);
            return;
        }
        const int64_t place = ((int64_t)query * p.heads + head) * p.splits + blockIdx.x;
        p.parts[place * p.dim + channel] = value;
        if (channel == 0) {
            p.tops[place] = top;
            p.sums[place] = all;
        }
    }
};

} // namespace

#define FEW(NAME, T, L, G)                                                                                             \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) NAME(const __grid_constant__ dvk_attention_kv_params p) { \
        wait_for_launch_ahead();                                                                                       \
        few<T, L, G>(p).run();                                                                                         \
    }
#define FEW4(NAME, T, L)                                                                                               \
    FEW(attention_kv_few_##NAME##_##L##_1, T, L, 1)                                                                    \
    FEW(attention_kv_few_##NAME##_##L##_2, T, L, 2)                                                                    \
    FEW(attention_kv_few_##NAME##_##L##_4, T, L, 4)                                                                    \
    FEW(attention_kv_few_##NAME##_##L##_8, T, L, 8)

FEW4(f32, float, 8)
FEW4(f32, float, 16)
FEW4(f16, __half, 8)
FEW4(f16, __half, 16)
FEW4(bf16, __nv_bfloat16, 8)
FEW4(bf16, __nv_bfloat16, 16)
FEW(attention_kv_few_f32_8_3, float, 8, 3)
FEW(attention_kv_few_f16_8_3, __half, 8, 3)
FEW(attention_kv_few_bf16_8_3, __nv_bfloat16, 8, 3)

// One head of a query per block; threads are channels.
extern "C" __global__ void __launch_bounds__(128)
    attention_kv_combine(const __grid_constant__ dvk_attention_kv_params p) {
    wait_for_launch_ahead();
    const int head = blockIdx.x, query = blockIdx.y;
    const int used = pieces(p, query).used;
    const int64_t place = ((int64_t)query * p.heads + head) * p.splits;
    float top = -INFINITY;
    for (int i = threadIdx.x % 32; i < used; i += 32) {
        top = fmaxf(top, p.tops[place + i]);
    }
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, i));
    }
    for (int c = threadIdx.x; c < p.dim; c += blockDim.x) {
        float all = 0.0f, value = 0.0f;
#pragma unroll 8
        for (int i = 0; i < used; i++) {
            const float share = exp2_fast(p.tops[place + i] - top);
            all = fmaf(share, p.sums[place + i], all);
            value = fmaf(share, p.parts[(place + i) * p.dim + c], value);
        }
        store1(p.y.data, p.y.form, query * p.y.row + head * p.y.head + c, value / all);
    }
}
