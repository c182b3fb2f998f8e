// depthwise_planes.cu - depthwise convolution, 3 x 3 or 5 x 5, of 16-bit pictures. Blocks are persistent: a block has
// fixed 64 channels and loops over tiles of 16 x 8 pixels. The next tile's patch is loaded during the sums of this one.
// Each warp has one octet of channels, so that all its lanes read the same weights. A lane computes four adjacent
// pixels.
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/conv/depthwise_planes.h"
#include "kernels/cuda/common/elem_epilogue.cuh"

namespace {

enum {
    WIDE = DVK_PLANES_W,
    HIGH = DVK_PLANES_H,
    OCTETS = DVK_PLANES_OCTETS,
    BLOCK = DVK_PLANES_BLOCK,
    OUT_ROW = DVK_PLANES_OUT_ROW,
    OUT = DVK_PLANES_OUT,
    ACROSS = 4,
    AT_A_TIME = BLOCK / OCTETS // pixels that the block copies
};

struct tile {
    int n, y0, x0;
    __device__ __forceinline__ tile(const dvk_depthwise_planes &p, int job) {
        const int row = job / p.tiles_x;
        n = row / p.tiles_y, y0 = (row - n * p.tiles_y) * HIGH, x0 = (job - row * p.tiles_x) * WIDE;
    }
};

template <int TYPE, int K> struct planes {
    enum { PATCH_W = WIDE + K - 1, ROW = WIDE + K, PATCH_H = HIGH + K - 1, PATCH = PATCH_H * ROW + 1 };
    const dvk_depthwise_planes &p;
    uint4 *patches, *tiles;
    float *weights; // [tap][channel]
    const int c0, octet_moved = threadIdx.x % OCTETS, pixel_moved = threadIdx.x / OCTETS;

    __device__ __forceinline__ planes(const dvk_depthwise_planes &params, uint4 *shared)
        : p(params), patches(shared), tiles(shared + 2 * OCTETS * PATCH), weights((float *)(tiles + 2 * OCTETS * OUT)),
          c0(blockIdx.x % (uint32_t)params.slabs * OCTETS * 8) {
    }

    __device__ __forceinline__ void load_weights() const {
        for (int i = threadIdx.x; i < K * K * OCTETS * 8; i += BLOCK) {
            const int tap = i / (OCTETS * 8), c = c0 + i % (OCTETS * 8);
            weights[i] = c < p.c ? p.w[tap * p.c + c] : 0.0f;
        }
    }

    static __device__ __forceinline__ int64_t offset(const dvk_elem_view &v, int n, int y, int x) {
        return n * v.sn + (int64_t)y * v.sh + (int64_t)x * v.sw;
    }

    // Loads the patch and residuals of tile t into buffer `to`. Octets are read whole, including padding.
    __device__ __forceinline__ void bring(const tile &t, int to) const {
        const int c = c0 + octet_moved * 8;
        uint4 *patch = patches + (to * OCTETS + octet_moved) * PATCH;
        const uint16_t *x_at = (const uint16_t *)p.x.data + c;
#pragma unroll
        for (int i = 0; i < (PATCH_W * PATCH_H + AT_A_TIME - 1) / AT_A_TIME; i++) {
            const int pixel = pixel_moved + i * AT_A_TIME, row = pixel / PATCH_W, column = pixel - row * PATCH_W;
            const int y = t.y0 + row - p.pad_top, x = t.x0 + column - p.pad_left;
            const bool real = y >= 0 && x >= 0 && y < p.in_h && x < p.in_w && c < p.c;
            if (pixel < PATCH_W * PATCH_H) {
                attention::copy16(attention::shared_address(patch + row * ROW + column),
                                  real ? x_at + offset(p.x, t.n, y, x) : p.x.data, real);
            }
        }
        if (p.ends.n_res > 0) {
            const dvk_elem_view &r = p.ends.res[0];
            uint4 *out = tiles + (to * OCTETS + octet_moved) * OUT;
#pragma unroll
            for (int i = 0; i < WIDE * HIGH / AT_A_TIME; i++) {
                const int pixel = pixel_moved + i * AT_A_TIME, row = pixel / WIDE, column = pixel % WIDE;
                const int y = t.y0 + row, x = t.x0 + column;
                const bool real = y < p.out_h && x < p.out_w && c < p.c;
                attention::copy16(attention::shared_address(out + row * OUT_ROW + column),
                                  real ? (const uint16_t *)r.data + c + offset(r, t.n, y, x) : r.data, real);
            }
        }
        attention::commit_copies();
    }

    // Sums of four pixels from `at` of the patch on
    __device__ __forceinline__ void convolve(const uint4 *at, int octet, float (&sum)[ACROSS][8]) const {
#pragma unroll
        for (int ky = 0; ky < K; ky++) {
            float w[K][8];
#pragma unroll
            for (int kx = 0; kx < K; kx++) {
                const float4 *from = (const float4 *)weights + ((ky * K + kx) * OCTETS + octet) * 2;
                const float4 a = from[0], b = from[1];
                w[kx][0] = a.x, w[kx][1] = a.y, w[kx][2] = a.z, w[kx][3] = a.w;
                w[kx][4] = b.x, w[kx][5] = b.y, w[kx][6] = b.z, w[kx][7] = b.w;
            }
#pragma unroll
            for (int i = 0; i < ACROSS + K - 1; i++) {
                float v[8];
                unpack<TYPE>(raw8{at[ky * ROW + i], {}}, TYPE, v);
#pragma unroll
                for (int kx = 0; kx < K; kx++) {
#pragma unroll
                    for (int k = 0; k < 8 && i >= kx && i - kx < ACROSS; k++) {
                        sum[i - kx][k] = fmaf(v[k], w[kx][k], sum[i - kx][k]);
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void activate(float (&v)[8], const float (&slopes)[8]) const {
        if (p.ends.act == DVK_ACT_GELU) { // f16 needs more bits than act_gelu_short has
#pragma unroll
            for (int k = 0; k < 8; k++) {
                v[k] = TYPE == DVK_BF16 ? act_gelu_short(v[k]) : act_gelu(v[k]);
            }
        } else {
            activate8<CURVES_FAST>(p.ends.act, v, slopes);
        }
    }

    __device__ __forceinline__ void end(float (&v)[8], const channels &of, const float (&res)[8]) const {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            v[k] += of.bias[k];
        }
        if (!p.ends.act_last) {
            activate(v, of.slopes);
        }
#pragma unroll
        for (int k = 0; k < 8; k++) {
            v[k] = fmaf(p.ends.beta[0], res[k], v[k] * p.ends.alpha);
        }
        if (p.ends.act_last) {
            activate(v, of.slopes);
        }
    }

    // Computes a warp's octet of a tile; the results overwrite its residuals.
    __device__ __forceinline__ void make(int buffer) const {
        const int octet = threadIdx.x / 32, row = threadIdx.x % HIGH, column = threadIdx.x % 32 / HIGH * ACROSS;
        const int c = c0 + octet * 8;
        if (c >= p.c) {
            return;
        }
        float sum[ACROSS][8] = {};
        convolve(patches + (buffer * OCTETS + octet) * PATCH + row * ROW + column, octet, sum);
        uint4 *out = tiles + (buffer * OCTETS + octet) * OUT + row * OUT_ROW + column;
        channels of;
        channel_values(p.ends.bias, c, min(8, p.c - c), of.bias, 0.0f);
        channel_values(nullptr, 0, 0, of.slopes, p.ends.slope);
#pragma unroll 1
        for (int i = 0; i < ACROSS; i++) {
            float res[8] = {};
            if (p.ends.n_res > 0) {
                unpack<TYPE>(raw8{out[i], {}}, TYPE, res);
            }
            end(sum[0], of, res);
            out[i] = pack<TYPE>(sum[0], TYPE).a;
#pragma unroll
            for (int k = 0; k < 8; k++) { // moves the next pixel's sums to the front: one copy of the epilogue
                sum[0][k] = sum[1][k], sum[1][k] = sum[2][k], sum[2][k] = sum[3][k];
            }
        }
    }

    __device__ __forceinline__ void store(const tile &t, int buffer) const {
        const int c = c0 + octet_moved * 8, count = p.alone && c < p.c ? 8 : min(8, p.c - c);
        const uint4 *out = tiles + (buffer * OCTETS + octet_moved) * OUT;
        if (count <= 0) {
            return;
        }
#pragma unroll
        for (int i = 0; i < WIDE * HIGH / AT_A_TIME; i++) {
            const int pixel = pixel_moved + i * AT_A_TIME, row = pixel / WIDE, column = pixel % WIDE;
            if (t.y0 + row < p.out_h && t.x0 + column < p.out_w) {
                put<TYPE>(p.y, offset(p.y, t.n, t.y0 + row, t.x0 + column) + c, count,
                          raw8{out[row * OUT_ROW + column], {}});
            }
        }
    }

    __device__ __forceinline__ void run() const {
        const int step = gridDim.x / (uint32_t)p.slabs;
        int job = blockIdx.x / (uint32_t)p.slabs;
        load_weights();
        wait_for_launch_ahead();
        if (job < p.jobs) {
            bring(tile(p, job), 0);
        }
        for (int buffer = 0; job < p.jobs; job += step, buffer ^= 1) {
            attention::wait_copies<0>();
            __syncthreads(); // also: the previous tile has been stored, and the other patch is free
            if (job + step < p.jobs) {
                bring(tile(p, job + step), buffer ^ 1);
            }
            make(buffer);
            __syncthreads();
            store(tile(p, job), buffer);
        }
    }
};

} // namespace

#define PLANES(NAME, TYPE, K, BLOCKS)                                                                                  \
    extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS) NAME(const __grid_constant__ dvk_depthwise_planes p) { \
        extern __shared__ __align__(16) uint4 shared[];                                                                \
        const planes<TYPE, K> d(p, shared);                                                                            \
        d.run();                                                                                                       \
    }

PLANES(depthwise_planes3_f16, DVK_F16, 3, 2)
PLANES(depthwise_planes3_bf16, DVK_BF16, 3, 2)
PLANES(depthwise_planes5_f16, DVK_F16, 5, 2)
PLANES(depthwise_planes5_bf16, DVK_BF16, 5, 2)
