/* conv_few.cuh - the tensor core convolution to few output channels. The product runs once over the pixels of the
 * patch, with (tap, output channel) as columns. Every pixel of the result then adds its taps from shared memory. The
 * patch is therefore read once, and not once per tap. */
#ifndef DVK_CUDA_CONV_FEW_CUH
#define DVK_CUDA_CONV_FEW_CUH

#include "kernels/cuda/conv/conv_mma.cuh"

/* sums[pixel of the patch][N + 1] */
template <class K>
CONV_DEVICE void conv_few_sums(const float (&acc)[K::MT][K::NT][4], const dvk_conv_params &p, float *sums) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 2 * K::MT; i++) {
        const int pixel = (warp * K::MT * 2 + i) * 8 + (lane >> 2);
        float *row = sums + pixel * (K::N + 1) + 2 * (lane & 3);
        if (pixel < p.patch_pixels) {
#pragma unroll
            for (int n = 0; n < K::NT; n++) {
                row[n * 8] = acc[i / 2][n][i % 2 * 2];
                row[n * 8 + 1] = acc[i / 2][n][i % 2 * 2 + 1];
            }
        }
    }
}

template <class K>
CONV_DEVICE void conv_few_write(const dvk_conv_params &p, const conv_block &b, const conv_out &o, const float *sums) {
    const int c_out = p.epi.c_out, width = 1 << p.tile_w_log2;
    for (int m = threadIdx.x; m < p.tile_h * width; m += K::THREADS) {
        const int y = m >> p.tile_w_log2, x = m & (width - 1);
        if (b.y0 + y >= p.out_h || b.x0 + x >= p.out_w) {
            continue;
        }
        float v[4] = {};
        for (int tap = 0, kx = 0, q = y * (int)p.patch_w.by + x; tap < p.few_taps; tap++) {
            const float *from = sums + q * (K::N + 1) + tap * c_out;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                v[c] += c < c_out ? from[c] : 0.0f;
            }
            kx++, q++;
            if (kx == p.few_kw) {
                kx = 0, q += (int)p.patch_w.by - p.few_kw;
            }
        }
#pragma unroll 1
        for (int c = 0; c < c_out; c++) {
            conv_epilogue1(p.epi, o, c == 0 ? v[0] : c == 1 ? v[1] : c == 2 ? v[2] : v[3], y, x, c, c);
        }
    }
}

template <bool DIRECT, class T, class K> CONV_DEVICE void conv_few_kernel(const dvk_conv_params &p) {
    extern __shared__ __align__(128) char shared[];
    const conv_block b = conv_block_of(p, blockIdx.x);
    char *body = shared + conv_head_bytes(p, K::N);
    float *vectors = (float *)body - 2 * K::N;
    conv_mover<T, K::THREADS, 6> mover = {p, conv_patch_table<K::THREADS>(p, b, (int *)shared), (const int *)shared};
    conv_load_vectors<K::N, K::THREADS>(p.epi, 0, vectors);
    float acc[K::MT][K::NT][4] = {};
    conv_engine<T, K> engine = {p, b, acc};
    mover.begin(b.n);
    engine.begin();
    engine.a_pixel = (threadIdx.x >> 5) * K::MT * 16 + (threadIdx.x & 15); /* all pixels of the patch in memory order */
    engine.a_step = 16;
    __syncthreads();
    conv_pipeline<DIRECT>(p, mover, conv_shared(body), (uint32_t)K::N << p.cpp_log2 << 4, engine);
    __syncthreads();
    conv_few_sums<K>(acc, p, (float *)body);
    __syncthreads();
    conv_few_write<K>(p, b, conv_out_of(p.epi, b, vectors, K::N), (const float *)body);
}

#define CONV_FEW_KERNEL(NAME, DIRECT, T, ...)                                                                          \
    extern "C" __global__ void __launch_bounds__(conv_tile<__VA_ARGS__>::THREADS, conv_tile<__VA_ARGS__>::BLOCKS)      \
        NAME(const __grid_constant__ dvk_conv_params p) {                                                              \
        conv_few_kernel<DIRECT, T, conv_tile<__VA_ARGS__>>(p);                                                         \
    }

#endif
