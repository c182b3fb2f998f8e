// convert.cu - "load" and "store" between a caller's picture of any layout and a view. A thread converts up to four
// channels of one pixel, or of four pixels if it can write whole words of the image. Neighbouring threads write
// contiguous memory. mul and add are two roundings, as in the reference, so that integers are identical.
#include "kernels/cuda/pixels/convert.cuh"

namespace {

template <int T> __device__ __forceinline__ uint32_t read1(const unsigned char *at, bool aligned) {
    if (T == DVK_U8) {
        return *at;
    }
    if (aligned) {
        return T == DVK_F32 ? *(const uint32_t *)at : *(const uint16_t *)at;
    }
    uint32_t bits = at[0] | (uint32_t)at[1] << 8;
    return T == DVK_F32 ? bits | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24 : bits;
}

template <int T> __device__ __forceinline__ void read4(const unsigned char *at, uint32_t *e) {
    if (T == DVK_F32) {
        const uint4 q = *(const uint4 *)at;
        e[0] = q.x, e[1] = q.y, e[2] = q.z, e[3] = q.w;
    } else if (T == DVK_U8) {
        const uint32_t q = *(const uint32_t *)at;
        e[0] = q & 255, e[1] = q >> 8 & 255, e[2] = q >> 16 & 255, e[3] = q >> 24;
    } else {
        const uint2 q = *(const uint2 *)at;
        e[0] = q.x & 0xffffu, e[1] = q.x >> 16, e[2] = q.y & 0xffffu, e[3] = q.y >> 16;
    }
}

// Up to four channels of a pixel of the view; `at` is a multiple of four if the view has vectors.
__device__ __forceinline__ void view_get(const dvk_elem_view &v, int64_t at, int count, float (&to)[4]) {
    if (v.dtype == DVK_F32 && v.vector && count == 4) {
        const float4 q = *(const float4 *)((const float *)v.data + at);
        to[0] = q.x, to[1] = q.y, to[2] = q.z, to[3] = q.w;
    } else if (v.dtype != DVK_F32 && v.vector && count >= 3) {
        const uint16_t *p = (const uint16_t *)v.data + at;
        const uint32_t low = *(const uint32_t *)p;
        const uint32_t high = count == 4 ? *(const uint32_t *)(p + 2) : p[2];
        to[0] = f32_of(low & 0xffffu, v.dtype), to[1] = f32_of(low >> 16, v.dtype);
        to[2] = f32_of(high & 0xffffu, v.dtype), to[3] = f32_of(high >> 16, v.dtype);
    } else {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            to[c] = c < count ? load1(v.data, v.dtype, at + c) : 0.0f;
        }
    }
}

// If a pixel is written whole, the elements behind `count` are padding.
__device__ __forceinline__ void view_put(const dvk_elem_view &v, bool whole, int64_t at, int count,
                                         const float (&from)[4]) {
    if (whole) {
        *(uint4 *)((uint16_t *)v.data + at) =
            make_uint4(bits_of(from[0], v.dtype) | bits_of(from[1], v.dtype) << 16,
                       bits_of(from[2], v.dtype) | bits_of(from[3], v.dtype) << 16, 0, 0);
    } else if (v.dtype == DVK_F32 && v.vector && count == 4) {
        *(float4 *)((float *)v.data + at) = make_float4(from[0], from[1], from[2], from[3]);
    } else if (v.dtype != DVK_F32 && v.vector && count >= 3) {
        uint16_t *p = (uint16_t *)v.data + at;
        const uint32_t low = bits_of(from[0], v.dtype) | bits_of(from[1], v.dtype) << 16;
        if (count == 4) {
            *(uint2 *)p = make_uint2(low, bits_of(from[2], v.dtype) | bits_of(from[3], v.dtype) << 16);
        } else {
            *(uint32_t *)p = low;
            p[2] = (uint16_t)bits_of(from[2], v.dtype);
        }
    } else {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (c < count) {
                store1(v.data, v.dtype, at + c, from[c]);
            }
        }
    }
}

struct block {            // the work of a thread
    unsigned char *image; // its first pixel, channel 0
    int64_t view;
    int c, pixels, channels;
};

// Stores bits[pixel][channel] into an image whose pixels have exactly IC channels; the map permutes them.
template <int T, int IC>
__device__ __forceinline__ void write_packed(const dvk_convert_params &p, const block &b,
                                             const uint32_t (&bits)[4][4]) {
    uint32_t e[4 * IC];
#pragma unroll
    for (int k = 0; k < IC; k++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            e[i * IC + k] = bits[i][0];
#pragma unroll
            for (int c = 1; c < IC; c++) {
                e[i * IC + k] = channel_of(p, c) == k ? bits[i][c] : e[i * IC + k];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < IC; i++) {
        write4<T>(b.image + 4 * i * size_of(T), e + 4 * i);
    }
}

// Four pixels of a block.
template <int T>
__device__ __forceinline__ void write_words(const dvk_convert_params &p, const block &b, const uint32_t (&bits)[4][4]) {
    if (p.mode == DVK_CONVERT_PACKED_RGB) {
        write_packed<T, 3>(p, b, bits);
    } else if (p.mode == DVK_CONVERT_PACKED_RGBA) {
        write_packed<T, 4>(p, b, bits);
    } else {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (c < b.channels) {
                const uint32_t e[4] = {bits[0][c], bits[1][c], bits[2][c], bits[3][c]};
                write4<T>(b.image + channel_of(p, b.c + c) * p.sc, e);
            }
        }
    }
}

// The reverse: a channel of the view may be any channel of the image.
template <int T, int IC>
__device__ __forceinline__ void read_packed(const dvk_convert_params &p, const block &b, uint32_t (&bits)[4][4]) {
    uint32_t e[4 * IC];
#pragma unroll
    for (int i = 0; i < IC; i++) {
        read4<T>(b.image + 4 * i * size_of(T), e + 4 * i);
    }
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const int from = channel_of(p, c);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bits[i][c] = e[i * IC];
#pragma unroll
            for (int k = 1; k < IC; k++) {
                bits[i][c] = from == k ? e[i * IC + k] : bits[i][c];
            }
        }
    }
}

template <int T>
__device__ __forceinline__ void read_words(const dvk_convert_params &p, const block &b, uint32_t (&bits)[4][4]) {
    if (p.mode == DVK_CONVERT_PACKED_RGB) {
        read_packed<T, 3>(p, b, bits);
    } else if (p.mode == DVK_CONVERT_PACKED_RGBA) {
        read_packed<T, 4>(p, b, bits);
    } else {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (c < b.channels) {
                uint32_t e[4];
                read4<T>(b.image + channel_of(p, b.c + c) * p.sc, e);
                bits[0][c] = e[0], bits[1][c] = e[1], bits[2][c] = e[2], bits[3][c] = e[3];
            }
        }
    }
}

template <int PIXELS>
__device__ __forceinline__ block block_at(const dvk_convert_params &p, uint32_t row, uint32_t item) {
    const int64_t n = row / (uint32_t)p.h;
    const int64_t y = row - n * p.h;
    const int place = (int)(item / (uint32_t)p.blocks);
    const int c = ((int)item - place * p.blocks) * 4;
    const int x = place * PIXELS;
    return {p.image + n * p.sn + y * p.sh + x * p.sw, n * p.view.sn + y * p.view.sh + x * p.view.sw + c, c,
            min(PIXELS, p.w - x), min(4, p.c - c)};
}

template <int T> __device__ __forceinline__ float loaded(const dvk_convert_params &p, uint32_t bits) {
    return __fadd_rn(__fmul_rn(value_of<T>(bits), p.mul), p.add);
}

// Four pixels of a view with `threes`.
template <int T>
__device__ __forceinline__ void put_threes(const dvk_convert_params &p, const block &b, const uint32_t (&bits)[4][4]) {
    float4 *to = (float4 *)((float *)p.view.data + b.view);
    float v[12];
#pragma unroll
    for (int i = 0; i < 12; i++) {
        v[i] = loaded<T>(p, bits[i / 3][i % 3]);
    }
    to[0] = make_float4(v[0], v[1], v[2], v[3]);
    to[1] = make_float4(v[4], v[5], v[6], v[7]);
    to[2] = make_float4(v[8], v[9], v[10], v[11]);
}

template <int T, int PIXELS> __device__ __forceinline__ void load(const dvk_convert_params &p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, (p.w + PIXELS - 1) / PIXELS * p.blocks) {
        const block b = block_at<PIXELS>(p, row, item);
        uint32_t bits[4][4] = {};
        if (PIXELS == 4 && b.pixels == 4) {
            read_words<T>(p, b, bits);
        } else {
#pragma unroll
            for (int i = 0; i < PIXELS; i++) {
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    if (i < b.pixels && c < b.channels) {
                        bits[i][c] = read1<T>(b.image + i * p.sw + channel_of(p, b.c + c) * p.sc, p.aligned);
                    }
                }
            }
        }
        if (PIXELS == 4 && b.pixels == 4 && p.threes) {
            put_threes<T>(p, b, bits);
            continue;
        }
#pragma unroll
        for (int i = 0; i < PIXELS; i++) {
            if (i < b.pixels) {
                const float v[4] = {loaded<T>(p, bits[i][0]), loaded<T>(p, bits[i][1]), loaded<T>(p, bits[i][2]),
                                    loaded<T>(p, bits[i][3])};
                view_put(p.view, p.whole, b.view + i * p.view.sw, b.channels, v);
            }
        }
    }
}

template <int T, int PIXELS> __device__ __forceinline__ void store(const dvk_convert_params &p) {
    wait_for_launch_ahead();
    ROWS_AND_ITEMS(row, p.rows, item, (p.w + PIXELS - 1) / PIXELS * p.blocks) {
        const block b = block_at<PIXELS>(p, row, item);
        uint32_t bits[4][4] = {};
#pragma unroll
        for (int i = 0; i < PIXELS; i++) {
            if (i < b.pixels) {
                float v[4];
                view_get(p.view, b.view + i * p.view.sw, b.channels, v);
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    bits[i][c] = stored<T>(p, v[c]);
                }
            }
        }
        if (PIXELS == 4 && b.pixels == 4) {
            write_words<T>(p, b, bits);
            continue;
        }
#pragma unroll
        for (int i = 0; i < PIXELS; i++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                if (i < b.pixels && c < b.channels) {
                    write1<T>(b.image + i * p.sw + channel_of(p, b.c + c) * p.sc, bits[i][c], p.aligned);
                }
            }
        }
    }
}

} // namespace

#define CONVERT(name, type)                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) load_##name(const __grid_constant__ dvk_convert_params p) {      \
        load<type, 1>(p);                                                                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) load4_##name(const __grid_constant__ dvk_convert_params p) {     \
        load<type, 4>(p);                                                                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) store_##name(const __grid_constant__ dvk_convert_params p) {     \
        store<type, 1>(p);                                                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) store4_##name(const __grid_constant__ dvk_convert_params p) {    \
        store<type, 4>(p);                                                                                             \
    }
CONVERT(u8, DVK_U8)
CONVERT(u16, DVK_U16)
CONVERT(f32, DVK_F32)
CONVERT(f16, DVK_F16)
CONVERT(bf16, DVK_BF16)
