// linear_simt.cu - "linear" of many rows in f32 for every type of W and x: 64 rows of x by 64 of W per block, 4 by 4
// per thread. With glu, rows of W of the two factors alternate by twos, so that a thread has both sums of a column.
#include "kernels/cuda/linear/linear_simt.h"

#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/linear/linear_many.cuh"
#include "kernels/cuda/linear/linear_scales.cuh"

namespace {

enum { TILE = DVK_LINEAR_SIMT_TILE, BK = DVK_LINEAR_SIMT_K, PITCH = TILE + 4 };

struct place {
    int row, column, first, last;
};

LINEAR_DEVICE int w_row_of(const dvk_linear_simt &p, const place &t, int r) {
    if (!p.out.glu) {
        return t.column + r;
    }
    const int column = t.column + (r >> 2) * 2 + (r & 1);
    return column >= p.out.n ? p.w_rows : r & 2 ? p.out.n + column : column;
}

// Loads four values of k, from a multiple of four on; zeros behind the last.
LINEAR_DEVICE void load_x(const dvk_linear_simt &p, int row, int k, float (&v)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = 0.0f;
        if (row < p.out.m && k + i < p.k) {
            if (p.x_form == DVK_ROWS_Q8) {
                const dvk_q8 *b = (const dvk_q8 *)p.x + row * p.x_row + (k + i) / DVK_Q8_ELEMENTS;
                v[i] = b->d * (float)b->q[(k + i) % DVK_Q8_ELEMENTS];
            } else {
                v[i] = linear_load(p.x, p.x_form, row * p.x_row + k + i);
            }
        }
    }
}

LINEAR_DEVICE void load_numbers(const dvk_linear_simt &p, int row, int k, float (&v)[4]) {
    const bool nibbles = dvk_lin_nibbles((lin_kind)p.kind);
    const int block = k / LIN_BLOCK, within = k % LIN_BLOCK;
    const unsigned char *from = p.w + row * p.w_row + block * (nibbles ? 16 : 32) + (nibbles ? within % 16 : within);
    const float2 scale = scales_of(p.kind, p.w + p.scales + (int64_t)row * p.scale_row, k / 16);
    const int shift = nibbles ? within / 16 * 4 : 0, mask = nibbles ? 15 : 255;
    const uint32_t raw = *(const uint32_t *)from;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int number = (int)(raw >> (8 * i + shift)) & mask;
        v[i] = k + i < p.k ? fmaf(scale.x, (float)(number - p.zero), scale.y) : 0.0f;
    }
}

LINEAR_DEVICE void load_w(const dvk_linear_simt &p, int row, int k, float (&v)[4]) {
    if (row >= p.w_rows || k >= p.k) {
        v[0] = v[1] = v[2] = v[3] = 0.0f;
    } else if (p.kind == LIN_F32) {
        const float4 f = *(const float4 *)(p.w + row * p.w_row + k * 4);
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    } else if (p.kind <= LIN_BF16) {
        const int form = p.kind == LIN_F16 ? DVK_F16 : DVK_BF16;
        const uint2 u = *(const uint2 *)(p.w + row * p.w_row + k * 2);
        const float2 a = linear_unpack(u.x, form), b = linear_unpack(u.y, form);
        v[0] = a.x, v[1] = a.y, v[2] = b.x, v[3] = b.y;
    } else {
        load_numbers(p, row, k, v);
    }
}

LINEAR_DEVICE void products(const float (&x)[BK][PITCH], const float (&w)[BK][PITCH], float (&sum)[4][4]) {
    const int r = threadIdx.x / 16 * 4, c = threadIdx.x % 16 * 4;
#pragma unroll
    for (int k = 0; k < BK; k++) {
        const float4 a = *(const float4 *)&x[k][r], b = *(const float4 *)&w[k][c];
        const float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum[i][j] = fmaf(av[i], bv[j], sum[i][j]);
            }
        }
    }
}

LINEAR_DEVICE void store_part(const dvk_linear_simt &p, int row, int column, float v) {
    if (row < p.out.m && column < p.w_rows) {
        p.parts[((int64_t)blockIdx.y * p.out.m + row) * p.w_rows + column] = v;
    }
}

LINEAR_DEVICE void store(const dvk_linear_simt &p, const place &t, const float (&sum)[4][4]) {
    const int row = t.row + threadIdx.x / 16 * 4, c = threadIdx.x % 16 * 4, pairs = p.out.glu ? 1 : 2;
    const int column = t.column + (p.out.glu ? c / 2 : c);
    linear_extras extras[4][2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (p.parts != nullptr) {
                store_part(p, row + i, w_row_of(p, t, c + j), sum[i][j]);
            }
        }
        extras[i][0] = linear_fetch(p.out, row + i, column);
        extras[i][1] = linear_fetch(p.out, row + i, column + 2);
    }
#pragma unroll
    for (int i = 0; i < 4 && p.parts == nullptr; i++) {
        linear_finish(p.out, row + i, column, make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]), extras[i][0]);
        if (pairs == 2) {
            linear_finish(p.out, row + i, column + 2, make_float4(sum[i][2], sum[i][3], 0, 0), extras[i][1]);
        }
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(DVK_LINEAR_SIMT_THREADS)
    linear_simt(const __grid_constant__ dvk_linear_simt p) {
    __shared__ __align__(16) float x[BK][PITCH], w[BK][PITCH];
    const int n_tile = blockIdx.x / p.m_tiles, share = blockIdx.y;
    const place t = {(int)(blockIdx.x - n_tile * p.m_tiles) * TILE, n_tile * (p.out.glu ? TILE / 2 : TILE),
                     (int)((int64_t)p.steps * share / p.shares), (int)((int64_t)p.steps * (share + 1) / p.shares)};
    const int mine = threadIdx.x / 4, piece = threadIdx.x % 4 * 4, w_row = w_row_of(p, t, mine);
    float sum[4][4] = {}, next_x[4], next_w[4];
    wait_for_launch_ahead();
    load_x(p, t.row + mine, t.first * BK + piece, next_x);
    load_w(p, w_row, t.first * BK + piece, next_w);
#pragma unroll 1
    for (int step = t.first; step < t.last; step++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[piece + i][mine] = next_x[i];
            w[piece + i][mine] = next_w[i];
        }
        __syncthreads();
        if (step + 1 < t.last) {
            load_x(p, t.row + mine, (step + 1) * BK + piece, next_x);
            load_w(p, w_row, (step + 1) * BK + piece, next_w);
        }
        products(x, w, sum);
        __syncthreads();
    }
    store(p, t, sum);
}
