// resample.cu - nearest upsampling, pixel shuffle and its inverse. A thread of upsample reads eight channels once and
// writes them r * r times. A thread of a shuffle holds a few channels of all r * r pixels of one place on the small
// side. It permutes them in registers, so that both sides have long runs in memory.
#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/pixels/resample.h"

namespace {

// Splits a vector into the bits of its elements, one per register.
template <int TYPE> __device__ __forceinline__ void split(const raw8 &r, uint32_t *e) {
    const uint32_t w[8] = {r.a.x, r.a.y, r.a.z, r.a.w, r.b.x, r.b.y, r.b.z, r.b.w};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        e[i] = TYPE == DVK_F32 ? w[i] : w[i / 2] >> (i % 2 * 16) & 0xffffu;
    }
}

template <int TYPE> __device__ __forceinline__ raw8 joined(const uint32_t *e) {
    if (TYPE == DVK_F32) {
        return {make_uint4(e[0], e[1], e[2], e[3]), make_uint4(e[4], e[5], e[6], e[7])};
    }
    return {make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16), {}};
}

template <int TYPE, int V>
__device__ __forceinline__ void get_channels(const dvk_elem_view &v, int64_t at, int count, uint32_t (&e)[V]) {
    if (V == 4 && count == 4 && v.vector) {
        if (TYPE == DVK_F32) {
            const uint4 q = *(const uint4 *)((const uint32_t *)v.data + at);
            e[0] = q.x, e[1] = q.y, e[2] = q.z, e[3] = q.w;
        } else {
            const uint2 q = *(const uint2 *)((const uint16_t *)v.data + at);
            e[0] = q.x & 0xffffu, e[1] = q.x >> 16, e[2] = q.y & 0xffffu, e[3] = q.y >> 16;
        }
        return;
    }
    uint32_t all[8];
    split<TYPE>(fetch<TYPE>(v, at, count), all);
#pragma unroll
    for (int i = 0; i < V; i++) {
        e[i] = all[i];
    }
}

template <int TYPE, int V>
__device__ __forceinline__ void put_channels(const dvk_elem_view &v, int64_t at, int count, const uint32_t (&e)[V]) {
    if (V == 4 && count == 4 && v.vector) {
        if (TYPE == DVK_F32) {
            *(uint4 *)((uint32_t *)v.data + at) = make_uint4(e[0], e[1], e[2], e[3]);
        } else {
            *(uint2 *)((uint16_t *)v.data + at) = make_uint2(e[0] | e[1] << 16, e[2] | e[3] << 16);
        }
        return;
    }
    uint32_t all[8] = {};
#pragma unroll
    for (int i = 0; i < V; i++) {
        all[i] = e[i];
    }
    put<TYPE>(v, at, count, joined<TYPE>(all));
}

__device__ __forceinline__ uint32_t bits_plus(uint32_t bits, float more, int type) {
    if (type == DVK_F32) {
        return __float_as_uint(__uint_as_float(bits) + more);
    }
    return bits_of(f32_of(bits, type) + more, type);
}

struct place { // of a thread on the small side
    int64_t n;
    uint32_t y, x, c;
    int count;
};

template <int V> __device__ __forceinline__ place placed(const dvk_resample_params &p, uint32_t row, uint32_t item) {
    const uint32_t n = row / (uint32_t)p.h;
    const uint32_t x = item / (uint32_t)p.chunks;
    const uint32_t c = (item - x * p.chunks) * V;
    return {n, row - n * p.h, x, c, min(V, p.c - (int)c)};
}

// All elements of one place: R * R pixels of V channels on the large side, V * R * R channels of one pixel on the small
// side.
template <int TYPE, int R, int V, bool SHUFFLE> __device__ __forceinline__ void turn(const dvk_resample_params &p) {
    wait_for_launch_ahead();
    const dvk_elem_view &small = SHUFFLE ? p.x : p.y;
    const dvk_elem_view &large = SHUFFLE ? p.y : p.x;
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const place at = placed<V>(p, row, item);
        uint32_t e[V * R * R];
        const int64_t folded = at.n * small.sn + at.y * small.sh + at.x * small.sw + at.c * R * R;
        const int64_t spread = at.n * large.sn + at.y * R * large.sh + at.x * R * large.sw + at.c;
        if (SHUFFLE) {
#pragma unroll
            for (int i = 0; i < V * R * R; i += 8) {
                split<TYPE>(fetch<TYPE>(small, folded + i, max(0, min(8, at.count * R * R - i))), e + i);
            }
        }
        uint32_t more[V] = {};
        if (SHUFFLE && p.res.data != nullptr) {
            const int64_t from = at.n * p.res.sn + at.y * p.res.sh + at.x * p.res.sw + at.c;
#pragma unroll
            for (int i = 0; i < V; i++) {
                more[i] = i < at.count ? __float_as_uint(load1(p.res.data, p.res.dtype, from + i)) : 0;
            }
        }
#pragma unroll
        for (int ij = 0; ij < R * R; ij++) {
            const int64_t pixel = spread + ij / R * large.sh + ij % R * large.sw;
            uint32_t channels[V];
            if (SHUFFLE) {
#pragma unroll
                for (int i = 0; i < V; i++) {
                    channels[i] = e[i * R * R + ij];
                    if (p.res.data != nullptr) {
                        channels[i] = bits_plus(channels[i], __uint_as_float(more[i]), p.y.dtype);
                    }
                }
                put_channels<TYPE, V>(large, pixel, at.count, channels);
            } else {
                get_channels<TYPE, V>(large, pixel, at.count, channels);
#pragma unroll
                for (int i = 0; i < V; i++) {
                    e[i * R * R + ij] = channels[i];
                }
            }
        }
        if (!SHUFFLE) {
#pragma unroll
            for (int i = 0; i < V * R * R; i += 8) {
                put<TYPE>(small, folded + i, max(0, min(8, at.count * R * R - i)), joined<TYPE>(e + i));
            }
        }
    }
}

} // namespace

#define TURN(name, type, r, v)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        pixel_shuffle##r##_##name(const __grid_constant__ dvk_resample_params p) {                                     \
        turn<type, r, v, true>(p);                                                                                     \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        pixel_unshuffle##r##_##name(const __grid_constant__ dvk_resample_params p) {                                   \
        turn<type, r, v, false>(p);                                                                                    \
    }
// 32 to 72 elements per thread; a run of V * R * R begins at a multiple of eight
TURN(16, DVK_F16, 2, 8)
TURN(16, DVK_F16, 3, 8)
TURN(16, DVK_F16, 4, 4)
TURN(32, DVK_F32, 2, 8)
TURN(32, DVK_F32, 3, 8)
TURN(32, DVK_F32, 4, 4)

// Few channels, any factor, any two types: a thread writes up to four channels of a pixel of the large side.
extern "C" __global__ void __launch_bounds__(256) pixel_shuffle_any(const __grid_constant__ dvk_resample_params p) {
    wait_for_launch_ahead();
    const uint32_t h = p.h * p.r, square = p.r * p.r;
    ROWS_AND_ITEMS(row, p.rows * p.r, item, p.w * p.r * p.chunks) {
        const uint32_t n = row / h, oy = row - n * h, ox = item / p.chunks, c0 = (item - ox * p.chunks) * 4;
        const uint32_t y = oy / p.r, i = oy - y * p.r, x = ox / p.r, j = ox - x * p.r;
        const int64_t from = n * p.x.sn + y * p.x.sh + x * p.x.sw + i * p.r + j;
        const int64_t res = n * p.res.sn + y * p.res.sh + x * p.res.sw;
        const int64_t to = n * p.y.sn + oy * p.y.sh + ox * p.y.sw;
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            if (c0 + c < p.c) {
                float v = load1(p.x.data, p.x.dtype, from + (int64_t)(c0 + c) * square);
                if (p.res.data != nullptr) {
                    v += load1(p.res.data, p.res.dtype, res + c0 + c);
                }
                store1(p.y.data, p.y.dtype, to + c0 + c, v);
            }
        }
    }
}

// Pictures of three 16-bit channels, two pixels of two rows at a time: a thread writes a whole pixel of the small side.
extern "C" __global__ void __launch_bounds__(256) pixel_unshuffle_rgb(const __grid_constant__ dvk_resample_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, x, p.w) {
        const uint32_t n = row / p.h, y = row - n * p.h;
        const int64_t from = n * p.x.sn + (int64_t)y * 2 * p.x.sh + (int64_t)x * 2 * p.x.sw;
        uint32_t low[4], high[4]; // red and green, blue of each of the four
#pragma unroll
        for (int ij = 0; ij < 4; ij++) {
            const uint16_t *at = (const uint16_t *)p.x.data + from + (ij / 2) * p.x.sh + (ij % 2) * p.x.sw;
            low[ij] = *(const uint32_t *)at;
            high[ij] = at[2];
        }
        uint2 *to = (uint2 *)((uint16_t *)p.y.data + n * p.y.sn + (int64_t)y * p.y.sh + (int64_t)x * p.y.sw);
        to[0] = make_uint2(__byte_perm(low[0], low[1], 0x5410), __byte_perm(low[2], low[3], 0x5410));
        to[1] = make_uint2(__byte_perm(low[0], low[1], 0x7632), __byte_perm(low[2], low[3], 0x7632));
        to[2] = make_uint2(high[0] | high[1] << 16, high[2] | high[3] << 16);
    }
}

// The same: a thread writes up to eight channels of a pixel of the small side.
extern "C" __global__ void __launch_bounds__(256) pixel_unshuffle_any(const __grid_constant__ dvk_resample_params p) {
    wait_for_launch_ahead();
    const uint32_t square = p.r * p.r, folded = p.c * square;
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const uint32_t n = row / p.h, y = row - n * p.h, x = item / p.chunks, f0 = (item - x * p.chunks) * 8;
        const int64_t from = n * p.x.sn + (int64_t)y * p.r * p.x.sh + (int64_t)x * p.r * p.x.sw;
        float v[8];
#pragma unroll
        for (uint32_t k = 0; k < 8; k++) {
            const uint32_t fold = f0 + k, c = fold / square, ij = fold - c * square, i = ij / p.r, j = ij - i * p.r;
            v[k] = fold < folded ? load1(p.x.data, p.x.dtype, from + i * p.x.sh + j * p.x.sw + c) : 0.0f;
        }
        put<0>(p.y, n * p.y.sn + y * p.y.sh + x * p.y.sw + f0, min(8u, folded - f0), pack<0>(v, p.y.dtype));
    }
}

extern "C" __global__ void __launch_bounds__(256) upsample(const __grid_constant__ dvk_resample_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const place at = placed<8>(p, row, item);
        const raw8 x = fetch<0>(p.x, at.n * p.x.sn + at.y * p.x.sh + at.x * p.x.sw + at.c, at.count);
        const raw8 y = converted(x, p.x.dtype, p.y.dtype);
        for (int i = 0; i < p.r; i++) {
            for (int j = 0; j < p.r; j++) {
                const int64_t to = ((int64_t)at.y * p.r + i) * p.y.sh + ((int64_t)at.x * p.r + j) * p.y.sw;
                put<0>(p.y, at.n * p.y.sn + to + at.c, at.count, y);
            }
        }
    }
}

// The same for f32, four channels per thread: neighbouring threads write contiguous memory.
extern "C" __global__ void __launch_bounds__(256) upsample_f32(const __grid_constant__ dvk_resample_params p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, p.w * p.chunks) {
        const place at = placed<4>(p, row, item);
        uint32_t e[4];
        get_channels<DVK_F32, 4>(p.x, at.n * p.x.sn + at.y * p.x.sh + at.x * p.x.sw + at.c, at.count, e);
        for (int i = 0; i < p.r; i++) {
            for (int j = 0; j < p.r; j++) {
                const int64_t to = ((int64_t)at.y * p.r + i) * p.y.sh + ((int64_t)at.x * p.r + j) * p.y.sw;
                put_channels<DVK_F32, 4>(p.y, at.n * p.y.sn + to + at.c, at.count, e);
            }
        }
    }
}
