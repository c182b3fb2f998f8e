/* conv_8bit_mma.cuh - convolutions of 16-bit values with 8-bit products on mma.sync: the kernel template behind
 * conv_fp8_mma.cu and conv_int8_mma.cu. Blocks, rings and epilogue are those of conv_mma.cuh. Pieces of sixteen
 * channels are converted to 8 bits on their way through registers to shared memory. */
#ifndef DVK_CUDA_CONV_8BIT_MMA_CUH
#define DVK_CUDA_CONV_8BIT_MMA_CUH

#include "kernels/cuda/conv/conv_8bit_mma.h"
#include "kernels/cuda/conv/conv_mma.cuh"

#include "kernels/cuda/conv/conv_8bit_numbers.cuh"

/* Interface of the format F: a base class for the storage type; factor(most, unit) returns the bits of the factor for
 * the maximum `most`, and the value of a product; plain() is a factor of one; pack(two pairs, factor); value(sum). */
template <class F> struct conv_8bit {
    enum { PER_PIECE = CONV_8BIT_CHANNELS };
};

struct conv_8bit_of_f16 {
    typedef conv_half stored;
    enum { NO_NUMBER = 0x7c00, PROLOGUE = 1 };
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
        return larger_magnitude(a, b);
    }
};

/* Without a prologue. */
struct conv_8bit_of_bf16 {
    typedef conv_bfloat stored;
    enum { NO_NUMBER = 0x7f80, PROLOGUE = 0 };
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
        return __vmaxu2(a, b);
    }
};

/* x' = act(x * scale + shift) of eight channels; scale NULL: act(x). */
CONV_DEVICE void q8_prologue(uint32_t (&v)[4], const float *scale, const float *shift, int act) {
    if (scale) {
        const float half = act == CONV_SILU ? 0.5f : 1.0f;
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const float4 a = __ldg((const float4 *)(scale + 2 * i)), b = __ldg((const float4 *)(shift + 2 * i));
            v[i] = fma_f16(v[i], conv_pack_f16(half * a.x, half * a.y), conv_pack_f16(half * b.x, half * b.y));
            v[i + 1] = fma_f16(v[i + 1], conv_pack_f16(half * a.z, half * a.w), conv_pack_f16(half * b.z, half * b.w));
        }
    }
    if (act == CONV_SILU) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = act_f16<CONV_SILU>(v[i]);
        }
    } else if (act == CONV_RELU) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = act_f16<CONV_RELU>(v[i]);
        }
    }
}

CONV_DEVICE uint32_t q8_warp_largest(uint32_t most) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, most);
#else
#pragma unroll
    for (int lane = 16; lane > 0; lane >>= 1) {
        most = max(most, __shfl_xor_sync(0xffffffffu, most, lane));
    }
    return most;
#endif
}

/* Like the general one, for aligned 16-bit values only. For a piece that begins behind the last channel, the previous
 * piece is read again: its weights are zeros. */
template <class F, int THREADS, int AHEAD> struct conv_mover<conv_8bit<F>, THREADS, AHEAD> {
    const dvk_conv_params &p;
    const char *x;
    const int *table;
    uint32_t factor; /* on x' */
    int64_t vectors;
    uint32_t to0;
    int channel;
    uint4 raw[AHEAD][2];
    int at[AHEAD];

    __device__ __forceinline__ void begin(int64_t n) {
        vectors = n * p.c_in;
        to0 = conv_piece_at(0, threadIdx.x, p.cpp_log2);
    }

    __device__ __forceinline__ void set_chunk(int chunk) {
        channel = ((chunk << p.cpp_log2) + (threadIdx.x & ((1 << p.cpp_log2) - 1))) * CONV_8BIT_CHANNELS;
    }

    /* Eight channels of a piece from `c` on. */
    __device__ __forceinline__ uint2 octet(const uint4 &u, int c) const {
        uint32_t v[4] = {u.x, u.y, u.z, u.w};
        const int64_t at = vectors + c;
        if (F::PROLOGUE) {
            q8_prologue(v, p.scale ? p.scale + at : nullptr, p.shift + at, p.pro_act);
        }
        return make_uint2(F::pack(v[0], v[1], factor), F::pack(v[2], v[3], factor));
    }

    __device__ __forceinline__ void convert_begin(int from, int to) {
        const char *src = x + (int64_t)channel * 2;
        const int second = channel + 8 < p.c_in;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int item = from + threadIdx.x + k * THREADS;
            at[k] = item < to && channel < p.c_in ? table[item >> p.cpp_log2] : -1;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint4 *piece = (const uint4 *)(src + at[k]);
            if (at[k] >= 0) {
                raw[k][0] = piece[0], raw[k][1] = piece[second];
            }
        }
    }

    __device__ __forceinline__ void convert_end(uint32_t patch, int from, int to) {
#pragma unroll 1
        for (; from < to; from += AHEAD * THREADS, convert_begin(from, to)) {
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int item = from + threadIdx.x + k * THREADS;
                if (item < to) {
                    uint2 a = make_uint2(0, 0), b = a;
                    if (at[k] >= 0) {
                        a = octet(raw[k][0], channel);
                        b = octet(raw[k][1], channel + 8);
                    }
                    conv_store_shared(patch + to0 + (from + k * THREADS) * 16, make_uint4(a.x, a.y, b.x, b.y));
                }
            }
        }
    }
};

/* The maximum over the cells that the pixels with the block's factor touch. Every warp computes it. */
CONV_DEVICE uint32_t q8_largest(const dvk_conv_8bit_mma &of, const conv_block &b) {
    const dvk_conv_params &p = of.c;
    const int y0 = (b.y0 & -of.block_h) * p.stride * p.pixel_step - (p.pad_top - (b.phase >> 1));
    const int x0 = (b.x0 & -of.block_w) * p.stride * p.pixel_step - (p.pad_left - (b.phase & 1));
    const int top = max(y0, 0) / CONV_8BIT_CELL_H, left = max(x0, 0) / CONV_8BIT_CELL_W;
    const int bottom = min(y0 + of.reach_h - 1, p.in_h - 1) / CONV_8BIT_CELL_H;
    const int right = min(x0 + of.reach_w - 1, p.in_w - 1) / CONV_8BIT_CELL_W;
    const int across = max(right - left + 1, 0), count = across * max(bottom - top + 1, 0);
    const uint32_t *first = of.cells + ((int64_t)b.n * of.cells_h + top) * of.cells_w + left;
    uint32_t most = 0;
    for (int i = threadIdx.x & 31; i < count; i += 32) {
        const int row = i / across;
        most = max(most, first[row * of.cells_w + i - row * across]);
    }
    return q8_warp_largest(most);
}

template <class F, class K> CONV_DEVICE void conv_8bit_kernel(const dvk_conv_8bit_mma &of) {
    extern __shared__ __align__(128) char shared[];
    typedef conv_8bit<F> T;
    const dvk_conv_params &p = of.c;
    const conv_block b = conv_block_of(p, blockIdx.x);
    char *body = shared + conv_head_bytes(p, K::N);
    float *vectors = (float *)body - 2 * K::N;
    const uint32_t most = of.cells ? q8_largest(of, b) : 0;
    float all = 1;
    conv_mover<T, K::THREADS, 4> mover = {p, conv_patch_table<K::THREADS>(p, b, (int *)shared), (const int *)shared,
                                          of.cells ? F::factor(most, all) : F::plain()};
    conv_load_vectors<K::N, K::THREADS>(p.epi, b.n_tile * K::N, vectors);
    float acc[K::MT][K::NT][4] = {};
    conv_engine<T, K> engine = {p, b, acc};
    mover.begin(b.n);
    engine.begin();
    __syncthreads();
    conv_pipeline<false>(p, mover, conv_shared(body), (uint32_t)K::N << p.cpp_log2 << 4, engine);
    __syncthreads();
    const int lane = threadIdx.x & 31, warp_n = (threadIdx.x >> 5) % K::WARPS_N;
    const int first = b.n_tile * K::N + warp_n * K::NT * 8 + 2 * (lane & 3);
    all = most < F::NO_NUMBER ? all : __int_as_float(0x7fc00000); /* NaN marks that a value is not finite */
#pragma unroll
    for (int n = 0; n < K::NT; n++) {
        const bool there = first + n * 8 < p.epi.c_out;
        const float2 unit =
            there ? *(const float2 *)(of.unit + b.phase * of.unit_phase + first + n * 8) : make_float2(0, 0);
#pragma unroll
        for (int m = 0; m < K::MT; m++) {
            float(&d)[4] = acc[m][n];
            d[0] = F::value(d[0]) * (unit.x * all), d[1] = F::value(d[1]) * (unit.y * all);
            d[2] = F::value(d[2]) * (unit.x * all), d[3] = F::value(d[3]) * (unit.y * all);
        }
    }
    conv_write<typename F::stored, K>(p, b, conv_out_of(p.epi, b, vectors, K::N), acc, body);
}

/* The largest value of x' of every cell. */
template <class F> CONV_DEVICE void q8_cells(const dvk_conv_8bit_cells &p) {
    const int64_t cell = (int64_t)blockIdx.x * (CONV_8BIT_CELL_THREADS / 32) + threadIdx.x / 32;
    if (cell >= p.count) {
        return;
    }
    const int per_picture = p.cells_w * p.cells_h;
    const int n = (int)(cell / per_picture), rest = (int)(cell - (int64_t)n * per_picture);
    const int row = rest / p.cells_w;
    const int y0 = row * CONV_8BIT_CELL_H, x0 = (rest - row * p.cells_w) * CONV_8BIT_CELL_W;
    const int octets = (p.channels + 7) / 8;
    const int across = min(CONV_8BIT_CELL_W, p.w - x0) * octets, rows = min(CONV_8BIT_CELL_H, p.h - y0);
    const uint16_t *x = (const uint16_t *)p.x.data + n * p.x.sn + y0 * p.x.sh + x0 * p.x.sw;
    uint32_t most = 0;
    for (int i = threadIdx.x & 31; i < across; i += 32) {
        const int pixel = i / octets, c = (i - pixel * octets) * 8;
        const int64_t vectors = (int64_t)n * p.channels + c;
#pragma unroll
        for (int r = 0; r < CONV_8BIT_CELL_H; r++) {
            if (r < rows) {
                const uint4 u = *(const uint4 *)(x + r * p.x.sh + pixel * p.x.sw + c);
                uint32_t v[4] = {u.x, u.y, u.z, u.w};
                if (F::PROLOGUE) {
                    q8_prologue(v, p.scale ? p.scale + vectors : nullptr, p.shift + vectors, p.pro_act);
                }
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    most = F::larger(most, c + 2 * k < p.channels ? v[k] & 0x7fff7fffu : 0);
                }
            }
        }
    }
    most = q8_warp_largest(max(most & 0xffffu, most >> 16));
    if ((threadIdx.x & 31) == 0) {
        p.cells[cell] = most;
    }
}

#define CONV_8BIT_KERNEL(NAME, F, ...)                                                                                 \
    extern "C" __global__ void __launch_bounds__(conv_tile<__VA_ARGS__>::THREADS, conv_tile<__VA_ARGS__>::BLOCKS)      \
        NAME(const __grid_constant__ dvk_conv_8bit_mma p) {                                                            \
        conv_8bit_kernel<F, conv_tile<__VA_ARGS__>>(p);                                                                \
    }
#define CONV_8BIT_CELLS(NAME, F)                                                                                       \
    extern "C" __global__ void __launch_bounds__(CONV_8BIT_CELL_THREADS)                                               \
        NAME(const __grid_constant__ dvk_conv_8bit_cells p) {                                                          \
        q8_cells<F>(p);                                                                                                \
    }

#endif
