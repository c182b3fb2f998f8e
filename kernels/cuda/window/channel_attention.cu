// channel_attention.cu - attention between the channels of a head: q k^T over chunks of pixels, softmax of the sums,
// and their product with v. A unit is a head of a group. The products run on mma.sync for 16-bit views and in f32 for
// others.
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/window/channel_attention.h"

using namespace attention;

namespace {

enum { WARPS = DVK_CHANNEL_WARPS, TILE = DVK_CHANNEL_TILE };

struct unit { // its position
    int n, head, y, x;
    __device__ __forceinline__ unit(const dvk_channel_params &p, int i) {
        head = i % p.heads;
        i /= p.heads;
        n = i / p.groups;
        i %= p.groups;
        y = i / p.across * p.first_y;
        x = i % p.across * p.first_x;
    }
    __device__ __forceinline__ int64_t at(const dvk_channel_params &p, const dvk_elem_view &v, int pixel) const {
        const int row = pixel / p.w, column = pixel - row * p.w;
        return n * v.sn + (y + row * p.step_y) * v.sh + (x + column * p.step_x) * v.sw + (int64_t)head * p.pitch;
    }
};

__device__ __forceinline__ int entries(const dvk_channel_params &p) {
    return p.width * (p.width + 2);
}

// ---- on tensor cores ----

// Loads pixels from `first` on of a unit, one per lane, into rows of D + 8; zeros past `end` and past the head.
template <int D, typename T>
__device__ __forceinline__ void load_pixels(T *to, const dvk_channel_params &p, const unit &u, const dvk_elem_view &v,
                                            int first, int end) {
    const int lane = threadIdx.x % 32, pixel = first + lane;
    const int64_t own = pixel < end ? u.at(p, v, pixel) : -1;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        const int row = (i * 32 + lane) / (D / 8), c = (i * 32 + lane) % (D / 8) * 8;
        const int64_t at = __shfl_sync(0xffffffffu, own, row);
        const bool there = at >= 0 && c < p.pitch;
        copy16(shared_address(to + row * (D + 8) + c), (const T *)v.data + (there ? at + c : 0), there);
    }
}

template <typename T, int D> struct gram {
    enum { PITCH = D + 8, PART = TILE * PITCH, M = D / 16, N = D / 8 };
    float qk[M][N][4], qq[M][2][4], kk[M][2][4];

    // Left operand: channels from m * 16 on of 16 pixels as rows
    static __device__ __forceinline__ void left(uint32_t (&a)[4], const T *tile, int m) {
        const int lane = threadIdx.x % 32;
        ldmatrix4_trans(a,
                        shared_address(tile + ((lane & 7) + (lane >> 4) * 8) * PITCH + m * 16 + (lane >> 3 & 1) * 8));
    }

    // Right operand: channels from n * 16 on of 16 pixels as columns
    static __device__ __forceinline__ void right(uint32_t (&b)[4], const T *tile, int n) {
        const int lane = threadIdx.x % 32;
        ldmatrix4_trans(b, shared_address(tile + (lane & 15) * PITCH + n * 16 + (lane >> 4) * 8));
    }

    __device__ __forceinline__ void add(const T *q, const T *k) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            uint32_t a[4], b[4];
            left(a, k, m);
            right(b, k, m);
            mma<true>(T(), kk[m][0], a, b[0], b[1]);
            mma<true>(T(), kk[m][1], a, b[2], b[3]);
            left(a, q, m);
            right(b, q, m);
            mma<true>(T(), qq[m][0], a, b[0], b[1]);
            mma<true>(T(), qq[m][1], a, b[2], b[3]);
#pragma unroll
            for (int n = 0; n < N; n += 2) {
                right(b, k, n / 2);
                mma<true>(T(), qk[m][n], a, b[0], b[1]);
                mma<true>(T(), qk[m][n + 1], a, b[2], b[3]);
            }
        }
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < M * N * 4; i++) {
            qk[i / 4 / N][i / 4 % N][i % 4] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < M * 8; i++) {
            qq[i / 8][i / 4 % 2][i % 4] = kk[i / 8][i / 4 % 2][i % 4] = 0.0f;
        }
    }

    // f(entry, sum)
    template <typename F> __device__ __forceinline__ void each(F f) const {
        const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < M * N * 4; i++) {
            const int d = i / 4 / N * 16 + row + i % 4 / 2 * 8, e = i / 4 % N * 8 + column + i % 2;
            f(d * D + e, qk[i / 4 / N][i / 4 % N][i % 4]);
        }
#pragma unroll
        for (int i = 0; i < M * 8; i++) {
            const int d = row + i % 4 / 2 * 8, e = i / 4 % 2 * 8 + column + i % 2;
            if (d == e) {
                f(D * D + i / 8 * 16 + d, qq[i / 8][i / 4 % 2][i % 4]);
                f(D * D + D + i / 8 * 16 + d, kk[i / 8][i / 4 % 2][i % 4]);
            }
        }
    }

    __device__ __forceinline__ void run(const dvk_channel_params &p, unsigned char *shared) {
        const int warp = threadIdx.x / 32;
        const unit u(p, (int)blockIdx.x);
        const int begin = (int)blockIdx.y * DVK_CHANNEL_PIXELS, end = min(begin + (int)DVK_CHANNEL_PIXELS, p.h * p.w);
        T *own = (T *)shared + warp * 4 * PART;
        clear();
        int first = begin + warp * TILE;
        load_pixels<D>(own, p, u, p.q, first, end);
        load_pixels<D>(own + PART, p, u, p.k, first, end);
        commit_copies();
        for (int i = 0; first < end; i ^= 1, first += WARPS * TILE) {
            T *next = own + (i ^ 1) * 2 * PART, *q = own + i * 2 * PART;
            load_pixels<D>(next, p, u, p.q, first + WARPS * TILE, end);
            load_pixels<D>(next + PART, p, u, p.k, first + WARPS * TILE, end);
            commit_copies();
            wait_copies<1>();
            __syncwarp();
#pragma unroll
            for (int t = 0; t < TILE; t += 16) {
                add(q + t * PITCH, q + PART + t * PITCH);
            }
            __syncwarp();
        }
        wait_copies<0>();
        __syncthreads();
        float *sums = (float *)shared, *to = p.partial + ((int64_t)blockIdx.x * p.chunks + blockIdx.y) * entries(p);
        for (int w = 0; w < WARPS; w++) { // in fixed order, which determines the result
            if (warp == w) {
                each([&](int at, float x) { sums[at] = w == 0 ? x : sums[at] + x; });
            }
            __syncthreads();
        }
        for (int i = threadIdx.x; i < entries(p); i += WARPS * 32) {
            to[i] = sums[i];
        }
    }
};

template <typename T, int D> struct apply {
    enum { PITCH = D + 8, PART = TILE * PITCH };

    static __device__ __forceinline__ void run(const dvk_channel_params &p, unsigned char *shared) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const unit u(p, (int)blockIdx.x);
        const int begin = (int)blockIdx.y * DVK_CHANNEL_PIXELS, end = min(begin + (int)DVK_CHANNEL_PIXELS, p.h * p.w);
        T *weights = (T *)shared, *own = weights + D * PITCH + warp * 2 * PART;
        int first = begin + warp * TILE;
        load_pixels<D>(own, p, u, p.v, first, end);
        commit_copies();
        for (int i = threadIdx.x; i < D * D / 2; i += WARPS * 32) {
            const float2 x = ((const float2 *)(p.weights + (int64_t)blockIdx.x * D * D))[i];
            *(uint32_t *)(weights + i / (D / 2) * PITCH + i % (D / 2) * 2) = pack2(T(), x.x, x.y);
        }
        __syncthreads();
        for (int i = 0; first < end; i ^= 1, first += WARPS * TILE) {
            T *tile = own + i * PART;
            load_pixels<D>(own + (i ^ 1) * PART, p, u, p.v, first + WARPS * TILE, end);
            commit_copies();
            wait_copies<1>();
            __syncwarp();
            multiply(tile, weights);
            __syncwarp();
            const int64_t mine = first + lane < end ? u.at(p, p.y, first + lane) : -1;
#pragma unroll
            for (int j = 0; j < D / 8; j++) {
                const int row = (j * 32 + lane) / (D / 8), c = (j * 32 + lane) % (D / 8) * 8;
                const int64_t at = __shfl_sync(0xffffffffu, mine, row);
                if (at >= 0 && c < p.pitch) {
                    *(uint4 *)((T *)p.y.data + at + c) = *(const uint4 *)(tile + row * PITCH + c);
                }
            }
            __syncwarp();
        }
    }

    // tile = tile weights, in place
    static __device__ __forceinline__ void multiply(T *tile, const T *weights) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int m = 0; m < TILE / 16; m++) {
            float o[D / 8][4];
            uint32_t a[D / 16][4];
#pragma unroll
            for (int e = 0; e < D / 16; e++) {
                ldmatrix4(a[e], shared_address(tile + (m * 16 + (lane & 15)) * PITCH + (lane >> 4) * 8 + e * 16));
            }
#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
#pragma unroll
                for (int e = 0; e < D / 16; e++) {
                    uint32_t b[4];
                    ldmatrix4_trans(b,
                                    shared_address(weights + (e * 16 + (lane & 15)) * PITCH + n * 8 + (lane >> 4) * 8));
                    if (e == 0) {
                        mma<false>(T(), o[n], a[e], b[0], b[1]);
                        mma<false>(T(), o[n + 1], a[e], b[2], b[3]);
                    } else {
                        mma<true>(T(), o[n], a[e], b[0], b[1]);
                        mma<true>(T(), o[n + 1], a[e], b[2], b[3]);
                    }
                }
            }
            __syncwarp();
            T *row = tile + (m * 16 + lane / 4) * PITCH + (lane & 3) * 2;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                *(uint32_t *)(row + n * 8) = pack2(T(), o[n][0], o[n][1]);
                *(uint32_t *)(row + 8 * PITCH + n * 8) = pack2(T(), o[n][2], o[n][3]);
            }
        }
    }
};

// ---- in f32 ----

enum { THREADS = DVK_CHANNEL_SIMT_THREADS, OWN = DVK_CHANNEL_SIMT_ENTRIES / THREADS };

// Entry i is a sum of products of two columns of rows that hold q and k.
__device__ __forceinline__ int2 columns_of(const dvk_channel_params &p, int i) {
    const int squares = i - p.width * p.width;
    return squares < 0 ? make_int2(i / p.width, p.width + i % p.width) : make_int2(squares, squares);
}

} // namespace

extern __shared__ __align__(16) unsigned char dynamic_shared[];

extern "C" __global__ void __launch_bounds__(THREADS) channel_gram_simt(const __grid_constant__ dvk_channel_params p) {
    wait_for_launch_ahead();
    float *rows = (float *)dynamic_shared; // [TILE][2 * width]
    const unit u(p, (int)blockIdx.x);
    const int begin = (int)blockIdx.y * DVK_CHANNEL_PIXELS, end = min(begin + (int)DVK_CHANNEL_PIXELS, p.h * p.w);
    const int first_entry = blockIdx.z * DVK_CHANNEL_SIMT_ENTRIES + threadIdx.x;
    int2 column[OWN];
    float sum[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        column[i] = columns_of(p, min(first_entry + i * THREADS, entries(p) - 1));
        sum[i] = 0.0f;
    }
    for (int first = begin; first < end; first += TILE) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * 2 * p.width; i += THREADS) {
            const int pixel = first + i / (2 * p.width), c = i % (2 * p.width);
            const dvk_elem_view &v = c < p.width ? p.q : p.k;
            rows[i] = pixel < end ? load1(v.data, v.dtype, u.at(p, v, pixel) + (c < p.width ? c : c - p.width)) : 0.0f;
        }
        __syncthreads();
        for (int t = 0; t < TILE; t++) {
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                sum[i] = fmaf(rows[t * 2 * p.width + column[i].x], rows[t * 2 * p.width + column[i].y], sum[i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int entry = first_entry + i * THREADS;
        if (entry < entries(p)) {
            p.partial[((int64_t)blockIdx.x * p.chunks + blockIdx.y) * entries(p) + entry] = sum[i];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) channel_apply_simt(const __grid_constant__ dvk_channel_params p) {
    wait_for_launch_ahead();
    float *rows = (float *)dynamic_shared; // [TILE][width]
    const unit u(p, (int)blockIdx.x);
    const int begin = (int)blockIdx.y * DVK_CHANNEL_PIXELS, end = min(begin + (int)DVK_CHANNEL_PIXELS, p.h * p.w);
    const float *weights = p.weights + (int64_t)blockIdx.x * p.width * p.width;
    for (int first = begin; first < end; first += TILE) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * p.width; i += THREADS) {
            const int pixel = first + i / p.width, c = i % p.width;
            rows[i] = pixel < end && c < p.dim ? load1(p.v.data, p.v.dtype, u.at(p, p.v, pixel) + c) : 0.0f;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * p.width; i += THREADS) {
            const int pixel = first + i / p.width, d = i % p.width;
            float sum = 0.0f;
            for (int e = 0; e < p.dim; e++) {
                sum = fmaf(weights[e * p.width + d], rows[i / p.width * p.width + e], sum);
            }
            if (pixel < end) {
                store1(p.y.data, p.y.dtype, u.at(p, p.y, pixel) + d, sum);
            }
        }
    }
}

// Computes the weights of a unit, one unit per block; chunks are added in order.
extern "C" __global__ void __launch_bounds__(THREADS) channel_weights(const __grid_constant__ dvk_channel_params p) {
    wait_for_launch_ahead();
    float *sums = (float *)dynamic_shared;
    const float *partial = p.partial + (int64_t)blockIdx.x * p.chunks * entries(p);
    const float temperature = p.temperature[blockIdx.x % p.heads];
    for (int i = threadIdx.x; i < entries(p); i += THREADS) {
        float sum = 0.0f;
        for (int c = 0; c < p.chunks; c++) {
            sum += partial[(int64_t)c * entries(p) + i];
        }
        sums[i] = i < p.width * p.width ? sum : 1.0f / fmaxf(sqrtf(sum), p.eps);
    }
    __syncthreads();
    const float *over_q = sums + p.width * p.width, *over_k = over_q + p.width;
    float *to = p.weights + (int64_t)blockIdx.x * p.width * p.width;
    const int lane = threadIdx.x % 32;
    for (int d = threadIdx.x / 32; d < p.width; d += THREADS / 32) {
        float *row = sums + d * p.width;
        float top = -INFINITY, sum = 0.0f;
        for (int e = lane; e < p.dim; e += 32) {
            row[e] *= over_q[d] * over_k[e] * temperature;
            top = fmaxf(top, row[e]);
        }
#pragma unroll
        for (int i = 16; i > 0; i /= 2) {
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, i));
        }
        for (int e = lane; e < p.dim; e += 32) {
            row[e] = expf(row[e] - top);
            sum += row[e];
        }
#pragma unroll
        for (int i = 16; i > 0; i /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, i);
        }
        for (int e = lane; e < p.width; e += 32) {
            to[e * p.width + d] = d < p.dim && e < p.dim ? row[e] / sum : 0.0f;
        }
    }
}

#define CHANNELS(NAME, T, D)                                                                                           \
    extern "C" __global__ void __launch_bounds__(WARPS * 32)                                                           \
        channel_gram_##NAME##_##D(const __grid_constant__ dvk_channel_params p) {                                      \
        wait_for_launch_ahead();                                                                                       \
        gram<T, D> g;                                                                                                  \
        g.run(p, dynamic_shared);                                                                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(WARPS * 32)                                                           \
        channel_apply_##NAME##_##D(const __grid_constant__ dvk_channel_params p) {                                     \
        wait_for_launch_ahead();                                                                                       \
        apply<T, D>::run(p, dynamic_shared);                                                                           \
    }

CHANNELS(f16, __half, 16)
CHANNELS(f16, __half, 32)
CHANNELS(f16, __half, 64)
CHANNELS(bf16, __nv_bfloat16, 16)
CHANNELS(bf16, __nv_bfloat16, 32)
CHANNELS(bf16, __nv_bfloat16, 64)
