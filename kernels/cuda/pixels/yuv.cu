// yuv.cu - "load_yuv" and "store_yuv". A thread converts the four pixels that share a chroma sample. Each product and
// each sum is rounded once, in the order of the reference.
#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/pixels/yuv.h"

namespace {

struct colour {
    float r, g, b;
};

__device__ __forceinline__ float unit_range(float v) { // NaN becomes 0
    return v > 0.0f ? v < 1.0f ? v : 1.0f : 0.0f;
}

template <class WORD>
__device__ __forceinline__ void read2(const dvk_yuv_params &p, const unsigned char *row, int i, bool both,
                                      float (&to)[2]) {
    const WORD *at = (const WORD *)row + i;
    WORD pair[2] = {};
    if (p.pairs && both) {
        if (sizeof(WORD) == 1) {
            *(uint16_t *)pair = *(const uint16_t *)at;
        } else {
            *(uint32_t *)pair = *(const uint32_t *)at;
        }
    } else {
        pair[0] = at[0];
        pair[1] = both ? at[1] : at[0];
    }
    to[0] = (float)(pair[0] >> p.shift);
    to[1] = (float)(pair[1] >> p.shift);
}

template <class WORD>
__device__ __forceinline__ void write2(const dvk_yuv_params &p, unsigned char *row, int i, bool both, float a,
                                       float b) {
    const float top = p.numbers.top;
    const uint32_t first = __float2uint_rn(a > 0.0f ? a < top ? a : top : 0.0f) << p.shift;
    const uint32_t second = __float2uint_rn(b > 0.0f ? b < top ? b : top : 0.0f) << p.shift;
    WORD *at = (WORD *)row + i;
    if (p.pairs && both && sizeof(WORD) == 1) {
        *(uint16_t *)at = (uint16_t)(first | second << 8);
    } else if (p.pairs && both) {
        *(uint32_t *)at = first | second << 16;
    } else {
        at[0] = (WORD)first;
        if (both) {
            at[1] = (WORD)second;
        }
    }
}

// Chroma of a block's four pixels: [row][column][Cb, Cr].
template <class WORD>
__device__ __forceinline__ void chroma4(const dvk_yuv_params &p, int by, int bx, float (&to)[2][2][2]) {
    const int h = (p.h + 1) / 2;
    const int w = (p.w + 1) / 2;
    float codes[3][2][2]; // rows around, columns here and right
#pragma unroll
    for (int j = 0; j < 3; j++) {
        const unsigned char *row = p.chroma + min(max(by + j - 1, 0), h - 1) * p.chroma_stride;
        read2<WORD>(p, row, 2 * bx, true, codes[j][0]);
        read2<WORD>(p, row, 2 * min(bx + 1, w - 1), true, codes[j][1]);
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            float columns[2];
#pragma unroll
            for (int i = 0; i < 2; i++) { // exact: codes have 16 bits at most
                columns[i] = 0.75f * codes[1][i][k] + 0.25f * codes[2 * j][i][k];
            }
            to[j][0][k] = columns[0];
            to[j][1][k] = 0.5f * columns[0] + 0.5f * columns[1];
        }
    }
}

__device__ __forceinline__ float scaled(float v, float mul, float add) {
    return __fadd_rn(__fmul_rn(v, mul), add);
}

template <class WORD> __device__ __forceinline__ void load(const dvk_yuv_params &p) {
    wait_for_launch_ahead();
    const dvk_yuv_numbers &m = p.numbers;
    ROWS_AND_ITEMS(by, (p.h + 1) / 2, bx, (p.w + 1) / 2) {
        float chroma[2][2][2];
        chroma4<WORD>(p, by, bx, chroma);
        const bool both = 2 * (int)bx + 1 < p.w;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int y = 2 * by + j;
            if (y >= p.h) {
                continue;
            }
            float luma[2];
            read2<WORD>(p, p.luma + y * p.luma_stride, 2 * bx, both, luma);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (i == 1 && !both) {
                    continue;
                }
                const float l = __fmul_rn(luma[i] - m.y_offset, m.y_unit);
                const float cb = __fmul_rn(chroma[j][i][0] - m.c_offset, m.c_unit);
                const float cr = __fmul_rn(chroma[j][i][1] - m.c_offset, m.c_unit);
                const float r = __fadd_rn(l, __fmul_rn(m.r_cr, cr));
                const float g = __fadd_rn(__fadd_rn(l, __fmul_rn(m.g_cb, cb)), __fmul_rn(m.g_cr, cr));
                const float b = __fadd_rn(l, __fmul_rn(m.b_cb, cb));
                const int64_t at = y * p.view.sh + (2 * bx + i) * p.view.sw;
                store1(p.view.data, p.view.dtype, at, scaled(unit_range(r), p.mul, p.add));
                store1(p.view.data, p.view.dtype, at + 1, scaled(unit_range(g), p.mul, p.add));
                store1(p.view.data, p.view.dtype, at + 2, scaled(unit_range(b), p.mul, p.add));
            }
        }
    }
}

__device__ __forceinline__ colour colour_at(const dvk_yuv_params &p, int y, int x) {
    const int64_t at = min(y, p.h - 1) * p.view.sh + min(max(x, 0), p.w - 1) * p.view.sw;
    return {unit_range(scaled(load1(p.view.data, p.view.dtype, at), p.mul, p.add)),
            unit_range(scaled(load1(p.view.data, p.view.dtype, at + 1), p.mul, p.add)),
            unit_range(scaled(load1(p.view.data, p.view.dtype, at + 2), p.mul, p.add))};
}

__device__ __forceinline__ float luma_of(const dvk_yuv_numbers &m, const colour &c) {
    return __fadd_rn(__fadd_rn(__fmul_rn(m.kr, c.r), __fmul_rn(m.kg, c.g)), __fmul_rn(m.kb, c.b));
}

__device__ __forceinline__ float across(float left, float here, float right) {
    return __fadd_rn(__fadd_rn(left, right), __fmul_rn(2.0f, here));
}

template <class WORD> __device__ __forceinline__ void store(const dvk_yuv_params &p) {
    wait_for_launch_ahead();
    const dvk_yuv_numbers &m = p.numbers;
    ROWS_AND_ITEMS(by, (p.h + 1) / 2, bx, (p.w + 1) / 2) {
        const int x = 2 * bx;
        const bool both = x + 1 < p.w;
        colour rows[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int y = 2 * by + j;
            const colour left = colour_at(p, y, x - 1), here = colour_at(p, y, x), right = colour_at(p, y, x + 1);
            rows[j] = {across(left.r, here.r, right.r), across(left.g, here.g, right.g),
                       across(left.b, here.b, right.b)};
            if (y < p.h) {
                write2<WORD>(p, p.luma + y * p.luma_stride, x, both, scaled(luma_of(m, here), m.y_scale, m.y_offset),
                             scaled(luma_of(m, right), m.y_scale, m.y_offset));
            }
        }
        const colour mean = {__fmul_rn(__fadd_rn(rows[0].r, rows[1].r), 0.125f),
                             __fmul_rn(__fadd_rn(rows[0].g, rows[1].g), 0.125f),
                             __fmul_rn(__fadd_rn(rows[0].b, rows[1].b), 0.125f)};
        const float luma = luma_of(m, mean);
        const float cb = scaled(__fmul_rn(__fsub_rn(mean.b, luma), m.cb_b), m.c_scale, m.c_offset);
        const float cr = scaled(__fmul_rn(__fsub_rn(mean.r, luma), m.cr_r), m.c_scale, m.c_offset);
        write2<WORD>(p, p.chroma + by * p.chroma_stride, x, true, cb, cr);
    }
}

} // namespace

#define YUV(name, word)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) load_yuv_##name(const __grid_constant__ dvk_yuv_params p) {      \
        load<word>(p);                                                                                                 \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) store_yuv_##name(const __grid_constant__ dvk_yuv_params p) {     \
        store<word>(p);                                                                                                \
    }
YUV(8, unsigned char)
YUV(16, unsigned short)
