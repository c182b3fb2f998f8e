/* conv_mma.cuh - implicit GEMM on tensor cores with mma.sync: the kernel template behind conv_mma.cu (f16, bf16) and
 * conv_mma_tf32.cu. A block computes WARPS_M x MT x 16 pixels of WARPS_N x NT x 8 output channels. */
#ifndef DVK_CUDA_CONV_MMA_CUH
#define DVK_CUDA_CONV_MMA_CUH

#include "kernels/cuda/conv/conv_mma_sync.cuh"
#include "kernels/cuda/conv/conv_patch.cuh"

CONV_DEVICE void conv_ldmatrix4(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

CONV_DEVICE void conv_ldmatrix2(uint32_t &a, uint32_t &b, uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(at));
}

template <int WM_, int WN_, int MT_, int NT_> struct conv_tile {
    enum {
        WARPS_M = WM_,
        WARPS_N = WN_,
        MT = MT_,
        NT = NT_,
        THREADS = 32 * WM_ * WN_,
        /* maximum registers per thread, given those of the sums */
        REGISTERS = MT_ * NT_ >= 32   ? 255
                    : MT_ * NT_ >= 16 ? 168
                                      : 128,
        BLOCKS = 65536 / (THREADS * REGISTERS) > 0 ? 65536 / (THREADS * REGISTERS) : 1,
        M = 16 * MT_ * WM_,
        N = 8 * NT_ * WN_
    };
};

/* ---- epilogue ---- */

template <class T, class K>
CONV_DEVICE void conv_write(const dvk_conv_params &p, const conv_block &b, const conv_out &o,
                            const float (&acc)[K::MT][K::NT][4], char *shared) {
    typedef conv_writer<T, K::NT> writer;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int warp_m = warp / K::WARPS_N, warp_n = warp % K::WARPS_N;
    float *rows = (float *)shared + warp * 16 * writer::PITCH;
    float *mine = rows + (lane >> 2) * writer::PITCH + 2 * (lane & 3);
    const int n = warp_n * K::NT * 8;
    writer w = {p, b, o, rows, b.n_tile * K::N + n, n, {}, 0};
#pragma unroll 1
    for (int mt = 0; mt < K::MT; mt++) {
        __syncwarp();
#pragma unroll
        for (int m = 0; m < K::MT; m++) { /* registers cannot be indexed at run time */
            if (m == mt) {
#pragma unroll
                for (int n = 0; n < K::NT; n++) {
                    *(float2 *)(mine + n * 8) = make_float2(acc[m][n][0], acc[m][n][1]);
                    *(float2 *)(mine + 8 * writer::PITCH + n * 8) = make_float2(acc[m][n][2], acc[m][n][3]);
                }
            }
        }
        __syncwarp();
        w.write((warp_m * K::MT + mt) * 16);
    }
    conv_moments *parts = (conv_moments *)(shared + K::THREADS / 32 * 16 * writer::PITCH * 4);
    w.finish(parts, parts + warp_m * K::N + n, K::WARPS_M, K::N);
}

/* ---- products ---- */

template <class T, class K> struct conv_engine {
    const dvk_conv_params &p;
    const conv_block &b;
    float (&acc)[K::MT][K::NT][4];
    int cpp;
    int a_pixel, a_step; /* this lane's pixel of the patch for tap 0; 16 pixels of the block on */
    const char *w_from;  /* source of this thread's next copy, */
    uint32_t w_to;       /* its destination in a tap's weights, */
    int w_pieces;        /* and its number of pieces */
    uint32_t b_row;      /* byte offset of this lane's first piece of weights */

    __device__ __forceinline__ void begin() {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const int warp_m = warp / K::WARPS_N, warp_n = warp % K::WARPS_N;
        cpp = 1 << p.cpp_log2;
        const int m = warp_m * K::MT * 16 + (lane & 15);
        const int my = m >> p.tile_w_log2, mx = m & ((1 << p.tile_w_log2) - 1);
        a_pixel = my * p.stride * (int)p.patch_w.by + mx; /* stride 2: the even columns are contiguous */
        a_step = p.tile_h == 1 ? 16 : (16 >> p.tile_w_log2) * p.stride * (int)p.patch_w.by;
        const int all = K::N << p.cpp_log2, mine = threadIdx.x;
        w_pieces = mine < all ? (all - mine + K::THREADS - 1) / K::THREADS : 0;
        w_from = (const char *)p.w + b.phase * p.w_phase + (((int64_t)b.n_tile * K::N << p.cpp_log2) + mine) * 16;
        w_to = conv_piece_at(0, threadIdx.x, p.cpp_log2);
        const int row = warp_n * K::NT * 8 + (K::NT == 1 ? lane & 7 : (lane & 7) + (lane >> 4) * 8);
        b_row = (uint32_t)row * cpp * 16 + ((((lane >> 3 & 1) ^ (row >> (3 - p.cpp_log2))) & (cpp - 1)) << 4);
    }

    /* Rows of the block behind the last weight row read padding; the channels of those rows are not stored. */
    template <int PARTS> __device__ __forceinline__ void copy_weights(uint32_t to, int part, bool whether) {
        enum { ALL = (K::N * 8 + K::THREADS - 1) / K::THREADS, EACH = (ALL + PARTS - 1) / PARTS };
        /* threads that copy any rows copy the same number of rows, of eight pieces each if PARTS is 4 */
        enum { EVEN = K::N * 8 % K::THREADS == 0 || K::N * 8 < K::THREADS };
        const int n = whether ? w_pieces : 0;
#pragma unroll
        for (int i = part * EACH; i < (part + 1) * EACH && i < ALL; i++) {
            if (PARTS == 4 && EVEN ? n > 0 : n > i) {
                conv_copy16(to + w_to + i * (K::THREADS * 16), w_from + i * (K::THREADS * 16), 16);
            }
        }
        if (part == PARTS - 1) {
            w_from += (int64_t)p.w_rows << p.cpp_log2 << 4;
        }
    }

    __device__ __forceinline__ void products(int k, const uint32_t (&a_at)[K::MT], uint32_t w_at) {
        uint32_t a[K::MT][4], w[(K::NT + 1) / 2][4];
#pragma unroll
        for (int i = 0; i < K::MT; i++) {
            conv_ldmatrix4(a[i], a_at[i] ^ (k << 5)); /* two pieces further: the swizzle is an xor */
        }
#pragma unroll
        for (int i = 0; i < K::NT / 2; i++) {
            conv_ldmatrix4(w[i], (w_at ^ (k << 5)) + ((uint32_t)i << (p.cpp_log2 + 8)));
        }
        if (K::NT % 2) {
            conv_ldmatrix2(w[K::NT / 2][0], w[K::NT / 2][1],
                           (w_at ^ (k << 5)) + ((uint32_t)(K::NT / 2) << (p.cpp_log2 + 8)));
        }
#pragma unroll
        for (int j = 0; j < K::NT; j++) {
#pragma unroll
            for (int i = 0; i < K::MT; i++) {
                conv_mma<T>::go(acc[i][j], a[i], w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]);
            }
        }
    }

    /* One tap of one chunk. */
    template <class C>
    __device__ __forceinline__ void multiply(uint32_t patch, uint32_t weights, int tap, int chunk, const C &copies) {
        const int lane = threadIdx.x & 31;
        const int left = p.c_in - chunk * cpp * T::PER_PIECE; /* channels */
        const int n = min((left + 2 * T::PER_PIECE - 1) / (2 * T::PER_PIECE), cpp / 2);
        uint32_t a_at[K::MT];
#pragma unroll
        for (int i = 0; i < K::MT; i++) {
            const int q = min(a_pixel + i * a_step + tap, p.patch_pixels - 1); /* no pixel: any valid one */
            a_at[i] = patch + ((uint32_t)q << (p.cpp_log2 + 4));
            a_at[i] += (((lane >> 4) ^ (q >> (3 - p.cpp_log2))) & (cpp - 1)) << 4;
        }
        copies.patches();
        if (n == 4) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                products(k, a_at, weights + b_row);
                copies.template part<4>(k);
            }
        } else if (n == 2) {
            products(0, a_at, weights + b_row);
            copies.template part<1>(0);
            products(1, a_at, weights + b_row);
        } else {
            copies.template part<1>(0);
#pragma unroll 1
            for (int k = 0; k < n; k++) {
                products(k, a_at, weights + b_row);
            }
        }
    }
};

template <bool DIRECT, class T, class K> CONV_DEVICE void conv_mma_kernel(const dvk_conv_params &p) {
    extern __shared__ __align__(128) char shared[];
    const conv_block b = conv_block_of(p, blockIdx.x);
    char *body = shared + conv_head_bytes(p, K::N);
    float *vectors = (float *)body - 2 * K::N;
    conv_mover<T, K::THREADS, 3> mover = {p, conv_patch_table<K::THREADS>(p, b, (int *)shared), (const int *)shared};
    conv_load_vectors<K::N, K::THREADS>(p.epi, b.n_tile * K::N, vectors);
    float acc[K::MT][K::NT][4] = {};
    conv_engine<T, K> engine = {p, b, acc};
    mover.begin(b.n);
    engine.begin();
    __syncthreads();
    conv_pipeline<DIRECT>(p, mover, conv_shared(body), (uint32_t)K::N << p.cpp_log2 << 4, engine);
    __syncthreads();
    conv_write<T, K>(p, b, conv_out_of(p.epi, b, vectors, K::N), acc, body);
}

#define CONV_MMA_KERNEL(NAME, DIRECT, T, ...)                                                                          \
    extern "C" __global__ void __launch_bounds__(conv_tile<__VA_ARGS__>::THREADS, conv_tile<__VA_ARGS__>::BLOCKS)      \
        NAME(const __grid_constant__ dvk_conv_params p) {                                                              \
        conv_mma_kernel<DIRECT, T, conv_tile<__VA_ARGS__>>(p);                                                         \
    }

#endif
