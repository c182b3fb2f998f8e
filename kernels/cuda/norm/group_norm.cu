// group_norm.cu - the two halves of a group norm. The statistics use Welford's update per channel in registers while
// the pixels stream. Then Chan's formula merges threads and the channels of a group. The order depends only on the
// shape.
#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/norm/group_norm.h"

namespace {

struct moments {
    float count, mean, m2;
};

__device__ __forceinline__ moments merged(const moments &a, const moments &b) {
    const float count = a.count + b.count;
    if (count == 0.0f) {
        return a;
    }
    const float share = __fdividef(b.count, count);
    const float delta = b.mean - a.mean;
    return {count, fmaf(delta, share, a.mean), a.m2 + b.m2 + delta * delta * share * a.count};
}

struct lanes8 { // running moments of eight channels, all with the same count
    float count, mean[8], m2[8];
};

template <int TYPE> __device__ __forceinline__ void add(lanes8 &s, const raw8 &raw) {
    float v[8];
    unpack<TYPE>(raw, TYPE, v);
    s.count += 1.0f;
    const float share = __fdividef(1.0f, s.count);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float delta = v[i] - s.mean[i];
        s.mean[i] = fmaf(delta, share, s.mean[i]);
        s.m2[i] = fmaf(delta, v[i] - s.mean[i], s.m2[i]);
    }
}

template <int TYPE>
__device__ __forceinline__ void stream(const dvk_norm_stats_params &p, int64_t n, int64_t y0, uint32_t pixels, int c,
                                       int count, uint32_t first, uint32_t step, lanes8 &s) {
    enum { AT_ONCE = TYPE == DVK_F32 ? 2 : 4 };
    const int64_t base = n * p.x.sn + y0 * p.x.sh + c;
    for (uint32_t at = first; at < pixels; at += AT_ONCE * step) {
        raw8 raw[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const uint32_t pixel = at + u * step;
            if (pixel < pixels) {
                const uint32_t row = p.even ? 0 : pixel / (uint32_t)p.w;
                const uint32_t column = pixel - row * (uint32_t)p.w;
                raw[u] = fetch<TYPE>(p.x, base + row * p.x.sh + column * p.x.sw, count);
            }
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            if (at + u * step < pixels) {
                add<TYPE>(s, raw[u]);
            }
        }
    }
}

// Merges the lanes of a thread that belong to one group, EACH of them; all have the same count.
template <int EACH> __device__ __forceinline__ void fold(lanes8 &s) {
#pragma unroll
    for (int v = 0; v < 8 / EACH; v++) {
        float mean = 0.0f, m2 = 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            mean += s.mean[v * EACH + i] * (1.0f / EACH);
            m2 += s.m2[v * EACH + i];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const float delta = s.mean[v * EACH + i] - mean;
            m2 = fmaf(s.count * delta, delta, m2);
        }
        s.mean[v] = mean;
        s.m2[v] = m2;
    }
    s.count *= EACH;
}

struct block_moments {
    float count[DVK_NORM_BLOCK];
    float mean[8][DVK_NORM_BLOCK], m2[8][DVK_NORM_BLOCK];
};

// Merges the block's rows of threads pairwise: row r takes row r + half. Row 0 ends with the moments of the chunk.
template <int VALUES>
__device__ __forceinline__ void merge_rows(lanes8 &s, block_moments &all, int row, int rows, int vectors) {
    const int own = threadIdx.x;
    while (true) {
        if (row < rows) {
            all.count[own] = s.count;
#pragma unroll
            for (int v = 0; v < VALUES; v++) {
                all.mean[v][own] = s.mean[v];
                all.m2[v][own] = s.m2[v];
            }
        }
        __syncthreads();
        if (rows == 1) {
            return;
        }
        const int half = (rows + 1) / 2;
        if (row + half < rows) {
            const int other = own + half * vectors;
            const float count = all.count[other];
#pragma unroll
            for (int v = 0; v < VALUES; v++) {
                const moments m = merged({s.count, s.mean[v], s.m2[v]}, {count, all.mean[v][other], all.m2[v][other]});
                s.mean[v] = m.mean;
                s.m2[v] = m.m2;
            }
            s.count += count;
        }
        rows = half;
    }
}

template <int EACH>
__device__ __forceinline__ void finish_chunk(const dvk_norm_stats_params &p, lanes8 &s, block_moments &all, int row,
                                             int rows, int vectors) {
    fold<EACH>(s);
    merge_rows<8 / EACH>(s, all, row, rows, vectors);
    const int64_t place = (blockIdx.y * p.chunks + blockIdx.x) * p.groups + blockIdx.z * (p.part / p.width);
    for (int g = threadIdx.x; g < p.part / p.width; g += blockDim.x) {
        moments m = {};
        for (int i = g * p.width / EACH; i < (g + 1) * p.width / EACH; i++) {
            const int at = i / (8 / EACH);
            m = merged(m, {all.count[at], all.mean[i % (8 / EACH)][at], all.m2[i % (8 / EACH)][at]});
        }
        float *out = p.partial + (place + g) * p.values;
        if (p.values == 3) {
            *out++ = m.count;
        }
        out[0] = m.mean;
        out[1] = m.m2;
    }
}

// Grid: chunks, pictures, parts.
template <int TYPE> __device__ __forceinline__ void stats(const dvk_norm_stats_params &p) {
    __shared__ block_moments all;
    wait_for_launch_ahead();
    const int64_t y0 = min(blockIdx.x * p.chunk_rows, p.h);
    const uint32_t pixels = (uint32_t)((min(y0 + p.chunk_rows, p.h) - y0) * p.w);
    const int vectors = (p.part + 7) / 8;
    const int rows = blockDim.x / vectors; // pixels side by side
    const int row = threadIdx.x / vectors;
    const int vector = threadIdx.x % vectors;
    lanes8 s = {};
    if (row < rows) {
        stream<TYPE>(p, blockIdx.y, y0, pixels, blockIdx.z * p.part + vector * 8, min(8, p.part - vector * 8), row,
                     rows, s);
    }
    switch (p.width % 8 == 0 ? 8 : p.width & -p.width) { // the largest power of two that divides it
    case 8:
        finish_chunk<8>(p, s, all, row, rows, vectors);
        break;
    case 4:
        finish_chunk<4>(p, s, all, row, rows, vectors);
        break;
    case 2:
        finish_chunk<2>(p, s, all, row, rows, vectors);
        break;
    default:
        finish_chunk<1>(p, s, all, row, rows, vectors);
    }
}

__device__ __forceinline__ float block_sum(float v, float *shared) {
    for (int lane = 16; lane > 0; lane /= 2) {
        v += __shfl_xor_sync(0xffffffffu, v, lane);
    }
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = v;
    }
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < blockDim.x / 32; i++) {
        sum += shared[i];
    }
    __syncthreads();
    return sum;
}

__device__ __forceinline__ moments partial_at(const dvk_norm_finish_params &p, int64_t n, int64_t chunk, int64_t g) {
    const float *at = p.partial + ((n * p.chunks + chunk) * p.groups + g) * p.values;
    if (p.values == 3) {
        return {at[0], at[1], at[2]};
    }
    const int64_t rows = min((int64_t)DVK_NORM_CHUNK_ROWS, p.h - chunk * DVK_NORM_CHUNK_ROWS);
    return {(float)(rows * p.w * p.width), at[0], at[1]};
}

} // namespace

#define NORM_STATS(name, type)                                                                                         \
    extern "C" __global__ void __launch_bounds__(DVK_NORM_BLOCK)                                                       \
        group_norm_stats_##name(const __grid_constant__ dvk_norm_stats_params p) {                                     \
        stats<type>(p);                                                                                                \
    }
NORM_STATS(f32, DVK_F32)
NORM_STATS(f16, DVK_F16)
NORM_STATS(bf16, DVK_BF16)

// One block: one group of one picture. First the mean, as an offset from the first chunk's mean, then the squares about
// it. Two passes over the same numbers need neither divisions nor f64. Registers hold the first KEPT * blockDim.x
// chunks.
extern "C" __global__ void __launch_bounds__(DVK_NORM_BLOCK)
    group_norm_finish(const __grid_constant__ dvk_norm_finish_params p) {
    enum { KEPT = 16 };
    __shared__ float shared[DVK_NORM_BLOCK / 32];
    wait_for_launch_ahead();
    const int64_t g = blockIdx.x;
    const int64_t n = blockIdx.y;
    const int64_t rest = threadIdx.x + (int64_t)KEPT * blockDim.x;
    moments kept[KEPT];
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        const int64_t k = threadIdx.x + (int64_t)i * blockDim.x;
        kept[i] = k < p.chunks ? partial_at(p, n, k, g) : moments{};
    }
    const moments first = partial_at(p, n, 0, g);
    const float origin = first.count > 0.0f ? first.mean : 0.0f;
    float count = 0.0f;
    float offset = 0.0f;
    const auto add_mean = [&](const moments &m) {
        if (m.count > 0.0f) {
            count += m.count;
            offset += m.count * (m.mean - origin);
        }
    };
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        add_mean(kept[i]);
    }
    for (int64_t k = rest; k < p.chunks; k += blockDim.x) {
        add_mean(partial_at(p, n, k, g));
    }
    count = block_sum(count, shared);
    offset = block_sum(offset, shared) / count;
    float squares = 0.0f;
    const auto add_squares = [&](const moments &m) {
        if (m.count > 0.0f) {
            const float delta = (m.mean - origin) - offset;
            squares += fmaf(m.count * delta, delta, m.m2);
        }
    };
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        add_squares(kept[i]);
    }
    for (int64_t k = rest; k < p.chunks; k += blockDim.x) {
        add_squares(partial_at(p, n, k, g));
    }
    const float variance = block_sum(squares, shared) / count;
    const float mean = origin + offset;
    const float inverse = 1.0f / sqrtf(variance + p.eps);
    for (int i = threadIdx.x; i < p.width; i += blockDim.x) {
        const int64_t c = g * p.width + i;
        const float scale = p.gamma[c] * inverse;
        p.scale[n * p.groups * p.width + c] = scale;
        p.shift[n * p.groups * p.width + c] = fmaf(-mean, scale, p.beta[c]);
    }
}
