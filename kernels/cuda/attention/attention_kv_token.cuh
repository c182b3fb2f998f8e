// attention_kv_token.cuh - attention of few queries over a 16-bit cache on mma.sync. Up to eight heads that share keys
// are the rows of a product; its columns are 16 positions at a time.
//
// Keys and values go from memory to operands without a change of order, 16 bytes per thread. The channels (of scores)
// and the columns (of results) of the products are permuted accordingly. The unused rows hold the rounding error of q
// in 16 bits.
// The positions are cut into pieces, one per block. The pieces of a query are merged in a cluster or by a second
// launch.
#pragma once

#include "kernels/cuda/attention/attention_kv.cuh"
#include "kernels/cuda/attention/attention_mma.cuh"

using namespace attention;

namespace {

enum { WARPS = 8, HEADS = 8 };

// All blocks of the cluster have started, and their stores have arrived.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Stores to the same address in another block of the cluster.
__device__ __forceinline__ void send(float *mine, int rank, float v) {
#if __CUDA_ARCH__ >= 900
    uint32_t at;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(mine)), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
#endif
}

template <int D>
struct memory { // rows are padded and channels permuted, so that neither reads nor writes have bank conflicts
    float parts[WARPS][HEADS][D + 4];
    float tops[WARPS][HEADS], sums[WARPS][HEADS];
    // results of the heads that this block finishes, one from each block
    float box[HEADS][D], box_top[HEADS], box_sum[HEADS];
};

template <typename T, int D> struct token {
    const dvk_attention_kv_params &p;
    memory<D> &mem;
    const int query, kv, first_head, heads, warp, lane, row, t; // row: of the product, and of the keys of its columns
    const int blocks, rank; // blocks that share a query's positions and merge their results; the rank of this block
    uint32_t q[D / 32][8];  // 8 channels: rounded to 16 bits, then the rounding error
    uint4 k[2][D / 32], v[4][D / 64];
    float o[D / 8][2], frame, sum;

    __device__ __forceinline__ token(const dvk_attention_kv_params &params, memory<D> &m)
        : p(params), mem(m), query(blockIdx.z), kv(blockIdx.y % p.kv_heads),
          first_head(kv * (p.heads / p.kv_heads) + blockIdx.y / p.kv_heads * HEADS),
          heads(min((int)HEADS, (kv + 1) * (p.heads / p.kv_heads) - first_head)), warp(threadIdx.x / 32),
          lane(threadIdx.x % 32), row(lane / 4), t(lane % 4), blocks(p.parts != nullptr ? 1 : p.splits),
          rank(p.parts != nullptr ? 0 : blockIdx.x), o{}, frame(-INFINITY), sum(0.0f) {
    }

    __device__ __forceinline__ void load_query() {
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const int c = i / 2 * 32 + t * 8 + i % 2 * 4;
            float x[4];
            load4(p.q, query * p.q.row + (int64_t)(first_head + row) * p.q.head + c, row < heads ? p.dim - c : 0, x);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const uint32_t near = pack2(T(), x[2 * n], x[2 * n + 1]);
                q[i / 2][i % 2 * 2 + n] = near;
                q[i / 2][4 + i % 2 * 2 + n] = pack2(T(), x[2 * n] - f32_of(near & 0xffffu, form_of(T())),
                                                    x[2 * n + 1] - f32_of(near >> 16, form_of(T())));
            }
        }
    }

    // Loads sixteen positions of one page.
    __device__ __forceinline__ void load_keys(int64_t base, int key, int begin, int end) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int at = n * 8 + row;
            const T *from = (const T *)p.k.data + (base + at) * p.k.row + kv * p.k.head + t * 8;
#pragma unroll
            for (int i = 0; i < D / 32; i++) {
                const bool valid = key + at >= begin && key + at < end && i * 32 + t * 8 < p.dim;
                k[n][i] = valid ? *(const uint4 *)(from + i * 32) : make_uint4(0, 0, 0, 0);
            }
        }
    }

    __device__ __forceinline__ void load_values(int64_t base, int key, int begin, int end) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int at = n / 2 * 8 + t * 2 + n % 2;
            const T *from = (const T *)p.v.data + (base + at) * p.v.row + kv * p.v.head + row * 8;
#pragma unroll
            for (int i = 0; i < D / 64; i++) {
                const bool valid = key + at >= begin && key + at < end && i * 64 + row * 8 < p.dim;
                v[n][i] = valid ? *(const uint4 *)(from + i * 64) : make_uint4(0, 0, 0, 0);
            }
        }
    }

    __device__ __forceinline__ void score(float (&s)[4]) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            float d[4];
#pragma unroll
            for (int i = 0; i < D / 32; i++) {
                const uint32_t a[4] = {q[i][0], q[i][4], q[i][1], q[i][5]}, b[4] = {q[i][2], q[i][6], q[i][3], q[i][7]};
                if (i == 0) {
                    mma<false>(T(), d, a, k[n][i].x, k[n][i].y);
                } else {
                    mma<true>(T(), d, a, k[n][i].x, k[n][i].y);
                }
                mma<true>(T(), d, b, k[n][i].z, k[n][i].w);
            }
            s[2 * n] = (d[0] + d[2]) * p.scale_log2;
            s[2 * n + 1] = (d[1] + d[3]) * p.scale_log2;
        }
    }

    // Converts s to weights and rescales the sums to the new frame.
    __device__ __forceinline__ void weigh(float (&s)[4], int key, int begin, int end) {
        float top = frame;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = key + i / 2 * 8 + t * 2 + i % 2;
            s[i] = at >= begin && at < end ? s[i] : -INFINITY;
            top = fmaxf(top, s[i]);
        }
        top = quad_max(top);
        const float shrink = exp2_fast(frame - from(top));
        frame = top;
        sum *= shrink;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[i] = exp2_fast(s[i] - from(top));
            sum += s[i];
        }
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            o[i][0] *= shrink;
            o[i][1] *= shrink;
        }
    }

    __device__ __forceinline__ static uint32_t word(const uint4 &x, int i) {
        return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
    }

    // Column n of product i is channel n * 8 + i (of 64).
    __device__ __forceinline__ void add_values(const float (&s)[4]) {
        const uint32_t a[4] = {pack2(T(), s[0], s[1]), 0, pack2(T(), s[2], s[3]), 0};
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            const int part = i / 8, w = i % 8 / 2;
            const uint32_t half = i % 2 ? 0x7632u : 0x5410u;
            const uint32_t b0 = __byte_perm(word(v[0][part], w), word(v[1][part], w), half);
            const uint32_t b1 = __byte_perm(word(v[2][part], w), word(v[3][part], w), half);
            float d[4] = {o[i][0], o[i][1], 0.0f, 0.0f};
            mma<true>(T(), d, a, b0, b1);
            o[i][0] = d[0];
            o[i][1] = d[1];
        }
    }

    __device__ __forceinline__ void walk(const pieces &of, int begin, int end) {
        const int sequence = sequence_of(p.in, query);
        const int first = of.start + blockIdx.x * of.piece; // a multiple of 16: the 16 positions are in one page
        int key = first + warp * 16;
        if (key >= end) {
            return;
        }
        int64_t base = paged_row(p.in, sequence, key);
        load_keys(base, key, begin, end);
        load_values(base, key, begin, end);
        load_query();
        while (key < end) {
            const int next = key + WARPS * 16;
            float s[4];
            score(s);
            if (next < end) {
                base = paged_row(p.in, sequence, next);
                load_keys(base, next, begin, end);
            }
            weigh(s, key, begin, end);
            add_values(s);
            if (next < end) {
                load_values(base, next, begin, end);
            }
            key = next;
        }
    }

    // Position of a channel in memory
    static __device__ __forceinline__ int place_of(int c) {
        return c / 64 * 64 + c % 16 * 4 + c % 64 / 16;
    }

    // The sums of all warps for head `warp`, in one frame
    struct joined {
        float share[WARPS], top, all;
    };

    __device__ __forceinline__ joined join_warps() {
        sum = quad_sum(sum);
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            mem.parts[warp][row][i / 8 * 64 + i % 8 * 4 + t] = o[i][0];
            mem.parts[warp][row][i / 8 * 64 + 32 + i % 8 * 4 + t] = o[i][1];
        }
        if (t == 0) {
            mem.tops[warp][row] = frame;
            mem.sums[warp][row] = sum;
        }
        __syncthreads();
        joined j = {{}, -INFINITY, 0.0f};
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            j.top = fmaxf(j.top, mem.tops[w][warp]);
        }
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            j.share[w] = exp2_fast(mem.tops[w][warp] - from(j.top));
            j.all = fmaf(j.share[w], mem.sums[w][warp], j.all);
        }
        return j;
    }

    __device__ __forceinline__ float joined_value(const joined &j, int c) const {
        float value = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            value = fmaf(j.share[w], mem.parts[w][warp][c], value);
        }
        return value;
    }

    __device__ __forceinline__ void merge_warps() {
        const joined j = join_warps();
        if (blocks > 1) {
            cluster_wait();
        }
        for (int c = warp < heads ? lane : D; c < D; c += 32) {
            give(mem.box[slot_of(warp, rank)] + c, joined_value(j, c));
        }
        if (lane == 0 && warp < heads) {
            give(mem.box_top + slot_of(warp, rank), j.top);
            give(mem.box_sum + slot_of(warp, rank), j.all);
        }
        if (blocks > 1) {
            cluster_arrive();
            cluster_wait();
        } else {
            __syncthreads();
        }
    }

    // Heads are distributed over the blocks round-robin; the number of blocks is a power of two.
    __device__ __forceinline__ int slot_of(int head, int from) const {
        return (head & -blocks) + from;
    }

    __device__ __forceinline__ void give(float *to, float v) {
        if (blocks > 1) {
            send(to, warp & (blocks - 1), v);
        } else {
            *to = v;
        }
    }

    __device__ __forceinline__ void finish() {
        for (int i = threadIdx.x; i < HEADS * D; i += WARPS * 32) {
            const int h = rank + i / D * blocks, c = i % D, slot = slot_of(h, 0);
            if (h >= heads) {
                break;
            }
            float top = -INFINITY, all = 0.0f, value = 0.0f;
            for (int b = slot; b < slot + blocks; b++) {
                top = fmaxf(top, mem.box_top[b]);
            }
            for (int b = slot; b < slot + blocks; b++) {
                const float share = exp2_fast(mem.box_top[b] - top);
                all = fmaf(share, mem.box_sum[b], all);
                value = fmaf(share, mem.box[b][place_of(c)], value);
            }
            if (c < p.dim) {
                put(first_head + h, c, top, all, value);
            }
        }
    }

    __device__ __forceinline__ void put(int head, int c, float top, float all, float value) {
        if (p.parts == nullptr) {
            store1(p.y.data, p.y.form, query * p.y.row + (int64_t)head * p.y.head + c, value / all);
            return;
        }
        const int64_t place = ((int64_t)query * p.heads + head) * p.splits + blockIdx.x;
        p.parts[place * p.dim + c] = value;
        if (c == 0) {
            p.tops[place] = top;
            p.sums[place] = all;
        }
    }

    __device__ __forceinline__ void run() {
        const pieces of(p, query);
        const int begin = max(of.start + (int)blockIdx.x * of.piece, of.seen.first), end = of.end(blockIdx.x);
        if (p.parts != nullptr && begin >= end) {
            return;
        }
        walk(of, begin, end);
        merge_warps();
        finish();
    }
};

} // namespace
