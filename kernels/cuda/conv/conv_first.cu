/* conv_first.cu - 3 x 3 convolutions of at most four input channels, such as colours. The time is bound by the writes
 * of the result. Shared memory holds a pixel as four channels in eight bytes. A step of the product is four taps, so
 * each lane's share of the left operand, one tap of a pixel, is one load. The weights stay in registers. The order of
 * output channels makes a lane's results of a pixel adjacent. */
#include "kernels/cuda/conv/conv_first.h"
#include "kernels/cuda/conv/conv_mma_sync.cuh"

namespace {

template <class T> CONV_DEVICE uint32_t pack_two(float a, float b) {
    return T::DTYPE == CONV_F16 ? conv_pack_f16(a, b) : conv_pack_bf16(a, b);
}

/* d[16 pixels][8] += a[16][8] * b[8][8]: half the depth of the usual product */
#define FIRST_HALF_PRODUCT(TYPE)                                                                                       \
    asm("mma.sync.aligned.m16n8k8.row.col.f32." TYPE "." TYPE                                                          \
        ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                                                     \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(b))

template <class T> CONV_DEVICE void multiply_half(float (&d)[4], const uint32_t (&a)[2], uint32_t b) {
#if __CUDA_ARCH__ >= 800
    if constexpr (T::DTYPE == CONV_F16) {
        FIRST_HALF_PRODUCT("f16");
    } else {
        FIRST_HALF_PRODUCT("bf16");
    }
#endif
}

struct first_tile {
    int n, y0, x0;
    __device__ __forceinline__ first_tile(const dvk_conv_first &p, int tile) {
        const int row = tile / p.tiles_x;
        x0 = (tile - row * p.tiles_x) * DVK_FIRST_WIDTH;
        n = row / p.tiles_y;
        y0 = (row - n * p.tiles_y) * DVK_FIRST_HEIGHT;
    }
};

/* Loads a tile's pixels, halo included, to shared memory. */
template <class T> struct first_pixels {
    enum {
        PIXELS = DVK_FIRST_PATCH_W * DVK_FIRST_PATCH_H,
        EACH = (PIXELS + DVK_FIRST_THREADS - 1) / DVK_FIRST_THREADS
    };
    uint2 raw[EACH]; /* 16-bit pixels as loaded; they are used only when the tile is next */
    int n;
    uint32_t real; /* bits: which of them are in the picture */

    static __device__ __forceinline__ uint2 load_one(const dvk_conv_first &p, int64_t at) {
        if (p.x.dtype != CONV_F32) {
            return *(const uint2 *)((const uint16_t *)p.x.data + at);
        }
        const float *from = (const float *)p.x.data + at;
        float v[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            v[c] = c < p.c_in ? from[c] : 0.0f;
        }
        return make_uint2(pack_two<T>(v[0], v[1]), pack_two<T>(v[2], v[3]));
    }

    __device__ __forceinline__ void load(const dvk_conv_first &p, const first_tile &t) {
        n = t.n, real = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = threadIdx.x + i * DVK_FIRST_THREADS, row = at / DVK_FIRST_PATCH_W;
            const int y = t.y0 - p.pad_top + row, x = t.x0 - p.pad_left + at - row * DVK_FIRST_PATCH_W;
            const bool inside = at < PIXELS && (unsigned)y < (unsigned)p.in_h && (unsigned)x < (unsigned)p.in_w;
            real |= (uint32_t)inside << i;
            raw[i] = inside ? load_one(p, t.n * p.x.sn + y * p.x.sh + x * p.x.sw) : make_uint2(0, 0);
        }
    }

    /* Masks the padding behind the last channel. */
    __device__ __forceinline__ void store(const dvk_conv_first &p, uint2 *to) const {
        const uint32_t low = p.c_in > 1 ? ~0u : 0xffffu, high = p.c_in > 3 ? ~0u : p.c_in > 2 ? 0xffffu : 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = threadIdx.x + i * DVK_FIRST_THREADS, row = at / DVK_FIRST_PATCH_W;
            uint2 u = make_uint2(raw[i].x & low, raw[i].y & high);
            if (p.scale && (real >> i & 1)) {
                u = scaled(p, u);
            }
            if (at < PIXELS) {
                to[at + row * (DVK_FIRST_PITCH - DVK_FIRST_PATCH_W)] = u;
            }
        }
    }

    __device__ __forceinline__ uint2 scaled(const dvk_conv_first &p, const uint2 &u) const {
        const float2 a = conv_unpack(u.x, T::DTYPE), b = conv_unpack(u.y, T::DTYPE);
        float v[4] = {a.x, a.y, b.x, b.y};
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (c < p.c_in) {
                v[c] = fmaf(v[c], __ldg(p.scale + n * p.c_in + c), __ldg(p.shift + n * p.c_in + c));
            }
        }
        return make_uint2(pack_two<T>(v[0], v[1]), pack_two<T>(v[2], v[3]));
    }
};

/* Computes OCTETS * 8 output channels from `first` on, in groups of at most 32. A lane has 2 * WIDE adjacent channels
 * of a group. */
template <class T, int OCTETS> struct first_maker {
    const dvk_conv_first &p;
    uint2 w[2][OCTETS];
    uint32_t w_last[OCTETS];
    float2 bias[OCTETS];
    const float2 *slopes; /* of this lane: one for each eight channels, the next four further */

    static __device__ __forceinline__ int wide(int group) {
        return OCTETS - group < 4 ? OCTETS - group : 4;
    }
    /* The first of two channels that this lane has of the octet. */
    static __device__ __forceinline__ int channel(int octet) {
        const int group = octet & ~3;
        return group * 8 + (threadIdx.x & 3) * 2 * wide(group) + (octet - group) * 2;
    }

    __device__ __forceinline__ first_maker(const dvk_conv_first &params, float2 *table)
        : p(params), slopes(table + (threadIdx.x & 3)) {
        const uint2 *from = (const uint2 *)p.w + (threadIdx.x & 31);
        const uint32_t *last = (const uint32_t *)((const uint2 *)p.w + 2 * OCTETS * 32) + (threadIdx.x & 31);
#pragma unroll
        for (int i = 0; i < OCTETS; i++) {
            const int c = channel(i);
            bias[i] = p.bias ? make_float2(p.bias[c], p.bias[c + 1]) : make_float2(0, 0);
            if (threadIdx.x < 4) {
                table[i * 4 + threadIdx.x] =
                    p.slopes ? make_float2(p.slopes[c], p.slopes[c + 1]) : make_float2(p.slope, p.slope);
            }
#pragma unroll
            for (int s = 0; s < 2; s++) {
                w[s][i] = from[(s * OCTETS + i) * 32];
            }
            w_last[i] = last[i * 32];
        }
    }

    __device__ __forceinline__ void activate(float (&v)[4], int octet) const {
        if (p.act == DVK_FIRST_SLOPE) {
            const float2 slope = slopes[octet * 4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[i] = v[i] >= 0 ? v[i] : (i & 1 ? slope.y : slope.x) * v[i];
            }
        } else if (p.act == DVK_FIRST_SILU) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[i] = conv_silu_short(v[i]);
            }
        }
    }

    /* Computes sixteen pixels; `from`: the first tap of this lane's first one. */
    __device__ __forceinline__ void run(const uint2 *from, uint16_t *y, bool first, bool second) const {
        const int lane = threadIdx.x & 3;
        uint32_t a[2][4], a_last[2] = {};
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const int tap = s * 4 + lane;
            const uint2 *at = from + tap / 3 * DVK_FIRST_PITCH + tap % 3;
            const uint2 low = at[0], high = at[8];
            a[s][0] = low.x, a[s][1] = high.x, a[s][2] = low.y, a[s][3] = high.y;
        }
        if (lane < 2) { /* a lane has two channels of the ninth tap */
            const uint32_t *at = (const uint32_t *)(from + 2 * DVK_FIRST_PITCH + 2) + lane;
            a_last[0] = at[0], a_last[1] = at[16];
        }
#pragma unroll
        for (int group = 0; group < OCTETS; group += 4) {
            enum { MOST = 4 };
            float d[MOST][4];
            uint32_t out[2][MOST];
#pragma unroll
            for (int i = 0; i < MOST && group + i < OCTETS; i++) {
                d[i][0] = d[i][2] = bias[group + i].x, d[i][1] = d[i][3] = bias[group + i].y;
            }
#pragma unroll
            for (int s = 0; s < 2; s++) {
#pragma unroll
                for (int i = 0; i < MOST && group + i < OCTETS; i++) {
                    conv_mma<T>::go(d[i], a[s], w[s][group + i].x, w[s][group + i].y);
                }
            }
#pragma unroll
            for (int i = 0; i < MOST && group + i < OCTETS; i++) {
                multiply_half<T>(d[i], a_last, w_last[group + i]);
            }
#pragma unroll
            for (int i = 0; i < MOST && group + i < OCTETS; i++) {
                activate(d[i], group + i);
                out[0][i] = pack_two<T>(d[i][0], d[i][1]);
                out[1][i] = pack_two<T>(d[i][2], d[i][3]);
            }
            uint16_t *to = y + channel(group);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                if (half ? second : first) {
                    const uint32_t(&u)[4] = out[half];
                    uint16_t *at = to + half * 8 * p.y.sw;
                    if (wide(group) == 4) {
                        *(uint4 *)at = make_uint4(u[0], u[1], u[2], u[3]);
                    } else {
                        *(uint2 *)at = make_uint2(u[0], u[1]);
                    }
                }
            }
        }
    }
};

template <class T, int OCTETS> CONV_DEVICE void first(const dvk_conv_first &p) {
    __shared__ uint2 patch[2][DVK_FIRST_PATCH_H * DVK_FIRST_PITCH];
    __shared__ float2 slopes[OCTETS * 4];
    const first_maker<T, OCTETS> maker(p, slopes);
    const int row = threadIdx.x / 32, column = (threadIdx.x & 31) / 4;
    first_pixels<T> next;
    conv_wait_for_launch_ahead();
    next.load(p, first_tile(p, blockIdx.x));
    int turn = 0;
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x, turn ^= 1) {
        const first_tile t(p, tile);
        next.store(p, patch[turn]);
        __syncthreads();
        if (tile + (int)gridDim.x < p.tiles) {
            next.load(p, first_tile(p, tile + gridDim.x));
        }
        const int y = t.y0 + row;
        if (y < p.out_h) {
            uint16_t *to = (uint16_t *)p.y.data + t.n * p.y.sn + y * p.y.sh + (t.x0 + column) * p.y.sw;
            const uint2 *from = patch[turn] + row * DVK_FIRST_PITCH + column;
#pragma unroll 1
            for (int x = column; x < DVK_FIRST_WIDTH; x += 16) {
                maker.run(from, to, t.x0 + x < p.out_w, t.x0 + x + 8 < p.out_w);
                from += 16;
                to += 16 * p.y.sw;
            }
        }
    }
}

} // namespace

#define FIRST_KERNEL(name, T, OCTETS)                                                                                  \
    extern "C" __global__ void __launch_bounds__(DVK_FIRST_THREADS, 2)                                                 \
        name(const __grid_constant__ dvk_conv_first p) {                                                               \
        first<T, OCTETS>(p);                                                                                           \
    }
#define FIRST_KERNELS(C)                                                                                               \
    FIRST_KERNEL(conv_first_f16_##C, conv_half, C / 8)                                                                 \
    FIRST_KERNEL(conv_first_bf16_##C, conv_bfloat, C / 8)

FIRST_KERNELS(16)
FIRST_KERNELS(32)
FIRST_KERNELS(48)
FIRST_KERNELS(64)
