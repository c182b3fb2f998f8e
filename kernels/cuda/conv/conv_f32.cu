/* conv_f32.cu - "cuda/simt": convolutions with products and sums in f32 for every storage type, on any device. A thread
 * computes 8 pixels of up to 8 channels. The pipeline is that of the tensor core kernels. */
#include "kernels/cuda/conv/conv_f32.h"
#include "kernels/cuda/conv/conv_patch.cuh"

CONV_DEVICE float4 conv_load_shared4(uint32_t at) {
    float4 f;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(f.x), "=f"(f.y), "=f"(f.z), "=f"(f.w) : "r"(at));
    return f;
}

CONV_DEVICE float conv_load_shared1(uint32_t at) {
    float f;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(f) : "r"(at));
    return f;
}

/* Eight adjacent threads share the channels: of 64, thread x has 4x .. 4x + 3 and the same plus 32. */
template <int CHANNELS> struct conv_simt_engine {
    enum { N = 8 * CHANNELS, QUADS = (CHANNELS + 3) / 4 };
    const dvk_conv_params &p;
    const conv_block &b;
    float (&acc)[8][CHANNELS];
    int pixel[8];
    int step; /* step whose weights are copied next */

    __device__ __forceinline__ void begin() {
        const int first = threadIdx.x >> 3;
        step = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int m = first + 16 * i;
            const int my = m >> p.tile_w_log2, mx = m & ((1 << p.tile_w_log2) - 1);
            pixel[i] = my * p.stride * (int)p.patch_w.by + mx;
        }
    }

    template <int PARTS> __device__ __forceinline__ void copy_weights(uint32_t to, int, bool whether) {
        const int rows = 4 << p.cpp_log2, n0 = b.n_tile * N;
        const float *src = (const float *)p.w + b.phase * (p.w_phase / 4) + (int64_t)step++ * rows * p.w_rows + n0;
        for (int i = threadIdx.x; whether && i < rows * (N / 4); i += CONV_F32_THREADS) {
            const int row = i / (N / 4), n = i % (N / 4) * 4;
            const bool there = n0 + n < p.w_rows;
            conv_copy16(to + (uint32_t)i * 16, there ? src + (int64_t)row * p.w_rows + n : src, there ? 16 : 0);
        }
    }

    __device__ __forceinline__ void load_row(float (&w)[CHANNELS], uint32_t at) const {
        if (CHANNELS == 1) {
            w[0] = conv_load_shared1(at);
        } else {
#pragma unroll
            for (int i = 0; i < QUADS; i++) {
                const float4 f = conv_load_shared4(at + i * 128);
                w[4 * i] = f.x, w[4 * i + 1] = f.y, w[4 * i + 2] = f.z, w[4 * i + 3] = f.w;
            }
        }
    }

    template <class C>
    __device__ __forceinline__ void multiply(uint32_t patch, uint32_t weights, int tap, int chunk, const C &copies) {
        copies.patches();
        copies.template part<1>(0);
        const int cpp = 1 << p.cpp_log2;
        const int pieces = min((p.c_in - chunk * cpp * 4 + 3) / 4, cpp);
        uint32_t at[8], swap[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int q = pixel[i] + tap;
            at[i] = patch + ((uint32_t)q << (p.cpp_log2 + 4));
            swap[i] = ((q >> (3 - p.cpp_log2)) & (cpp - 1)) << 4;
        }
        uint32_t row = weights + (threadIdx.x & 7) * (CHANNELS == 1 ? 4 : 16);
#pragma unroll 1
        for (int j = 0; j < pieces; j++) {
            float4 a[8];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                a[i] = conv_load_shared4(at[i] + ((uint32_t)j << 4 ^ swap[i]));
            }
#pragma unroll
            for (int k = 0; k < 4; k++, row += N * 4) {
                float w[CHANNELS];
                load_row(w, row);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float v = k == 0 ? a[i].x : k == 1 ? a[i].y : k == 2 ? a[i].z : a[i].w;
#pragma unroll
                    for (int c = 0; c < CHANNELS; c++) {
                        acc[i][c] = fmaf(v, w[c], acc[i][c]);
                    }
                }
            }
        }
    }
};

/* Each of the four warps stores 16 pixels, twice. */
template <int CHANNELS>
CONV_DEVICE void conv_simt_write(const dvk_conv_params &p, const conv_block &b, const conv_out &o,
                                 const float (&acc)[8][CHANNELS], char *shared) {
    typedef conv_writer<conv_float, CHANNELS> writer;
    const int warp = threadIdx.x >> 5, x = threadIdx.x & 7;
    float *mine = (float *)shared + (threadIdx.x >> 3) * writer::PITCH;
    writer w = {p, b, o, (float *)shared + warp * 16 * writer::PITCH, b.n_tile * 8 * CHANNELS, 0, {}, 0};
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (i / 4 == half) {
                float *row = mine + i % 4 * 16 * writer::PITCH;
                if (CHANNELS == 1) {
                    row[x] = acc[i][0];
                }
#pragma unroll
                for (int c = 0; c + 4 <= CHANNELS; c += 4) {
                    *(float4 *)(row + c * 8 + x * 4) =
                        make_float4(acc[i][c], acc[i][c + 1 < CHANNELS ? c + 1 : 0],
                                    acc[i][c + 2 < CHANNELS ? c + 2 : 0], acc[i][c + 3 < CHANNELS ? c + 3 : 0]);
                }
            }
        }
        __syncthreads();
        w.write((half * 4 + warp) * 16);
    }
    conv_moments *parts = (conv_moments *)(shared + 4 * 16 * writer::PITCH * 4);
    w.finish(parts, parts + warp * 8 * CHANNELS, 4, 8 * CHANNELS);
}

template <bool DIRECT, int CHANNELS> CONV_DEVICE void conv_simt_kernel(const dvk_conv_params &p) {
    extern __shared__ __align__(128) char shared[];
    enum { N = 8 * CHANNELS };
    const conv_block b = conv_block_of(p, blockIdx.x);
    char *body = shared + conv_head_bytes(p, N);
    float *vectors = (float *)body - 2 * N;
    conv_mover<conv_float, CONV_F32_THREADS, 3> mover = {p, conv_patch_table<CONV_F32_THREADS>(p, b, (int *)shared),
                                                         (const int *)shared};
    conv_load_vectors<N, CONV_F32_THREADS>(p.epi, b.n_tile * N, vectors);
    float acc[8][CHANNELS] = {};
    conv_simt_engine<CHANNELS> engine = {p, b, acc};
    mover.begin(b.n);
    engine.begin();
    __syncthreads();
    conv_pipeline<DIRECT>(p, mover, conv_shared(body), (uint32_t)(4 * N * 4) << p.cpp_log2, engine);
    conv_simt_write<CHANNELS>(p, b, conv_out_of(p.epi, b, vectors, N), acc, body);
}

/* Target number of blocks per multiprocessor, which limits registers. */
static constexpr int conv_f32_blocks(int channels) {
    return channels == 8 ? 2 : channels == 4 ? 4 : 6;
}

#define CONV_F32_KERNEL(NAME, DIRECT, CHANNELS)                                                                        \
    extern "C" __global__ void __launch_bounds__(CONV_F32_THREADS, conv_f32_blocks(CHANNELS))                          \
        NAME(const __grid_constant__ dvk_conv_params p) {                                                              \
        conv_simt_kernel<DIRECT, CHANNELS>(p);                                                                         \
    }
#define CONV_F32_BOTH(N, CHANNELS)                                                                                     \
    CONV_F32_KERNEL(conv_f32_##N, true, CHANNELS)                                                                      \
    CONV_F32_KERNEL(conv_f32_pro_##N, false, CHANNELS)
CONV_F32_BLOCKS(CONV_F32_BOTH)
