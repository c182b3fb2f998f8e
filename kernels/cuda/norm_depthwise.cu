// norm_depthwise.cu - layer norm, 1x1 convolution, depthwise 3x3 and, of a gated feed-forward layer, the product of its halves,
// another 1x1 convolution and the residual, on a tile of 16 x 8 pixels: nothing in between leaves the multiprocessor. A block
// keeps its weights in shared memory and goes from tile to tile. Hidden channels are kept, and summed over the window, in f16
// whatever is stored, two at a time: behind a norm they are of its range, and nine terms lose less than bf16 does. They come 64
// at a time where they are stored, else all at once.
#include "kernels/cuda/elem_epilogue.cuh"
#include "kernels/cuda/norm_depthwise.h"

#if __CUDA_ARCH__ >= 800

namespace {

enum {
    C = DVK_NORM_DEPTH_C,
    WIDE = DVK_NORM_DEPTH_W,
    HIGH = DVK_NORM_DEPTH_H,
    PATCH_W = WIDE + 2,
    PATCH = PATCH_W * (HIGH + 2),
    ROWS = DVK_NORM_DEPTH_ROWS,
    PITCH = DVK_NORM_DEPTH_PITCH,
    BLOCK = DVK_NORM_DEPTH_BLOCK,
    OCTETS = C / 8,
    ACROSS = 4,   // pixels of a thread, side by side
    BOTH = 2 * C, // hidden channels of a gated layer
    AT_ONCE = ROWS * OCTETS / BLOCK
};

struct tile {
    int n, y0, x0;
};

__device__ __forceinline__ tile tile_of(const dvk_norm_depthwise_params &p, int job) {
    const int row = job / p.tiles_x, n = row / p.tiles_y;
    return {n, (row - n * p.tiles_y) * HIGH, (job - row * p.tiles_x) * WIDE};
}

__device__ __forceinline__ uint32_t at_shared(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void load_matrices(uint32_t at, uint32_t (&m)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

template <int TYPE>
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if (TYPE == DVK_BF16) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// d[16 * M][8 * N] = a[16 * M][64] * b[8 * N][64]^T, rows PITCH apart in shared memory.
template <int TYPE, int M, int N> __device__ __forceinline__ void product(uint32_t a, uint32_t b, float (&d)[M][N][4]) {
    const int lane = threadIdx.x & 31;
    a += ((lane & 15) * PITCH + (lane >> 4) * 8) * 2;
    b += (((lane >> 4) * 8 + (lane & 7)) * PITCH + (lane >> 3 & 1) * 8) * 2;
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) {
        d[i / (4 * N)][i / 4 % N][i % 4] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < C / 16; k++) {
        uint32_t rows[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            load_matrices(a + (m * 16 * PITCH + k * 16) * 2, rows[m]);
        }
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t columns[4];
            load_matrices(b + (n * 8 * PITCH + k * 16) * 2, columns);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply<TYPE>(d[m][n], rows[m], columns[0], columns[1]);
                multiply<TYPE>(d[m][n + 1], rows[m], columns[2], columns[3]);
            }
        }
    }
}

// Weights of a matrix as 16-bit rows.
template <int TYPE> __device__ __forceinline__ void load_rows(const float *w, int rows, uint16_t *to) {
    for (int i = threadIdx.x; i < rows * C; i += BLOCK) {
        to[i / C * PITCH + i % C] = (uint16_t)bits_of(w[i], TYPE);
    }
}

template <int TYPE, bool GATED> struct mixer {
    enum { HIDDEN_PITCH = (GATED ? BOTH : C) + 8 };
    const dvk_norm_depthwise_params &p;
    uint16_t *normed, *hidden, *w_in, *w_out;
    uint16_t *w_depth; // [tap][hidden] of f16

    __device__ __forceinline__ void load_weights() const {
        load_rows<TYPE>(p.w_in, p.hidden, w_in);
        if (GATED) {
            load_rows<TYPE>(p.w_out, C, w_out);
        }
        for (int i = threadIdx.x; i < 9 * p.hidden; i += BLOCK) {
            w_depth[i] = (uint16_t)bits_of(p.w_depth[i], DVK_F16);
        }
    }

    // The patch's pixels, normalised; eight threads a pixel.
    __device__ __forceinline__ void load_patch(const tile &t) const {
        const int octet = threadIdx.x % OCTETS;
        float gamma[8], beta[8];
        channel_values(p.gamma, octet * 8, 8, gamma, 1.0f);
        channel_values(p.beta, octet * 8, 8, beta, 0.0f);
        raw8 raw[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int pixel = threadIdx.x / OCTETS + i * (BLOCK / OCTETS), row = pixel / PATCH_W;
            const int y = t.y0 + row - 1, x = t.x0 + pixel - row * PATCH_W - 1;
            const bool real = pixel < PATCH && y >= 0 && x >= 0 && y < p.h && x < p.w;
            const int64_t from = t.n * p.x.sn + (int64_t)y * p.x.sh + (int64_t)x * p.x.sw + octet * 8;
            raw[i] = real ? fetch<TYPE>(p.x, from, 8) : raw8{};
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int pixel = threadIdx.x / OCTETS + i * (BLOCK / OCTETS);
            float v[8], sum = 0.0f, squares = 0.0f;
            unpack<TYPE>(raw[i], TYPE, v);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                sum += v[k];
            }
#pragma unroll
            for (int lane = 1; lane < OCTETS; lane *= 2) {
                sum += __shfl_xor_sync(0xffffffffu, sum, lane);
            }
            const float mean = sum * (1.0f / C);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                squares = fmaf(v[k] - mean, v[k] - mean, squares);
            }
#pragma unroll
            for (int lane = 1; lane < OCTETS; lane *= 2) {
                squares += __shfl_xor_sync(0xffffffffu, squares, lane);
            }
            const float scale = rsqrtf(squares * (1.0f / C) + p.eps);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                v[k] = fmaf((v[k] - mean) * scale, gamma[k], beta[k]);
            }
            *(uint4 *)(normed + pixel * PITCH + octet * 8) = pack<TYPE>(v, TYPE).a;
        }
    }

    // 64 hidden channels of all pixels of the patch, from column `to` on, zero around the picture: four warps along the pixels,
    // two along them.
    __device__ __forceinline__ void make_hidden(const tile &t, int chunk, int to) const {
        enum { M = ROWS / 64, N = C / 16 };
        const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
        const int first = warp / 2 * M * 16, column = warp % 2 * (C / 2), c0 = chunk * C + column + lane % 4 * 2;
        float d[M][N][4];
        product<TYPE, M, N>(at_shared(normed + first * PITCH), at_shared(w_in + (chunk * C + column) * PITCH), d);
        float2 bias[N];
#pragma unroll
        for (int n = 0; n < N; n++) {
            bias[n] = p.b_in != nullptr ? *(const float2 *)(p.b_in + c0 + n * 8) : make_float2(0.0f, 0.0f);
        }
#pragma unroll
        for (int m = 0; m < M * 2; m++) {
            const int pixel = first + m * 8 + lane / 4, row = pixel / PATCH_W;
            const int y = t.y0 + row - 1, x = t.x0 + pixel - row * PATCH_W - 1;
            const bool real = y >= 0 && x >= 0 && y < p.h && x < p.w;
#pragma unroll
            for (int n = 0; n < N; n++) {
                const float *s = d[m / 2][n] + m % 2 * 2;
                const __half2 u = __floats2half2_rn(real ? s[0] + bias[n].x : 0.0f, real ? s[1] + bias[n].y : 0.0f);
                *(__half2 *)(hidden + pixel * HIDDEN_PITCH + to + column + n * 8 + lane % 4 * 2) = u;
            }
        }
    }

    // Depthwise sums of four pixels from `at` of the patch on, of eight channels; c: of all hidden ones.
    __device__ __forceinline__ void depthwise(int at, int column, int c, __half2 (&sum)[ACROSS][4]) const {
        float bias[8];
        channel_values(p.b_depth, c, 8, bias, 0.0f);
#pragma unroll
        for (int i = 0; i < ACROSS * 4; i++) {
            sum[i / 4][i % 4] = __floats2half2_rn(bias[i % 4 * 2], bias[i % 4 * 2 + 1]);
        }
#pragma unroll
        for (int ky = 0; ky < 3; ky++) {
            uint4 w[3];
#pragma unroll
            for (int kx = 0; kx < 3; kx++) {
                w[kx] = *(const uint4 *)(w_depth + (ky * 3 + kx) * p.hidden + c);
            }
#pragma unroll
            for (int i = 0; i < ACROSS + 2; i++) {
                const uint4 u = *(const uint4 *)(hidden + (at + ky * PATCH_W + i) * HIDDEN_PITCH + column);
                const __half2 *v = (const __half2 *)&u;
#pragma unroll
                for (int kx = 0; kx < 3; kx++) {
#pragma unroll
                    for (int k = 0; k < 4 && i >= kx && i - kx < ACROSS; k++) {
                        sum[i - kx][k] = __hfma2(v[k], ((const __half2 *)&w[kx])[k], sum[i - kx][k]);
                    }
                }
            }
        }
    }

    static __device__ __forceinline__ void widen(const __half2 (&sum)[4], float (&v)[8]) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 f = __half22float2(sum[k]);
            v[2 * k] = f.x, v[2 * k + 1] = f.y;
        }
    }

    __device__ __forceinline__ void activate(float (&v)[8]) const {
        const float none[8] = {};
        if (p.act == DVK_ACT_GELU) {
#pragma unroll
            for (int k = 0; k < 8; k++) {
                v[k] = act_gelu_short(v[k]);
            }
        } else {
            activate8<CURVES_FAST>(p.act, v, none);
        }
    }

    // act(first) * second of all pairs, to where the normalised pixels were; a thread has four pixels of eight.
    __device__ __forceinline__ void make_pairs() const {
        const int octet = threadIdx.x % OCTETS, at = threadIdx.x / OCTETS;
        const int row = at / (WIDE / ACROSS), x = at % (WIDE / ACROSS) * ACROSS;
        __half2 sum[2][ACROSS][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            depthwise(row * PATCH_W + x, octet * 8 + half * C, octet * 8 + half * C, sum[half]);
        }
#pragma unroll
        for (int i = 0; i < ACROSS; i++) {
            float v[8], factor[8];
            widen(sum[0][i], v);
            widen(sum[1][i], factor);
            activate(v);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                v[k] *= factor[k];
            }
            *(uint4 *)(normed + (row * WIDE + x + i) * PITCH + octet * 8) = pack<TYPE>(v, TYPE).a;
        }
    }

    __device__ __forceinline__ void put_pixel(const tile &t, int row, int x, int c, const uint4 &u) const {
        if (t.y0 + row < p.h && t.x0 + x < p.w) {
            const int64_t to = t.n * p.y.sn + (int64_t)(t.y0 + row) * p.y.sh + (int64_t)(t.x0 + x) * p.y.sw + c;
            *(uint4 *)((uint16_t *)p.y.data + to) = u;
        }
    }

    // The chunk's 64 channels, as they are: a thread has four pixels of eight.
    __device__ __forceinline__ void store_depthwise(const tile &t, int chunk) const {
        const int octet = threadIdx.x % OCTETS, at = threadIdx.x / OCTETS;
        const int row = at / (WIDE / ACROSS), x = at % (WIDE / ACROSS) * ACROSS, c = chunk * C + octet * 8;
        __half2 sum[ACROSS][4];
        depthwise(row * PATCH_W + x, octet * 8, c, sum);
#pragma unroll
        for (int i = 0; i < ACROSS; i++) {
            float v[8];
            widen(sum[i], v);
            put_pixel(t, row, x + i, c, pack<TYPE>(v, TYPE).a);
        }
    }

    // pairs * w_out^T: a warp has 16 pixels; through `hidden` to whole pixels.
    __device__ __forceinline__ void make_result() const {
        enum { N = C / 8 };
        const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
        float d[1][N][4];
        product<TYPE, 1, N>(at_shared(normed + warp * 16 * PITCH), at_shared(w_out), d);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int c = n * 8 + lane % 4 * 2;
            const float2 bias = p.b_out != nullptr ? make_float2(p.b_out[c], p.b_out[c + 1]) : make_float2(0.0f, 0.0f);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float *s = d[0][n] + half * 2;
                *(uint32_t *)(hidden + (warp * 16 + half * 8 + lane / 4) * PITCH + c) =
                    bits_of(s[0] + bias.x, TYPE) | bits_of(s[1] + bias.y, TYPE) << 16;
            }
        }
    }

    __device__ __forceinline__ void store_result(const tile &t) const {
        const int octet = threadIdx.x % OCTETS;
#pragma unroll
        for (int pixel = threadIdx.x / OCTETS; pixel < WIDE * HIGH; pixel += BLOCK / OCTETS) {
            const int row = pixel / WIDE, x = pixel % WIDE;
            raw8 r = {*(const uint4 *)(hidden + pixel * PITCH + octet * 8), {}};
            if (p.res.data != nullptr && t.y0 + row < p.h && t.x0 + x < p.w) {
                float v[8], add[8];
                const int64_t from = t.n * p.res.sn + (int64_t)(t.y0 + row) * p.res.sh + (int64_t)(t.x0 + x) * p.res.sw;
                unpack<TYPE>(fetch<TYPE>(p.res, from + octet * 8, 8), TYPE, add);
                unpack<TYPE>(r, TYPE, v);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    v[i] += add[i];
                }
                r = pack<TYPE>(v, TYPE);
            }
            put_pixel(t, row, x, octet * 8, r.a);
        }
    }

    __device__ __forceinline__ void run() const {
        load_weights();
        wait_for_launch_ahead();
        for (int job = blockIdx.x; job < p.jobs; job += gridDim.x) {
            const tile t = tile_of(p, job);
            load_patch(t);
            __syncthreads(); // also behind the weights
            if (GATED) {
                make_hidden(t, 0, 0);
                make_hidden(t, 1, C);
                __syncthreads();
                make_pairs();
                __syncthreads();
                make_result();
                __syncthreads();
                store_result(t);
                __syncthreads();
            } else {
                for (int chunk = 0; chunk < p.hidden / C; chunk++) {
                    make_hidden(t, chunk, 0);
                    __syncthreads();
                    store_depthwise(t, chunk);
                    __syncthreads();
                }
            }
        }
    }
};

template <int TYPE, bool GATED> __device__ __forceinline__ void mix(const dvk_norm_depthwise_params &p) {
    extern __shared__ __align__(16) unsigned char shared[];
    uint16_t *normed = (uint16_t *)shared, *hidden = normed + ROWS * PITCH;
    uint16_t *w_in = hidden + ROWS * mixer<TYPE, GATED>::HIDDEN_PITCH, *w_out = w_in + p.hidden * PITCH;
    const mixer<TYPE, GATED> m = {p, normed, hidden, w_in, w_out, GATED ? w_out + C * PITCH : w_out};
    m.run();
}

} // namespace

#define NORM_DEPTHWISE(name, type, gated)                                                                              \
    extern "C" __global__ void __launch_bounds__(BLOCK, 2) name(const __grid_constant__ dvk_norm_depthwise_params p) { \
        mix<type, gated>(p);                                                                                           \
    }

NORM_DEPTHWISE(norm_depthwise_f16, DVK_F16, false)
NORM_DEPTHWISE(norm_depthwise_bf16, DVK_BF16, false)
NORM_DEPTHWISE(norm_depthwise_gated_f16, DVK_F16, true)
NORM_DEPTHWISE(norm_depthwise_gated_bf16, DVK_BF16, true)

#endif
