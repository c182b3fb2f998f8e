/* conv_wgmma_few.cuh - the operand of a 3 x 3 convolution of at most four input channels: k runs over (tap, channel),
 * 27 or 36 of them. The helpers read the pixels of a tile, halo included, one tile ahead, directly from the picture
 * (any type, any strides). They store each pixel to shared memory as eight bytes, and copy from there the taps of each
 * pixel into its row. */
#ifndef DVK_CUDA_CONV_WGMMA_FEW_CUH
#define DVK_CUDA_CONV_WGMMA_FEW_CUH

#include <limits.h>

#include "kernels/cuda/conv/conv_wgmma_tile.cuh"

template <class T> struct few_pixels {
    enum { EACH = (DVK_WGMMA_FEW_PIXELS + DVK_WGMMA_GATHERERS - 1) / DVK_WGMMA_GATHERERS };
    uint32_t raw[EACH][4]; /* as loaded; used only when the tile is next */
    int row[EACH], column[EACH];
    int64_t offset[EACH];
    int n;
    uint32_t real; /* bits: which of them are in the picture */

    __device__ __forceinline__ few_pixels(const dvk_conv_wgmma &p, int thread) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = thread + i * DVK_WGMMA_GATHERERS;
            row[i] = at < DVK_WGMMA_FEW_PIXELS ? at / DVK_WGMMA_FEW_PITCH : INT_MAX / 2;
            column[i] = at % DVK_WGMMA_FEW_PITCH;
            offset[i] = row[i] * p.from.sh + column[i] * p.from.sw;
        }
    }

    __device__ __forceinline__ void load(const dvk_conv_wgmma &p, const conv_tile &t, int thread) {
        const int y0 = t.y0 - p.pad_top, x0 = t.x0 - p.pad_left, in_h = t.n < p.n ? p.in_h : 0;
        const int64_t first = offset_of(p.from, t.n, y0, x0);
        n = t.n, real = 0;
        bool inside[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            inside[i] = (unsigned)(y0 + row[i]) < (unsigned)in_h && (unsigned)(x0 + column[i]) < (unsigned)p.in_w;
            real |= (uint32_t)inside[i] << i;
        }
        if (p.from.dtype == CONV_F32) {
            fetch((const uint32_t *)p.from.data + first, inside, p.c_in);
        } else {
            fetch((const uint16_t *)p.from.data + first, inside, p.c_in);
        }
    }

    template <class U> __device__ __forceinline__ void fetch(const U *from, const bool (&inside)[EACH], int c_in) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                raw[i][c] = inside[i] && c < c_in ? from[offset[i] + c] : 0;
            }
        }
    }

    __device__ __forceinline__ void convert(const dvk_conv_wgmma &p, float (&v)[EACH][4]) const {
        if (p.from.dtype == CONV_F32) {
#pragma unroll
            for (int i = 0; i < EACH * 4; i++) {
                v[i / 4][i % 4] = __uint_as_float(raw[i / 4][i % 4]);
            }
        } else if (p.from.dtype == CONV_F16) {
#pragma unroll
            for (int i = 0; i < EACH * 4; i++) {
                v[i / 4][i % 4] = wgmma_half::unpack(raw[i / 4][i % 4]).x;
            }
        } else {
#pragma unroll
            for (int i = 0; i < EACH * 4; i++) {
                v[i / 4][i % 4] = wgmma_bfloat::unpack(raw[i / 4][i % 4]).x;
            }
        }
    }

    __device__ __forceinline__ void prologue(const dvk_conv_wgmma &p, float (&v)[EACH][4]) const {
#pragma unroll 1
        for (int c = 0; c < p.c_in; c++) {
            const float scale = p.scale && n < p.n ? __ldg(p.scale + n * p.c_in + c) : 1.0f;
            const float shift = p.scale && n < p.n ? __ldg(p.shift + n * p.c_in + c) : 0.0f;
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    if (k == c && (real >> i & 1)) {
                        const float f = fmaf(v[i][k], scale, shift);
                        v[i][k] = p.pro_act == CONV_SILU     ? conv_act_fast<CONV_SILU>(f)
                                  : p.pro_act == CONV_RELU   ? conv_act_fast<CONV_RELU>(f)
                                  : p.pro_act == CONV_CLAMP3 ? conv_act_fast<CONV_CLAMP3>(f)
                                                             : f;
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void store(const dvk_conv_wgmma &p, uint32_t to, int thread) const {
        float v[EACH][4];
        convert(p, v);
        if (p.pro) {
            prologue(p, v);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = thread + i * DVK_WGMMA_GATHERERS;
            if (at < DVK_WGMMA_FEW_PIXELS) {
                asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to + at * 8), "r"(T::pack(v[i][0], v[i][1])),
                             "r"(T::pack(v[i][2], v[i][3]))
                             : "memory");
            }
        }
    }
};

/* Row `pixel` of the operand. */
CONV_DEVICE void few_row(const dvk_conv_wgmma &p, uint32_t slot, int pixel) {
    const uint32_t from =
        slot + DVK_WGMMA_FEW_OPERAND + (pixel / DVK_WGMMA_TILE_W * DVK_WGMMA_FEW_PITCH + pixel % DVK_WGMMA_TILE_W) * 8;
    const uint32_t to = slot + pixel * 128;
    uint32_t a[9], b[9], w[24] = {};
#pragma unroll
    for (int tap = 0; tap < 9; tap++) {
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                     : "=r"(a[tap]), "=r"(b[tap])
                     : "r"(from + (tap / 3 * DVK_WGMMA_FEW_PITCH + tap % 3) * 8)
                     : "memory");
    }
    if (p.few == 4) {
#pragma unroll
        for (int tap = 0; tap < 9; tap++) {
            w[2 * tap] = a[tap], w[2 * tap + 1] = b[tap];
        }
    } else { /* three halfwords of each, two taps at a time; a fourth is zero */
#pragma unroll
        for (int tap = 0; tap < 8; tap += 2) {
            w[tap / 2 * 3] = a[tap];
            w[tap / 2 * 3 + 1] = __byte_perm(b[tap], a[tap + 1], 0x5410);
            w[tap / 2 * 3 + 2] = __byte_perm(a[tap + 1], b[tap + 1], 0x5432);
        }
        w[12] = a[8], w[13] = b[8];
    }
#pragma unroll
    for (int i = 0; i < 6; i++) {
        if (i < 4 || p.few == 4) {
            shared_store(to | ((i ^ (pixel & 7)) * 16), make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]));
        }
    }
}

CONV_DEVICE void few_operand(const dvk_conv_wgmma &p, uint32_t slot, int thread) {
#pragma unroll
    for (int i = 0; i < DVK_WGMMA_TILE_W * DVK_WGMMA_TILE_H; i += DVK_WGMMA_GATHERERS) {
        few_row(p, slot, thread + i);
    }
}

#endif
