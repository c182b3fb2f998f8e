// dictionary.cu - the ops of kernels/dictionary.h. Products are computed in tiles of 64 x 64, 4 x 4 per thread. Sums
// over a picture are added in pieces, in an order that depends only on the sizes. The pictures of a batch are in the
// grid's z.
#include "kernels/cuda/window/dictionary.h"
#include "kernels/cuda/common/elem.cuh"

namespace {

enum {
    BLOCK = DVK_DICTIONARY_BLOCK,
    WARPS = BLOCK / 32,
    TILE = DVK_DICTIONARY_TILE,
    PITCH = TILE + 4, // few bank conflicts
    DEPTH = DVK_DICTIONARY_DEPTH,
    CHUNK = DVK_DICTIONARY_CHUNK
};

__device__ __forceinline__ int64_t at(const dvk_pixels &p, int i) {
    const int y = i / p.w;
    return y * p.v.sh + (i - y * p.w) * p.v.sw;
}

__device__ __forceinline__ const float *row_of(const dvk_pixels &p, int i) { // for f32 views
    return (const float *)p.v.data + at(p, i);
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        v += __shfl_xor_sync(0xffffffffu, v, i);
    }
    return v;
}

__device__ __forceinline__ dvk_pixels of_picture(dvk_pixels p, int64_t n) {
    p.v.data = (char *)p.v.data + n * p.v.sn * (p.v.dtype == DVK_F32 ? 4 : 2);
    return p;
}

__device__ __forceinline__ dvk_similarity_params of_picture(dvk_similarity_params p, int64_t n) {
    p.q = of_picture(p.q, n), p.k = of_picture(p.k, n), p.y = of_picture(p.y, n);
    return p;
}

__device__ __forceinline__ dvk_mix_params of_picture(dvk_mix_params p, int64_t n) {
    p.s = of_picture(p.s, n), p.v = of_picture(p.v, n), p.y = of_picture(p.y, n);
    return p;
}

__device__ __forceinline__ dvk_order_params of_picture(dvk_order_params p, int64_t n) {
    p.s = of_picture(p.s, n), p.y = of_picture(p.y, n);
    p.kinds += n * p.s.count;
    p.counts += n * p.chunks * p.tokens;
    return p;
}

__device__ __forceinline__ dvk_gather_params of_picture(dvk_gather_params p, int64_t n) {
    p.x = of_picture(p.x, n), p.order = of_picture(p.order, n), p.y = of_picture(p.y, n);
    return p;
}

__device__ __forceinline__ dvk_refine_params of_picture(dvk_refine_params p, int64_t n) {
    p.t = of_picture(p.t, n), p.s = of_picture(p.s, n), p.x = of_picture(p.x, n), p.y = of_picture(p.y, n);
    p.stats += n * p.chunks * p.tokens * 4;
    p.curve += n * p.tokens * 2;
    p.sums += n * p.pieces * p.tokens * p.c;
    p.totals += n * p.pieces * p.tokens;
    return p;
}

// One step of a tile's product: each thread's 4 x 4 sums.
__device__ __forceinline__ void multiply(const float (*a)[PITCH], const float (*b)[PITCH], float (&sum)[4][4]) {
    const int tx = threadIdx.x % 16 * 4, ty = threadIdx.x / 16 * 4;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            sum[i / 4][i % 4] = fmaf(a[k][ty + i / 4], b[k][tx + i % 4], sum[i / 4][i % 4]);
        }
    }
}

} // namespace

// One warp per pixel. Shared memory holds the normalised tokens times their factors, [channel][token].
extern "C" __global__ void __launch_bounds__(BLOCK) similarity(const __grid_constant__ dvk_similarity_params all) {
    const dvk_similarity_params p = of_picture(all, blockIdx.z);
    extern __shared__ __align__(16) float tokens[];
    __shared__ float queries[WARPS][DVK_DICTIONARY_DIM];
    wait_for_launch_ahead();
    for (int i = threadIdx.x; i < p.tokens; i += BLOCK) {
        const float *k = row_of(p.k, i);
        float sum = 0.0f;
        for (int c = 0; c < p.dim; c++) {
            sum = fmaf(k[c], k[c], sum);
        }
        const float scale = p.factor[i] / fmaxf(sqrtf(sum), 1e-12f);
        for (int c = 0; c < p.dim; c++) {
            tokens[c * p.tokens + i] = k[c] * scale;
        }
    }
    __syncthreads();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float *q = queries[warp];
    for (int i = blockIdx.x * WARPS + warp; i < p.y.count; i += gridDim.x * WARPS) {
        const float *from = row_of(p.q, i);
        float sum = 0.0f;
        for (int c = lane; c < p.dim; c += 32) {
            q[c] = from[c];
            sum = fmaf(q[c], q[c], sum);
        }
        const float over = 1.0f / fmaxf(sqrtf(warp_sum(sum)), 1e-12f);
        __syncwarp();
        float *to = (float *)p.y.v.data + at(p.y, i);
        float total = 0.0f;
        for (int t = lane; t < p.tokens; t += 32) {
            float dot = 0.0f;
            for (int c = 0; c < p.dim; c++) {
                dot = fmaf(q[c], tokens[c * p.tokens + t], dot);
            }
            to[t] = expf(dot * over);
            total += to[t];
        }
        total = 1.0f / warp_sum(total);
        for (int t = lane; t < p.tokens; t += 32) { // each lane reads its earlier writes
            to[t] *= total;
        }
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) mix(const __grid_constant__ dvk_mix_params all) {
    const dvk_mix_params p = of_picture(all, blockIdx.z);
    __shared__ float a[DEPTH][PITCH], b[DEPTH][PITCH];
    wait_for_launch_ahead();
    const int pixel0 = blockIdx.x * TILE, c0 = blockIdx.y * TILE;
    float sum[4][4] = {};
    for (int first = 0; first < p.tokens; first += DEPTH) {
        for (int i = threadIdx.x; i < DEPTH * TILE; i += BLOCK) {
            const int pixel = pixel0 + i / DEPTH, t = first + i % DEPTH;
            a[i % DEPTH][i / DEPTH] = pixel < p.y.count && t < p.tokens ? row_of(p.s, pixel)[t] : 0.0f;
            const int token = first + i / TILE, c = c0 + i % TILE;
            b[i / TILE][i % TILE] = token < p.tokens && c < p.c ? row_of(p.v, token)[c] : 0.0f;
        }
        __syncthreads();
        multiply(a, b, sum);
        __syncthreads();
    }
    for (int i = 0; i < 16; i++) {
        const int pixel = pixel0 + threadIdx.x / 16 * 4 + i / 4, c = c0 + threadIdx.x % 16 * 4 + i % 4;
        if (pixel < p.y.count && c < p.c) {
            store1(p.y.v.data, p.y.v.dtype, at(p.y, pixel) + c, sum[i / 4][i % 4]);
        }
    }
}

// ---- order: each pixel's kind; pixels of each kind per chunk; offsets of the kinds; the pixels, one thread per kind
// ----

// One warp per pixel; the first of equals.
extern "C" __global__ void __launch_bounds__(BLOCK) order_kinds(const __grid_constant__ dvk_order_params all) {
    const dvk_order_params p = of_picture(all, blockIdx.z);
    wait_for_launch_ahead();
    const int lane = threadIdx.x % 32;
    for (int i = blockIdx.x * WARPS + threadIdx.x / 32; i < p.s.count; i += gridDim.x * WARPS) {
        const float *s = row_of(p.s, i);
        float best = -INFINITY;
        int kind = p.tokens;
        for (int t = lane; t < p.tokens; t += 32) {
            if (s[t] > best) {
                best = s[t];
                kind = t;
            }
        }
#pragma unroll
        for (int k = 16; k > 0; k /= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, best, k);
            const int its = __shfl_xor_sync(0xffffffffu, kind, k);
            if (other > best || (other == best && its < kind)) {
                best = other;
                kind = its;
            }
        }
        if (lane == 0) {
            p.kinds[i] = kind < p.tokens ? kind : 0; // no value is greater than another if all are NaN
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) order_count(const __grid_constant__ dvk_order_params all) {
    const dvk_order_params p = of_picture(all, blockIdx.z);
    extern __shared__ int32_t counts[];
    wait_for_launch_ahead();
    for (int t = threadIdx.x; t < p.tokens; t += BLOCK) {
        counts[t] = 0;
    }
    __syncthreads();
    const int first = blockIdx.x * CHUNK;
    for (int i = first + threadIdx.x; i < min(first + (int)CHUNK, p.s.count); i += BLOCK) {
        atomicAdd(&counts[p.kinds[i]], 1);
    }
    __syncthreads();
    for (int t = threadIdx.x; t < p.tokens; t += BLOCK) {
        p.counts[blockIdx.x * p.tokens + t] = counts[t];
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) order_begin(const __grid_constant__ dvk_order_params all) {
    const dvk_order_params p = of_picture(all, blockIdx.z);
    extern __shared__ int32_t begin[];
    wait_for_launch_ahead();
    for (int t = threadIdx.x; t < p.tokens; t += BLOCK) {
        int sum = 0;
        for (int k = 0; k < p.chunks; k++) {
            sum += p.counts[k * p.tokens + t];
        }
        begin[t] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int t = 0; t < p.tokens; t++) {
            const int more = begin[t];
            begin[t] = sum;
            sum += more;
        }
    }
    __syncthreads();
    for (int t = threadIdx.x; t < p.tokens; t += BLOCK) {
        int sum = begin[t];
        for (int k = 0; k < p.chunks; k++) {
            const int more = p.counts[k * p.tokens + t];
            p.counts[k * p.tokens + t] = sum;
            sum += more;
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) order_place(const __grid_constant__ dvk_order_params all) {
    const dvk_order_params p = of_picture(all, blockIdx.z);
    __shared__ int32_t kinds[CHUNK];
    wait_for_launch_ahead();
    const int first = blockIdx.x * CHUNK, count = min((int)CHUNK, p.s.count - first);
    for (int i = threadIdx.x; i < count; i += BLOCK) {
        kinds[i] = p.kinds[first + i];
    }
    __syncthreads();
    for (int t = threadIdx.x; t < p.tokens; t += BLOCK) {
        int next = p.counts[blockIdx.x * p.tokens + t];
        for (int i = 0; i < count; i++) {
            if (kinds[i] == t) {
                ((float *)p.y.v.data)[at(p.y, next++)] = (float)(first + i);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) order_again(const __grid_constant__ dvk_order_params all) {
    const dvk_order_params p = of_picture(all, blockIdx.z);
    wait_for_launch_ahead();
    float *y = (float *)p.y.v.data;
    for (int i = p.s.count + blockIdx.x * BLOCK + threadIdx.x; i < p.y.count; i += gridDim.x * BLOCK) {
        y[at(p.y, i)] = y[at(p.y, 2 * p.s.count - 1 - i)];
    }
}

// Eight channels of a pixel per thread
extern "C" __global__ void __launch_bounds__(BLOCK) gather(const __grid_constant__ dvk_gather_params all) {
    const dvk_gather_params p = of_picture(all, blockIdx.z);
    wait_for_launch_ahead();
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < (int64_t)p.count * p.pieces;
         i += (int64_t)gridDim.x * BLOCK) {
        const int t = (int)(i / p.pieces), c = (int)(i - (int64_t)t * p.pieces) * 8, count = min(8, p.c - c);
        const int other = (int)*row_of(p.order, t);
        const raw8 r = fetch<0>(p.x.v, at(p.x, p.scatters ? t : other) + c, count);
        float v[8];
        unpack<0>(r, p.x.v.dtype, v);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            v[k] *= p.scale != nullptr && k < count ? p.scale[c + k] : 1.0f;
        }
        put<0>(p.y.v, at(p.y, p.scatters ? other : t) + c, count, pack<0>(v, p.y.v.dtype));
    }
}

// ---- refine ----

// Sums differences from a chunk's first value.
extern "C" __global__ void __launch_bounds__(BLOCK) refine_stats(const __grid_constant__ dvk_refine_params all) {
    const dvk_refine_params p = of_picture(all, blockIdx.z);
    wait_for_launch_ahead();
    const int first = blockIdx.x * DVK_DICTIONARY_STATS, count = min((int)DVK_DICTIONARY_STATS, p.s.count - first);
    for (int t = threadIdx.x; t < p.tokens; t += BLOCK) {
        const float start = row_of(p.s, first)[t];
        float sum = 0.0f, squares = 0.0f, least = start, most = start;
        for (int i = 1; i < count; i++) {
            const float v = row_of(p.s, first + i)[t], d = v - start;
            sum += d;
            squares = fmaf(d, d, squares);
            least = fminf(least, v);
            most = fmaxf(most, v);
        }
        float *to = p.stats + ((int64_t)blockIdx.x * p.tokens + t) * 4;
        to[0] = start + sum / (float)count;
        to[1] = fmaxf(squares - sum * sum / (float)count, 0.0f);
        to[2] = least;
        to[3] = most;
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) refine_curve(const __grid_constant__ dvk_refine_params all) {
    const dvk_refine_params p = of_picture(all, blockIdx.z);
    wait_for_launch_ahead();
    for (int t = threadIdx.x; t < p.tokens; t += BLOCK) {
        double mean = 0.0, squares = 0.0, count = 0.0;
        float least = INFINITY, most = -INFINITY;
        for (int k = 0; k < p.chunks; k++) {
            const float *of = p.stats + ((int64_t)k * p.tokens + t) * 4;
            const double n = (double)min((int)DVK_DICTIONARY_STATS, p.s.count - k * (int)DVK_DICTIONARY_STATS);
            const double d = (double)of[0] - mean;
            squares += (double)of[1] + d * d * count * n / (count + n);
            mean += d * n / (count + n);
            count += n;
            least = fminf(least, of[2]);
            most = fmaxf(most, of[3]);
        }
        const float steep = p.gamma[t] / (float)sqrt(squares / count + (double)p.eps);
        p.curve[2 * t] = steep;
        p.curve[2 * t + 1] = fmaxf(steep * least, steep * most);
    }
}

// Grid: pieces of the picture, 64 channels, 64 tokens of each picture.
extern "C" __global__ void __launch_bounds__(BLOCK) refine_sums(const __grid_constant__ dvk_refine_params all) {
    const int down = (all.tokens + TILE - 1) / TILE;
    const dvk_refine_params p = of_picture(all, blockIdx.z / down);
    __shared__ float a[DEPTH][PITCH], b[DEPTH][PITCH];
    wait_for_launch_ahead();
    const int c0 = blockIdx.y * TILE, t0 = blockIdx.z % down * TILE;
    const int begin = blockIdx.x * p.per_piece, end = min(begin + p.per_piece, p.s.count);
    float sum[4][4] = {}, total[4] = {};
    for (int first = begin; first < end; first += DEPTH) {
        for (int i = threadIdx.x; i < DEPTH * TILE; i += BLOCK) {
            const int pixel = first + i / TILE, t = t0 + i % TILE, c = c0 + i % TILE;
            const bool real = pixel < end;
            a[i / TILE][i % TILE] =
                real && t < p.tokens ? expf(fmaf(p.curve[2 * t], row_of(p.s, pixel)[t], -p.curve[2 * t + 1])) : 0.0f;
            b[i / TILE][i % TILE] = real && c < p.c ? load1(p.x.v.data, p.x.v.dtype, at(p.x, pixel) + c) : 0.0f;
        }
        __syncthreads();
        multiply(a, b, sum);
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                total[i] += a[k][threadIdx.x / 16 * 4 + i];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 16; i++) {
        const int t = t0 + threadIdx.x / 16 * 4 + i / 4, c = c0 + threadIdx.x % 16 * 4 + i % 4;
        if (t < p.tokens && c < p.c) {
            p.sums[((int64_t)blockIdx.x * p.tokens + t) * p.c + c] = sum[i / 4][i % 4];
            if (c == 0) {
                p.totals[blockIdx.x * p.tokens + t] = total[i / 4];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) refine_finish(const __grid_constant__ dvk_refine_params all) {
    const dvk_refine_params p = of_picture(all, blockIdx.z);
    wait_for_launch_ahead();
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < p.tokens * p.c; i += gridDim.x * BLOCK) {
        const int t = i / p.c, c = i - t * p.c;
        float sum = 0.0f, total = 0.0f;
        for (int k = 0; k < p.pieces; k++) {
            sum += p.sums[((int64_t)k * p.tokens + t) * p.c + c];
            total += p.totals[k * p.tokens + t];
        }
        const float gate = 1.0f / (1.0f + expf(-p.sigma[t]));
        ((float *)p.y.v.data)[at(p.y, t) + c] = gate * row_of(p.t, t)[c] + (1.0f - gate) * sum / total;
    }
}
