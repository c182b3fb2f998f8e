/* conv_dense.cuh - the tensor core convolution of few input channels. The whole patch and all taps' weights fit in
 * shared memory at once. k runs over (tap, channel) with a gap of at most one word. Operands of mma.sync are counted in
 * 32-bit words, two 16-bit channels or one tf32 channel, so that all types share the code. */
#ifndef DVK_CUDA_CONV_DENSE_CUH
#define DVK_CUDA_CONV_DENSE_CUH

#include "kernels/cuda/conv/conv_mma.cuh"

/* The words of one pixel, after conversion and prologue; zeros behind the last channel. */
template <class T>
CONV_DEVICE void conv_dense_pixel(const dvk_conv_params &p, const char *x, int64_t n, uint32_t (&words)[8]) {
    float v[8];
    if (T::RAW == 1 && p.x.vec && p.x.dtype == T::DTYPE && p.x.sw >= 8) { /* the padding of a pixel may be read */
        conv_unpack8(*(const uint4 *)x, T::DTYPE, v);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = i < p.c_in ? conv_load1(x, p.x.dtype, i) : 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const bool there = i < p.c_in;
        const float scale = there && p.scale ? __ldg(p.scale + n * p.c_in + i) : 1.0f;
        const float shift = there && p.scale ? __ldg(p.shift + n * p.c_in + i) : 0.0f;
        v[i] = there ? fmaf(v[i], scale, shift) : 0.0f;
    }
    conv_pro_act(v, p.pro_act);
#pragma unroll
    for (int i = 0; i < 8; i += T::PER_PIECE) {
        float part[T::PER_PIECE];
#pragma unroll
        for (int k = 0; k < T::PER_PIECE; k++) {
            part[k] = v[i + k];
        }
        const uint4 u = T::pack(part);
        words[i * T::BYTES / 4] = u.x, words[i * T::BYTES / 4 + 1] = u.y;
        words[i * T::BYTES / 4 + 2] = u.z, words[i * T::BYTES / 4 + 3] = u.w;
    }
}

/* Shared memory, behind the head: offsets of the words of k, weights (rows of k_words + 4), patch. */
template <class T, class K> struct conv_dense {
    const dvk_conv_params &p;
    const conv_block &b;
    uint32_t *k_at, *patch, *weights;

    __device__ __forceinline__ void load_weights() const {
        const int pieces = p.k_words / 4, n0 = b.n_tile * K::N;
        const uint4 *w = (const uint4 *)((const char *)p.w + b.phase * p.w_phase) + (int64_t)n0 * pieces;
        for (int i = threadIdx.x; i < K::N * pieces; i += K::THREADS) {
            const int row = i / pieces;
            conv_copy16(conv_shared(weights + row * 4 + i * 4), w + i, n0 + row < p.w_rows ? 16 : 0);
        }
        conv_copy_commit();
    }

    __device__ __forceinline__ void load_patch() const {
        const int row0 = b.y0 * p.stride * p.pixel_step - (p.pad_top - (b.phase >> 1));
        const int col0 = b.x0 * p.stride * p.pixel_step - (p.pad_left - (b.phase & 1));
        const char *picture = (const char *)p.x.data + b.n * p.x.sn * (p.x.dtype == CONV_F32 ? 4 : 2);
        for (int q = threadIdx.x; q < p.patch_pixels; q += K::THREADS) {
            const int r = conv_divide(q, p.patch_w);
            int c = q - r * p.patch_w.by;
            if (p.plane) {
                c = c < p.plane ? 2 * c : 2 * (c - p.plane) + 1;
            }
            const int y = row0 + r * p.pixel_step, x = col0 + c * p.pixel_step;
            uint32_t words[8] = {};
            if (y >= 0 && y < p.in_h && x >= 0 && x < p.in_w) {
                const int64_t at = (y >> p.up_shift) * p.x.sh + (x >> p.up_shift) * p.x.sw;
                conv_dense_pixel<T>(p, picture + at * (p.x.dtype == CONV_F32 ? 4 : 2), b.n, words);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                if (i < p.pixel_words) {
                    patch[q * p.pixel_words + i] = words[i];
                }
            }
        }
    }

    __device__ __forceinline__ void load(char *body) {
        k_at = (uint32_t *)body;
        weights = k_at + p.k_words;
        patch = weights + K::N * (p.k_words + 4);
        load_weights();
        for (int i = threadIdx.x; i < p.k_words; i += K::THREADS) {
            const int tap = i / p.pixel_words, ky = tap / p.kw, kx = tap - ky * p.kw;
            const int pixel = ky * (int)p.patch_w.by + (p.plane ? (kx & 1) * p.plane + (kx >> 1) : kx);
            k_at[i] =
                tap < p.taps ? pixel * p.pixel_words + i - tap * p.pixel_words : 0; /* behind the last: weight 0 */
        }
        load_patch();
        conv_copy_wait(2);
        __syncthreads();
    }

    __device__ __forceinline__ void run(float (&acc)[K::MT][K::NT][4]) const {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int warp_m = warp / K::WARPS_N, warp_n = warp % K::WARPS_N;
        const uint32_t *pixel[K::MT][2];
#pragma unroll
        for (int i = 0; i < 2 * K::MT; i++) {
            const int m = warp_m * K::MT * 16 + i * 8 + (lane >> 2);
            const int my = m >> p.tile_w_log2, mx = m & ((1 << p.tile_w_log2) - 1);
            pixel[i / 2][i % 2] = patch + (my * p.stride * (int)p.patch_w.by + mx) * p.pixel_words;
        }
        const int row = warp_n * K::NT * 8 + (lane & 7) + (lane >> 4) * 8;
        uint32_t b_at = conv_shared(weights + row * (p.k_words + 4) + (lane >> 3 & 1) * 4);
#pragma unroll 1
        for (int k = 0; k < p.k_words; k += 8, b_at += 32) {
            const uint32_t k0 = k_at[k + (lane & 3)], k1 = k_at[k + 4 + (lane & 3)];
            uint32_t a[K::MT][4], w[K::NT / 2][4];
#pragma unroll
            for (int i = 0; i < K::MT; i++) {
                a[i][0] = pixel[i][0][k0], a[i][1] = pixel[i][1][k0];
                a[i][2] = pixel[i][0][k1], a[i][3] = pixel[i][1][k1];
            }
#pragma unroll
            for (int i = 0; i < K::NT / 2; i++) {
                conv_ldmatrix4(w[i], b_at + i * 64 * (p.k_words + 4));
            }
#pragma unroll
            for (int j = 0; j < K::NT; j++) {
#pragma unroll
                for (int i = 0; i < K::MT; i++) {
                    conv_mma<T>::go(acc[i][j], a[i], w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]);
                }
            }
        }
    }
};

template <class T, class K> CONV_DEVICE void conv_dense_kernel(const dvk_conv_params &p) {
    extern __shared__ __align__(128) char shared[];
    const conv_block b = conv_block_of(p, blockIdx.x);
    float acc[K::MT][K::NT][4] = {};
    char *body = shared + conv_head_bytes(p, K::N);
    float *vectors = (float *)body - 2 * K::N;
    conv_load_vectors<K::N, K::THREADS>(p.epi, b.n_tile * K::N, vectors);
    conv_dense<T, K> d = {p, b};
    d.load(body);
    d.run(acc);
    __syncthreads();
    conv_write<T, K>(p, b, conv_out_of(p.epi, b, vectors, K::N), acc, body);
}

/* Blocks per multiprocessor: few sums of 16-bit values leave room for one more. */
template <class T, class K> constexpr int conv_dense_blocks() {
    return K::BLOCKS + (T::RAW == 1 && K::NT <= 4);
}

#define CONV_DENSE_KERNEL(NAME, T, ...)                                                                                \
    extern "C" __global__ void __launch_bounds__(conv_tile<__VA_ARGS__>::THREADS,                                      \
                                                 conv_dense_blocks<T, conv_tile<__VA_ARGS__>>())                       \
        NAME(const __grid_constant__ dvk_conv_params p) {                                                              \
        conv_dense_kernel<T, conv_tile<__VA_ARGS__>>(p);                                                               \
    }

#endif
