// attention_new.cuh - attention of a token whose key and value are new. The cache is read before the preceding launch
// has ended. That launch writes q and k. Each block rotates them once, on their way through shared memory. The warp
// with the newest position inserts its key and value into its operands and into the cache.
#pragma once

#include "kernels/cuda/attention/attention_kv_token.cuh"
#include "kernels/cuda/attention/attention_new.h"

namespace {

template <typename T, int D> struct fresh {
    memory<D> all;
    uint4 q[D / 32][2][32]; // operands of every lane: rounded to 16 bits, then the rounding error
    __align__(16) T k[D], v[D];
};

template <typename T, int D> struct step {
    const dvk_attention_new_params &n;
    fresh<T, D> &mem;
    token<T, D> k;
    const int position;

    __device__ __forceinline__ step(const dvk_attention_new_params &params, fresh<T, D> &of)
        : n(params), mem(of), k(params.a, of.all), position(params.a.in.position[blockIdx.z]) {
    }

    // Rotated channels c, c + 1, c + D / 2 and c + D / 2 + 1 of a head.
    __device__ __forceinline__ void turn(const float *x, int c, float2 &low, float2 &high) const {
        const float4 t = *(const float4 *)(n.cs + (int64_t)k.query * D + 2 * c);
        const float2 a = *(const float2 *)(x + c), b = *(const float2 *)(x + c + D / 2);
        const float s[2] = {t.y * n.sign, t.w * n.sign};
        low = make_float2(a.x * t.x - b.x * s[0], a.y * t.z - b.y * s[1]);
        high = make_float2(b.x * t.x + a.x * s[0], b.y * t.z + a.y * s[1]);
    }

    __device__ __forceinline__ void keep_query(int lane, int i, int j, float2 x) {
        const uint32_t near = pack2(T(), x.x, x.y);
        ((uint32_t *)&mem.q[i][0][lane])[j] = near;
        ((uint32_t *)&mem.q[i][1][lane])[j] =
            pack2(T(), x.x - f32_of(near & 0xffffu, form_of(T())), x.y - f32_of(near >> 16, form_of(T())));
    }

    __device__ __forceinline__ void turn_queries() {
        for (int w = threadIdx.x; w < D / 64 * 128; w += WARPS * 32) { // [D / 64][head][channels by eights][by twos]
            const int i = w / 128, of = w / 4 % 32, j = w % 4;
            float2 low = {}, high = {};
            if (of / 4 < k.heads) {
                const float *x = (const float *)k.p.q.data + k.query * k.p.q.row + (k.first_head + of / 4) * k.p.q.head;
                turn(x, i * 32 + of % 4 * 8 + j * 2, low, high);
            }
            keep_query(of, i, j, low);
            keep_query(of, i + D / 64, j, high);
        }
    }

    __device__ __forceinline__ void turn_key() {
        const int c = (int)threadIdx.x * 2;
        const float *x = (const float *)n.k.data + k.query * n.k.row + k.kv * n.k.head;
        const float *y = (const float *)n.v.data + k.query * n.v.row + k.kv * n.v.head;
        if (c < D / 2) {
            float2 low, high;
            turn(x, c, low, high);
            *(uint32_t *)(mem.k + c) = pack2(T(), low.x, low.y);
            *(uint32_t *)(mem.k + c + D / 2) = pack2(T(), high.x, high.y);
        } else if (c - D / 2 < D) {
            const float2 v = *(const float2 *)(y + c - D / 2);
            *(uint32_t *)(mem.v + c - D / 2) = pack2(T(), v.x, v.y);
        }
    }

    __device__ __forceinline__ void load_query() {
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint4 w = mem.q[i][h][k.lane];
                k.q[i][4 * h] = w.x, k.q[i][4 * h + 1] = w.y, k.q[i][4 * h + 2] = w.z, k.q[i][4 * h + 3] = w.w;
            }
        }
    }

    // Inserts the newest key if it is among the sixteen from `key` on.
    __device__ __forceinline__ void add_key(int64_t base, int key) {
        const int at = position - key;
        if (at < 0 || at >= 16 || at % 8 != k.row) {
            return;
        }
        T *to = (T *)k.p.k.data + (base + at) * k.p.k.row + k.kv * k.p.k.head + k.t * 8;
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
            const uint4 w = *(const uint4 *)(mem.k + i * 32 + k.t * 8);
            k.k[0][i] = at < 8 ? w : k.k[0][i];
            k.k[1][i] = at < 8 ? k.k[1][i] : w;
            if (blockIdx.y < (unsigned)k.p.kv_heads) {
                *(uint4 *)(to + i * 32) = w;
            }
        }
    }

    __device__ __forceinline__ void add_value(int64_t base, int key) {
        const int at = position - key;
        if (at < 0 || at >= 16 || at % 8 / 2 != k.t) {
            return;
        }
        T *to = (T *)k.p.v.data + (base + at) * k.p.v.row + k.kv * k.p.v.head + k.row * 8;
#pragma unroll
        for (int i = 0; i < D / 64; i++) {
            const uint4 w = *(const uint4 *)(mem.v + i * 64 + k.row * 8);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                k.v[j][i] = j == at / 8 * 2 + at % 2 ? w : k.v[j][i];
            }
            if (blockIdx.y < (unsigned)k.p.kv_heads) {
                *(uint4 *)(to + i * 64) = w;
            }
        }
    }

    __device__ __forceinline__ void walk() {
        const pieces of(k.p, k.query);
        const int sequence = sequence_of(k.p.in, k.query), first = of.start + (int)blockIdx.x * of.piece;
        const int begin = max(first, of.seen.first), end = of.end(blockIdx.x), old = min(end, position);
        int key = first + k.warp * 16; // the 16 positions are in one page
        int64_t base = 0;
        if (key < end) {
            base = paged_row(k.p.in, sequence, key);
            k.load_keys(base, key, begin, old);
            k.load_values(base, key, begin, old);
        }
        wait_for_launch_ahead();
        if (begin < end) { // uniform over all threads
            turn_queries();
            if (position < end) {
                turn_key();
            }
            __syncthreads();
        }
        if (key < end) {
            load_query();
            add_key(base, key);
            add_value(base, key);
        }
        while (key < end) {
            const int next = key + WARPS * 16;
            float s[4];
            k.score(s);
            if (next < end) {
                base = paged_row(k.p.in, sequence, next);
                k.load_keys(base, next, begin, old);
                add_key(base, next);
            }
            k.weigh(s, key, begin, end);
            k.add_values(s);
            if (next < end) {
                k.load_values(base, next, begin, old);
                add_value(base, next);
            }
            key = next;
        }
    }
};

} // namespace
