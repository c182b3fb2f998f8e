/* conv_fp8_mma.cu - "cuda/fp8/mma": convolutions of f16 with products of E4M3, mma.sync of compute capability 8.9 and
 * later. Blocks, rings and epilogue are those of conv_mma.cuh; pieces of sixteen channels become E4M3 on their way through
 * registers to shared memory. */
#include "kernels/cuda/conv_fp8_mma.h"
#include "kernels/cuda/conv_mma.cuh"

#include "kernels/cuda/conv_fp8_numbers.cuh"

#if __CUDA_ARCH__ >= 890

struct conv_e4m3 {
    enum { PER_PIECE = CONV_FP8_CHANNELS };
};

template <> struct conv_mma<conv_e4m3> {
    static __device__ __forceinline__ void go(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

/* As the general one, for whole and aligned pieces of f16 only. */
template <int THREADS, int AHEAD> struct conv_mover<conv_e4m3, THREADS, AHEAD> {
    const dvk_conv_params &p;
    const char *x;
    const int *table;
    uint32_t factor; /* that x is multiplied with, twice */
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
        channel = ((chunk << p.cpp_log2) + (threadIdx.x & ((1 << p.cpp_log2) - 1))) * CONV_FP8_CHANNELS;
    }

    /* Eight channels of a piece from `c` on: two words of E4M3. */
    __device__ __forceinline__ uint2 octet(const uint4 &u, int c) const {
        const uint32_t in[4] = {u.x, u.y, u.z, u.w};
        uint32_t v[4];
        if (p.scale) {
            const float half = p.pro_act == CONV_SILU ? 0.5f : 1.0f;
            const float *scale = p.scale + vectors + c, *shift = p.shift + vectors + c;
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const float4 a = __ldg((const float4 *)(scale + 2 * i)), b = __ldg((const float4 *)(shift + 2 * i));
                v[i] = fma_f16(in[i], conv_pack_f16(half * a.x, half * a.y), conv_pack_f16(half * b.x, half * b.y));
                v[i + 1] =
                    fma_f16(in[i + 1], conv_pack_f16(half * a.z, half * a.w), conv_pack_f16(half * b.z, half * b.w));
            }
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[i] = product_f16(in[i], factor);
            }
        }
        if (p.pro_act == CONV_SILU) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[i] = act_f16<CONV_SILU>(v[i]);
            }
        } else if (p.pro_act == CONV_RELU) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[i] = act_f16<CONV_RELU>(v[i]);
            }
        }
        return make_uint2(pack_e4m3(v[0], v[1]), pack_e4m3(v[2], v[3]));
    }

    __device__ __forceinline__ void convert_begin(int from, int to) {
        const char *src = x + (int64_t)channel * 2;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int item = from + threadIdx.x + k * THREADS;
            at[k] = item < to && channel < p.c_in ? table[item >> p.cpp_log2] : -1;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint4 *piece = (const uint4 *)(src + at[k]);
            if (at[k] >= 0) {
                raw[k][0] = piece[0], raw[k][1] = piece[1];
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

template <class K> CONV_DEVICE void conv_fp8_kernel(const dvk_conv_fp8_mma &of) {
    extern __shared__ __align__(128) char shared[];
    const dvk_conv_params &p = of.c;
    const conv_block b = conv_block_of(p, blockIdx.x);
    char *body = shared + conv_head_bytes(p, K::N);
    float *vectors = (float *)body - 2 * K::N;
    const uint32_t most = of.range ? *of.range : 0;
    const int power = of.range ? power_for(most, CONV_FP8_ROOM) : 0;
    conv_mover<conv_e4m3, K::THREADS, 2> mover = {p, conv_patch_table<K::THREADS>(p, b, (int *)shared),
                                                  (const int *)shared,
                                                  conv_pack_f16(power_of_two(-power), power_of_two(-power))};
    conv_load_vectors<K::N, K::THREADS>(p.epi, b.n_tile * K::N, vectors);
    float acc[K::MT][K::NT][4] = {};
    conv_engine<conv_e4m3, K> engine = {p, b, acc};
    mover.begin(b.n);
    engine.begin();
    __syncthreads();
    conv_pipeline<false>(p, mover, conv_shared(body), (uint32_t)K::N << p.cpp_log2 << 4, engine);
    __syncthreads();
    const int lane = threadIdx.x & 31, warp_n = (threadIdx.x >> 5) % K::WARPS_N;
    const int first = b.n_tile * K::N + warp_n * K::NT * 8 + 2 * (lane & 3);
    const float all = most < 0x7c00u ? power_of_two(power) : __int_as_float(0x7fc00000); /* not finite: tell so */
#pragma unroll
    for (int n = 0; n < K::NT; n++) {
        const bool there = first + n * 8 < p.epi.c_out;
        const float2 unit =
            there ? *(const float2 *)(of.unit + b.phase * of.unit_phase + first + n * 8) : make_float2(0, 0);
#pragma unroll
        for (int m = 0; m < K::MT; m++) {
            acc[m][n][0] *= unit.x * all, acc[m][n][1] *= unit.y * all;
            acc[m][n][2] *= unit.x * all, acc[m][n][3] *= unit.y * all;
        }
    }
    conv_write<conv_half, K>(p, b, conv_out_of(p.epi, b, vectors, K::N), acc, body);
}

#define CONV_FP8_KERNEL(M, N, ...)                                                                                     \
    extern "C" __global__ void __launch_bounds__(conv_tile<__VA_ARGS__>::THREADS, conv_tile<__VA_ARGS__>::BLOCKS)      \
        conv_fp8_mma_##M##x##N(const __grid_constant__ dvk_conv_fp8_mma p) {                                           \
        conv_fp8_kernel<conv_tile<__VA_ARGS__>>(p);                                                                    \
    }

CONV_FP8_BLOCKS(CONV_FP8_KERNEL)

/* The largest value of some rows of x, one row a block: of numbers that are not negative the larger one has the larger
 * bits, whatever the order they come in. */
extern "C" __global__ void __launch_bounds__(CONV_FP8_RANGE_THREADS)
    conv_fp8_range(const __grid_constant__ dvk_conv_fp8_range p) {
    const int picture = blockIdx.x / p.rows, row = (blockIdx.x - picture * p.rows) * CONV_FP8_ROW_STEP;
    const uint16_t *x = (const uint16_t *)p.x.data + picture * p.x.sn + row * p.x.sh;
    uint32_t most = 0;
    for (int i = threadIdx.x; i < p.w * p.octets; i += CONV_FP8_RANGE_THREADS) {
        const int pixel = i / p.octets;
        const uint4 u = *(const uint4 *)(x + pixel * p.x.sw + (i - pixel * p.octets) * 8);
        most = larger_f16(larger_f16(most, u.x & 0x7fff7fffu), u.y & 0x7fff7fffu);
        most = larger_f16(larger_f16(most, u.z & 0x7fff7fffu), u.w & 0x7fff7fffu);
    }
    most = __reduce_max_sync(0xffffffffu, max(most & 0xffffu, most >> 16));
    if ((threadIdx.x & 31) == 0) {
        atomicMax(p.range, most);
    }
}

#endif
