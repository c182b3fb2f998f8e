// pool.cu - the mean of a picture, the maximum of windows, bilinear resizing. The mean is summed in f32 by chunks of
// pixels, then over the chunks. The division into chunks depends only on the sizes.
#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/pixels/pool.h"

// Grid: chunks, pictures.
extern "C" __global__ void __launch_bounds__(DVK_MEAN_BLOCK) mean_chunks(const __grid_constant__ dvk_mean_params p) {
    __shared__ float sums[DVK_MEAN_BLOCK][9];
    wait_for_launch_ahead();
    const int64_t n = blockIdx.y, begin = blockIdx.x * p.per_chunk, end = min(begin + p.per_chunk, p.pixels);
    float *out = p.partial + (n * p.chunks + blockIdx.x) * p.c;
    for (int first = 0; first < p.octets; first += DVK_MEAN_BLOCK) {
        const int octets = min(p.octets - first, (int)DVK_MEAN_BLOCK);
        const int across = DVK_MEAN_BLOCK / octets; // pixels side by side
        const int octet = threadIdx.x % octets, mine = threadIdx.x / octets, c = (first + octet) * 8;
        float sum[8] = {};
        if (mine < across) {
#pragma unroll 4
            for (int64_t pixel = begin + mine; pixel < end; pixel += across) {
                const int64_t row = p.w ? (uint32_t)pixel / (uint32_t)p.w : 0;
                float v[8];
                unpack<0>(fetch<0>(p.x, n * p.x.sn + row * p.x.sh + (pixel - row * p.w) * p.x.sw + c, min(8, p.c - c)),
                          p.x.dtype, v);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    sum[i] += v[i];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sums[threadIdx.x][i] = sum[i];
        }
        __syncthreads();
        for (int i = threadIdx.x; i < octets * 8; i += DVK_MEAN_BLOCK) {
            float all = 0.0f;
            for (int k = 0; k < across; k++) {
                all += sums[k * octets + i / 8][i % 8];
            }
            if (first * 8 + i < p.c) {
                out[first * 8 + i] = all;
            }
        }
        __syncthreads();
    }
}

// Grid: pieces of the channels, pictures; eight threads add a channel's chunks.
extern "C" __global__ void __launch_bounds__(DVK_MEAN_BLOCK) mean_finish(const __grid_constant__ dvk_mean_params p) {
    __shared__ float sums[DVK_MEAN_BLOCK];
    wait_for_launch_ahead();
    const int64_t n = blockIdx.y;
    const int c = blockIdx.x * DVK_MEAN_FINISH_C + threadIdx.x % DVK_MEAN_FINISH_C;
    float sum = 0.0f;
    if (c < p.c) {
        for (int k = threadIdx.x / DVK_MEAN_FINISH_C; k < p.chunks; k += DVK_MEAN_BLOCK / DVK_MEAN_FINISH_C) {
            sum += p.partial[(n * p.chunks + k) * p.c + c];
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < DVK_MEAN_FINISH_C && c < p.c) {
        for (int k = 1; k < DVK_MEAN_BLOCK / DVK_MEAN_FINISH_C; k++) {
            sum += sums[k * DVK_MEAN_FINISH_C + threadIdx.x];
        }
        store1(p.y.data, p.y.dtype, n * p.y.sn + c, sum / (float)p.pixels);
    }
}

namespace {

struct pool_place {   // an output pixel's eight channels
    int64_t from, to; // first element of the picture's channels; of the result
    int y, x, count;
    __device__ __forceinline__ pool_place(const dvk_pool_params &p, uint32_t row, uint32_t item) {
        const int64_t n = row / (uint32_t)p.h;
        y = (int)row - (int)n * p.h;
        x = (int)(item / (uint32_t)p.chunks);
        const int c = ((int)item - x * p.chunks) * 8;
        count = min(8, p.c - c);
        from = n * p.x.sn + c;
        to = n * p.y.sn + y * p.y.sh + x * p.y.sw + c;
    }
};

struct between { // two samples of an axis and the weight of the second
    int first, second;
    float t;
    // ((out + 1/2) from / to - 1/2, in integers
    __device__ __forceinline__ between(int out, int from, int to) {
        const int64_t whole = 2 * (int64_t)to, at = max((2 * (int64_t)out + 1) * from - to, (int64_t)0);
        first = min((int)(at / whole), from - 1);
        second = min(first + 1, from - 1);
        t = (float)(at - first * whole) / (float)whole;
    }
};

template <int TYPE>
__device__ __forceinline__ void sample8(const dvk_elem_view &v, const raw8 &r, float weight, float (&sum)[8]) {
    float s[8];
    unpack<TYPE>(r, v.dtype, s);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum[i] = fmaf(weight, s[i], sum[i]);
    }
}

enum { AT_ONCE = 8 }; // of a window's row

template <int TYPE> __device__ __forceinline__ void pool_all(const dvk_pool_params &p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const pool_place at(p, row, item);
        float most[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            most[i] = -INFINITY;
        }
        for (int i = 0; i < p.k; i++) {
            const int64_t from = at.from + (int64_t)(at.y * p.stride + i) * p.x.sh;
            for (int first = 0; first < p.k; first += AT_ONCE) {
                raw8 r[AT_ONCE] = {};
#pragma unroll
                for (int j = 0; j < AT_ONCE; j++) {
                    if (first + j < p.k) {
                        r[j] = fetch<TYPE>(p.x, from + (int64_t)(at.x * p.stride + first + j) * p.x.sw, at.count);
                    }
                }
#pragma unroll
                for (int j = 0; j < AT_ONCE; j++) {
                    float v[8];
                    unpack<TYPE>(r[j], p.x.dtype, v);
#pragma unroll
                    for (int k = 0; k < 8 && first + j < p.k; k++) { // a NaN stays
                        most[k] = v[k] > most[k] || v[k] != v[k] ? v[k] : most[k];
                    }
                }
            }
        }
        put<TYPE>(p.y, at.to, at.count, pack<TYPE>(most, p.y.dtype));
    }
}

template <int TYPE> __device__ __forceinline__ void resize_all(const dvk_pool_params &p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const pool_place at(p, row, item);
        const between v(at.y, p.xh, p.h), u(at.x, p.xw, p.w);
        float sum[8] = {};
        raw8 r[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t from =
                at.from + (i < 2 ? v.first : v.second) * p.x.sh + (i % 2 ? u.second : u.first) * p.x.sw;
            r[i] = fetch<TYPE>(p.x, from, at.count);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sample8<TYPE>(p.x, r[i], (i < 2 ? 1.0f - v.t : v.t) * (i % 2 ? u.t : 1.0f - u.t), sum);
        }
        put<TYPE>(p.y, at.to, at.count, pack<TYPE>(sum, p.y.dtype));
    }
}

} // namespace

#define POOL(name, type)                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) max_pool_##name(const __grid_constant__ dvk_pool_params p) {     \
        pool_all<type>(p);                                                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) resize_##name(const __grid_constant__ dvk_pool_params p) {       \
        resize_all<type>(p);                                                                                           \
    }

POOL(f16, DVK_F16)
POOL(bf16, DVK_BF16)
POOL(any, 0)
