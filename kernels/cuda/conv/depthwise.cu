// depthwise.cu - depthwise convolution. A block loads the patch of input of 16 x 8 output pixels of 64 channels to
// shared memory, behind its weights. A thread computes four adjacent pixels of eight channels.
#include "kernels/cuda/conv/depthwise.h"
#include "kernels/cuda/common/elem_epilogue.cuh"

namespace {

enum { ACROSS = 4, OCTETS = DVK_DEPTHWISE_OCTETS, BLOCK = DVK_DEPTHWISE_BLOCK };
enum { AT_ONCE = 6 }; // pieces of the patch in flight per thread

// The block's channels: 64 adjacent ones, or, if paired, 32 and their partners.
struct block_channels {
    int first, last, away; // away: if paired, distance from the first 32 to their partners
    __device__ __forceinline__ int of(int c) const {
        return first + c + (away && c >= OCTETS * 4 ? away - OCTETS * 4 : 0);
    }
    __device__ __forceinline__ int count(int c) const { // number of valid channels among the eight from c on
        return min(8, last - first - (away ? c % (OCTETS * 4) : c));
    }
};

// Weights are [tap][half][octet][4], so that eight lanes read 128 bytes at a time.
__device__ __forceinline__ void load_weights(const dvk_depthwise_params &p, const block_channels &b, float *weights) {
    for (int i = threadIdx.x; i < p.kh * p.kw * OCTETS * 8; i += BLOCK) {
        const int tap = i / (OCTETS * 8), c = i % (OCTETS * 8);
        const int at = tap * OCTETS * 8 + (c / 4 % 2) * OCTETS * 4 + c / 8 * 4 + c % 4;
        weights[at] = c % 8 < b.count(c / 8 * 8) ? p.w[(int64_t)tap * p.c + b.of(c)] : 0.0f;
    }
}

__device__ __forceinline__ void weights_of(const float *weights, int tap, int octet, float (&w)[8]) {
    const float4 *at = (const float4 *)weights + tap * OCTETS * 2 + octet;
    const float4 a = at[0], b = at[OCTETS];
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
}

// Pixels of the patch as stored, groups of eight channels: 16-bit types in one plane, f32 in two.
template <int TYPE> struct patch {
    uint4 *at;
    int pixels;

    __device__ __forceinline__ void put(int item, const raw8 &r) const {
        at[item] = r.a;
        if (TYPE == 0 || TYPE == DVK_F32) {
            at[pixels * OCTETS + item] = r.b;
        }
    }
    __device__ __forceinline__ void get(int item, int type, float (&v)[8]) const {
        raw8 r = {at[item], {}};
        if (TYPE == 0 || TYPE == DVK_F32) {
            r.b = at[pixels * OCTETS + item];
        }
        unpack<TYPE>(r, type, v);
    }
};

// PRO: with a prologue, whose result is kept in f32 if TYPE is 0.
template <int TYPE, bool PRO>
__device__ __forceinline__ void load_patch(const dvk_depthwise_params &p, const patch<TYPE> &to, int64_t n, int y0,
                                           int x0, int c, int lanes) {
    float scale[8], shift[8], none[8] = {};
    if (PRO) {
        channel_values(p.ends.scale, n * p.c + c, lanes, scale, 1.0f);
        channel_values(p.ends.shift, n * p.c + c, lanes, shift, 0.0f);
    }
    const int octet = threadIdx.x % OCTETS;
    for (int first = threadIdx.x / OCTETS; first < p.patch_pixels; first += AT_ONCE * (BLOCK / OCTETS)) {
        raw8 raw[AT_ONCE];
        bool real[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int pixel = first + i * (BLOCK / OCTETS), row = pixel / p.patch_w;
            const int y = y0 + row, x = x0 + pixel - row * p.patch_w;
            real[i] = y >= 0 && x >= 0 && y < p.in_h && x < p.in_w && lanes > 0 && pixel < p.patch_pixels;
            raw[i] = {};
            if (real[i]) {
                raw[i] = fetch<TYPE>(p.x, n * p.x.sn + (int64_t)y * p.x.sh + (int64_t)x * p.x.sw + c, lanes);
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int pixel = first + i * (BLOCK / OCTETS);
            if (PRO && real[i]) {
                float v[8];
                unpack<TYPE>(raw[i], p.x.dtype, v);
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    v[k] = fmaf(v[k], scale[k], shift[k]);
                }
                activate8<CURVES_EXACT>(p.ends.pro_act, v, none);
                raw[i] = pack < TYPE ? TYPE : DVK_F32 > (v, DVK_F32);
            }
            if (pixel < p.patch_pixels) {
                to.put(pixel * OCTETS + octet, raw[i]);
            }
        }
    }
}

// The sums of PIXELS pixels from `first` of the patch on; K: kh and kw, 0: from the arguments.
template <int TYPE, int K, int PIXELS>
__device__ __forceinline__ void convolve(const dvk_depthwise_params &p, const patch<TYPE> &from, int type,
                                         const float *weights, int first, int octet, float (&sum)[PIXELS][8]) {
    if constexpr (K > 0) {
#pragma unroll
        for (int ky = 0; ky < K; ky++) {
            float w[K][8];
#pragma unroll
            for (int kx = 0; kx < K; kx++) {
                weights_of(weights, ky * K + kx, octet, w[kx]);
            }
#pragma unroll
            for (int i = 0; i < PIXELS + K - 1; i++) {
                float v[8];
                from.get((first + ky * p.patch_w + i) * OCTETS + octet, type, v);
#pragma unroll
                for (int kx = 0; kx < K; kx++) {
#pragma unroll
                    for (int k = 0; k < 8 && i >= kx && i - kx < PIXELS; k++) {
                        sum[i - kx][k] = fmaf(v[k], w[kx][k], sum[i - kx][k]);
                    }
                }
            }
        }
    } else {
#pragma unroll 1
        for (int ky = 0; ky < p.kh; ky++) {
#pragma unroll 1
            for (int kx = 0; kx < p.kw; kx++) {
                float w[8];
                weights_of(weights, ky * p.kw + kx, octet, w);
#pragma unroll
                for (int i = 0; i < PIXELS; i++) {
                    float v[8];
                    from.get((first + ky * p.patch_w + kx + i) * OCTETS + octet, type, v);
#pragma unroll
                    for (int k = 0; k < 8; k++) {
                        sum[i][k] = fmaf(v[k], w[k], sum[i][k]);
                    }
                }
            }
        }
    }
}

// TYPE 0: types of the views at run time; the patch is f32 behind a prologue.
template <int TYPE, int K, bool PRO> __device__ __forceinline__ void depthwise(const dvk_depthwise_params &p) {
    extern __shared__ __align__(16) float shared[];
    const int tile_y = blockIdx.x / (uint32_t)p.tiles_x, tile_x = blockIdx.x - tile_y * p.tiles_x;
    const int64_t n = blockIdx.z;
    const block_channels block = {(int)blockIdx.y * OCTETS * 8, p.c, 0};
    const int octet = threadIdx.x % OCTETS, c = block.of(octet * 8), lanes = block.count(octet * 8);
    const int y0 = tile_y * DVK_DEPTHWISE_H, x0 = tile_x * DVK_DEPTHWISE_W;
    const patch<TYPE> pixels = {(uint4 *)(shared + p.kh * p.kw * OCTETS * 8), p.patch_pixels};
    load_weights(p, block, shared);
    wait_for_launch_ahead();
    load_patch<TYPE, PRO>(p, pixels, n, y0 - p.pad_top, x0 - p.pad_left, c, lanes);
    __syncthreads();
    const int at = threadIdx.x / OCTETS, row = at / (DVK_DEPTHWISE_W / ACROSS);
    const int column = at % (DVK_DEPTHWISE_W / ACROSS) * ACROSS;
    if (lanes <= 0 || y0 + row >= p.out_h) {
        return;
    }
    float sum[ACROSS][8] = {};
    convolve<TYPE, K, ACROSS>(p, pixels, PRO ? (int)DVK_F32 : p.x.dtype, shared, row * p.patch_w + column, octet, sum);
    channels of;
    channel_values(p.ends.bias, c, lanes, of.bias, 0.0f);
    channel_values(p.ends.slopes, c, lanes, of.slopes, p.ends.slope);
#pragma unroll 1
    for (int i = 0; i < ACROSS; i++) {
        const int64_t y = y0 + row, x = x0 + column + i;
        if (x < p.out_w) {
            float res[2][8] = {};
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const dvk_elem_view &r = p.ends.res[k];
                if (k < p.ends.n_res) {
                    unpack<0>(fetch<0>(r, n * r.sn + y * r.sh + x * r.sw + c, lanes), r.dtype, res[k]);
                }
            }
            epilogue8<2, CURVES_EXACT>(p.ends, of, sum[0], res);
            put<TYPE>(p.y, n * p.y.sn + y * p.y.sh + x * p.y.sw + c, lanes, pack<TYPE>(sum[0], p.y.dtype));
        }
#pragma unroll
        for (int k = 0; k < 8; k++) { // moves the next pixel's sums to the front: one copy of the epilogue
            sum[0][k] = sum[1][k], sum[1][k] = sum[2][k], sum[2][k] = sum[3][k];
        }
    }
}

// y = act(t[c]) * t[partner of c]: a thread computes two pixels of eight channels and of their partners.
template <int TYPE, int K> __device__ __forceinline__ void depthwise_paired(const dvk_depthwise_params &p) {
    enum { PIXELS = ACROSS / 2, PAIRS = OCTETS / 2 };
    extern __shared__ __align__(16) float shared[];
    const int tile_y = blockIdx.x / (uint32_t)p.tiles_x, tile_x = blockIdx.x - tile_y * p.tiles_x;
    const int64_t n = blockIdx.z;
    const block_channels block = {(int)blockIdx.y * PAIRS * 8, p.c / 2, p.c / 2};
    const int y0 = tile_y * DVK_DEPTHWISE_H, x0 = tile_x * DVK_DEPTHWISE_W;
    const patch<TYPE> pixels = {(uint4 *)(shared + p.kh * p.kw * OCTETS * 8), p.patch_pixels};
    const int slot = threadIdx.x % OCTETS * 8;
    load_weights(p, block, shared);
    wait_for_launch_ahead();
    load_patch<TYPE, false>(p, pixels, n, y0 - p.pad_top, x0 - p.pad_left, block.of(slot), block.count(slot));
    __syncthreads();
    const int octet = threadIdx.x % PAIRS, c = block.of(octet * 8), at = threadIdx.x / PAIRS;
    const int row = at / (DVK_DEPTHWISE_W / PIXELS), column = at % (DVK_DEPTHWISE_W / PIXELS) * PIXELS;
    if (block.count(octet * 8) <= 0 || y0 + row >= p.out_h) {
        return;
    }
    float sum[2][PIXELS][8] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float bias[8];
        channel_values(p.ends.bias, c + half * block.away, 8, bias, 0.0f);
        convolve<TYPE, K, PIXELS>(p, pixels, TYPE, shared, row * p.patch_w + column, octet + half * PAIRS, sum[half]);
#pragma unroll
        for (int i = 0; i < PIXELS * 8; i++) {
            sum[half][i / 8][i % 8] += bias[i % 8];
        }
    }
    const float none[8] = {};
#pragma unroll
    for (int i = 0; i < PIXELS; i++) {
        const int64_t y = y0 + row, x = x0 + column + i;
        activate8<CURVES_EXACT>(p.ends.act, sum[0][i], none);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            sum[0][i][k] *= sum[1][i][k];
        }
        if (x < p.out_w) {
            put<TYPE>(p.y, n * p.y.sn + y * p.y.sh + x * p.y.sw + c, 8, pack<TYPE>(sum[0][i], TYPE));
        }
    }
}

} // namespace

#define DEPTHWISE_PAIRED(name, type, k)                                                                                \
    extern "C" __global__ void __launch_bounds__(BLOCK, k == 3 ? 3 : 2)                                                \
        name(const __grid_constant__ dvk_depthwise_params p) {                                                         \
        depthwise_paired<type, k>(p);                                                                                  \
    }

DEPTHWISE_PAIRED(depthwise3_paired_f16, DVK_F16, 3)
DEPTHWISE_PAIRED(depthwise3_paired_bf16, DVK_BF16, 3)
DEPTHWISE_PAIRED(depthwise5_paired_f16, DVK_F16, 5)
DEPTHWISE_PAIRED(depthwise5_paired_bf16, DVK_BF16, 5)

#define DEPTHWISE(name, type, k, pro)                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK, k == 3 ? 3 : 2)                                                \
        name(const __grid_constant__ dvk_depthwise_params p) {                                                         \
        depthwise<type, k, pro>(p);                                                                                    \
    }

DEPTHWISE(depthwise3_f32, DVK_F32, 3, false)
DEPTHWISE(depthwise3_f16, DVK_F16, 3, false)
DEPTHWISE(depthwise3_bf16, DVK_BF16, 3, false)
DEPTHWISE(depthwise5_f16, DVK_F16, 5, false)
DEPTHWISE(depthwise5_bf16, DVK_BF16, 5, false)
DEPTHWISE(depthwise_any, 0, 0, true)

// A thread computes eight channels of a pixel and reads every tap from memory.
extern "C" __global__ void __launch_bounds__(BLOCK)
    depthwise_plain(const __grid_constant__ dvk_depthwise_plain_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, p.out_w * p.chunks) {
        const int64_t n = row / (uint32_t)p.out_h;
        const int y = row - (uint32_t)n * p.out_h, x = item / (uint32_t)p.chunks;
        const int c = (int)(item - (uint32_t)x * p.chunks) * 8, count = min(8, p.c - c);
        float sum[8] = {};
        for (int tap = 0; tap < p.kh * p.kw; tap++) {
            const int iy = y * p.stride + tap / p.kw - p.pad_top, ix = x * p.stride + tap % p.kw - p.pad_left;
            if (iy < 0 || ix < 0 || iy >= p.in_h || ix >= p.in_w) {
                continue;
            }
            float v[8], w[8];
            unpack<0>(fetch<0>(p.x, n * p.x.sn + iy * p.x.sh + ix * p.x.sw + c, count), p.x.dtype, v);
            channel_values(p.w, (int64_t)tap * p.c + c, count, w, 0.0f);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                sum[k] = fmaf(v[k], w[k], sum[k]);
            }
        }
        channels of;
        channel_values(p.ends.bias, c, count, of.bias, 0.0f);
        channel_values(p.ends.slopes, c, count, of.slopes, p.ends.slope);
        float res[2][8] = {};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const dvk_elem_view &r = p.ends.res[k];
            if (k < p.ends.n_res) {
                unpack<0>(fetch<0>(r, n * r.sn + y * r.sh + x * r.sw + c, count), r.dtype, res[k]);
            }
        }
        epilogue8<2, CURVES_EXACT>(p.ends, of, sum, res);
        put<0>(p.y, n * p.y.sn + y * p.y.sh + x * p.y.sw + c, count, pack<0>(sum, p.y.dtype));
    }
}
