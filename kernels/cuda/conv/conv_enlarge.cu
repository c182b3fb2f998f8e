/* conv_enlarge.cu - 1 x 1 convolutions with a pixel shuffle by two, such as transposed convolutions of 2 x 2. The time
 * is bound by the writes of the result. A warp multiplies 32 pixels with 32 channels, one parity of rows and columns
 * after the other. These channels are contiguous in the result, whatever the shuffle's order of channels is.
 *
 * Pixels go directly from memory to the left operand. A channel may be in any column of it, as long as the weights in
 * shared memory have the same order. */
#include "kernels/cuda/conv/conv_enlarge.h"
#include "kernels/cuda/conv/conv_mma_sync.cuh"

namespace {

/* Bias and slope of every column, in the order of the groups. */
CONV_DEVICE void load_tables(const dvk_conv_enlarge &p, float *bias, float *slopes) {
    const int each = p.c_out / DVK_ENLARGE_GROUP;
    for (int i = threadIdx.x; i < 4 * p.c_out; i += blockDim.x) {
        const int group = i / DVK_ENLARGE_GROUP, parity = group / each;
        const int c = ((group - parity * each) * DVK_ENLARGE_GROUP + i % DVK_ENLARGE_GROUP) * 4 + parity;
        bias[i] = p.bias ? p.bias[c] : 0.0f;
        slopes[i] = p.slopes ? p.slopes[c] : p.has_act ? p.slope : 1.0f;
    }
}

template <class T, int K> struct enlarger {
    enum { ROWS = DVK_ENLARGE_PIXELS / 16, PARTS = K / 32, DEEP = K > 64 }; /* DEEP: few warps, many registers */
    const dvk_conv_enlarge &p;
    const uint4 *w;
    const float *bias, *slopes, *factors; /* factors: of a residual's channels, including beta */
    int n, y, x;                          /* of this lane's first pixel */
    uint32_t a[ROWS][2 * PARTS][4];

    /* Moves to pixel `i` of four, which are 8 apart; false: no such pixel. */
    __device__ __forceinline__ bool real(int i) const {
        return x + 8 * i < p.w_in;
    }

    __device__ __forceinline__ void load() {
        const int64_t from = n * p.x.sn + y * p.x.sh + x * p.x.sw + (threadIdx.x & 3) * 8;
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++) {
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const uint16_t *at = (const uint16_t *)p.x.data + (from + 8 * i * p.x.sw + part * 32);
                const uint4 u = real(i) ? *(const uint4 *)at : make_uint4(0, 0, 0, 0);
                uint32_t(&low)[4] = a[i / 2][2 * part], (&high)[4] = a[i / 2][2 * part + 1];
                low[i % 2] = u.x, low[2 + i % 2] = u.y, high[i % 2] = u.z, high[2 + i % 2] = u.w;
            }
        }
    }

    __device__ __forceinline__ int64_t place(const dvk_conv_view &v, int i, int parity, int c) const {
        return n * v.sn + (2 * y + (parity >> 1)) * v.sh + (2 * (x + 8 * i) + (parity & 1)) * v.sw + c;
    }

    __device__ __forceinline__ void bring(int parity, int c, uint4 (&res)[2 * ROWS]) const {
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++) {
            res[i] = real(i) ? *(const uint4 *)((const uint16_t *)p.res.data + place(p.res, i, parity, c))
                             : make_uint4(0, 0, 0, 0);
        }
    }

    __device__ __forceinline__ void store(int parity, int c, const float (&d)[ROWS][4][4], int group,
                                          const uint4 (&res)[2 * ROWS]) const {
        const int column = group * DVK_ENLARGE_GROUP + (threadIdx.x & 3) * 8;
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++) {
            float v[8], add[8];
            conv_unpack8(res[i], T::DTYPE, add);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const float s = d[i / 2][k / 2][i % 2 * 2 + k % 2] + bias[column + k];
                v[k] = p.alpha * (s >= 0 ? s : slopes[column + k] * s);
                v[k] = p.n_res ? fmaf(factors[c + k], add[k], v[k]) : v[k];
            }
            if (real(i)) {
                *(uint4 *)((uint16_t *)p.y.data + place(p.y, i, parity, c)) = T::pack(v);
            }
        }
    }

    /* Computes a group's 32 channels of one parity. */
    __device__ __forceinline__ void make(int group, int parity, int c, const uint4 (&res)[2 * ROWS]) const {
        float d[ROWS][4][4] = {};
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
#pragma unroll
            for (int octet = 0; octet < 4; octet++) {
                const uint4 b = w[((group * PARTS + part) * 4 + octet) * 32 + (threadIdx.x & 31)];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    conv_mma<T>::go(d[r][octet], a[r][2 * part], b.x, b.y);
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    conv_mma<T>::go(d[r][octet], a[r][2 * part + 1], b.z, b.w);
                }
            }
        }
        store(parity, c, d, group, res);
    }

    __device__ __forceinline__ void run(int tile) {
        const int row = tile / p.strips;
        x = (tile - row * p.strips) * DVK_ENLARGE_PIXELS + (threadIdx.x & 31) / 4;
        n = row / p.h;
        y = row - n * p.h;
        load();
        const int first = (threadIdx.x & 3) * 8, groups = 4 * (p.c_out / DVK_ENLARGE_GROUP);
        int parity = 0, c = first;
        uint4 res[1 + DEEP][2 * ROWS] = {}; /* of a group, and of the next */
        if (DEEP && p.n_res) {
            bring(parity, c, res[0]);
        }
#pragma unroll 1
        for (int pair = 0; pair < groups; pair += 2) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const bool turns = c + DVK_ENLARGE_GROUP >= p.c_out;
                const int next = turns ? first : c + DVK_ENLARGE_GROUP, at = parity;
                parity += turns;
                if (p.n_res && !DEEP) {
                    bring(at, c, res[0]);
                } else if (p.n_res && parity < 4) {
                    bring(parity, next, res[DEEP ? 1 - i : 0]);
                }
                make(pair + i, at, c, res[DEEP ? i : 0]);
                c = next;
            }
        }
    }
};

template <class T, int K> CONV_DEVICE void enlarge(const dvk_conv_enlarge &p) {
    extern __shared__ __align__(16) unsigned char shared[];
    uint4 *w = (uint4 *)shared;
    float *bias = (float *)(shared + p.w_bytes), *slopes = bias + 4 * p.c_out, *factors = slopes + 4 * p.c_out;
    if (p.fresh) {
        conv_wait_for_launch_ahead();
    }
    for (int i = threadIdx.x; i < p.w_bytes / 16; i += blockDim.x) {
        w[i] = ((const uint4 *)p.w)[i];
    }
    load_tables(p, bias, slopes);
    conv_wait_for_launch_ahead();
    for (int i = threadIdx.x; i < p.c_out; i += blockDim.x) {
        factors[i] = p.res_scale ? p.beta * p.res_scale[i] : p.beta;
    }
    __syncthreads();
    enlarger<T, K> e = {p, w, bias, slopes, factors};
    const int warps = blockDim.x / 32;
    for (int tile = blockIdx.x * warps + threadIdx.x / 32; tile < p.tiles; tile += gridDim.x * warps) {
        e.run(tile);
    }
}

} // namespace

#define ENLARGE_KERNEL(name, T, K, THREADS, BLOCKS)                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) name(const __grid_constant__ dvk_conv_enlarge p) {   \
        enlarge<T, K>(p);                                                                                              \
    }
ENLARGE_KERNEL(conv_enlarge_f16_64, conv_half, 64, 256, 2)
ENLARGE_KERNEL(conv_enlarge_bf16_64, conv_bfloat, 64, 256, 2)
ENLARGE_KERNEL(conv_enlarge_f16_128, conv_half, 128, 384, 1)
ENLARGE_KERNEL(conv_enlarge_bf16_128, conv_bfloat, 128, 384, 1)
