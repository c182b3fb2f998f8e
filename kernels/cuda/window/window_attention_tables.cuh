// window_attention_tables.cuh - tables of window_attention.cu in shared memory: biases, and the places of the tokens of
// a block's windows.
#pragma once

#include "kernels/cuda/window/window_attention.cuh"

namespace {

enum { ROWS = DVK_WINDOW_ROWS, KEYS = DVK_WINDOW_KEYS, MT = ROWS / 16 };

struct shared_tables {
    int64_t *pictures;          // of each window of the block
    int32_t *query_at, *key_at; // row and column of a token's pixel, 16 bits each; -1: a zero outside the picture
    int32_t *key_of_bias;       // subtracted from the index of a bias for each key
    uint8_t *key_side;
    float *bias;
};

// The block's head is fixed; it loops over the windows of all pictures, `units` at a time.
template <int WARPS, bool EVEN> struct window_tables {
    enum { THREADS = WARPS * 32 };
    const dvk_window_params &p;
    const dvk_window_geometry &g;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int head, unit, first_query, keys, pitch_bias;
    shared_tables t;
    int bias_at[MT][2], side[MT][2]; // of this thread's rows
    int cut;                         // sides of the cut that the mask separates

    __device__ __forceinline__ window_tables(const dvk_window_params &params, unsigned char *at)
        : p(params), g(params.g), head(blockIdx.x % g.heads), unit(warp / p.warps),
          first_query((blockIdx.y * WARPS + warp % p.warps) * ROWS), keys(g.kh * g.kw), pitch_bias(g.ww + g.kw - 1) {
        const int padded = p.steps * KEYS;
        t.bias = (float *)at;
        t.pictures = (int64_t *)(t.bias + (EVEN ? biases() * 4 : (biases() + 3) / 4 * 4));
        t.query_at = (int32_t *)(t.pictures + p.units);
        t.key_at = t.query_at + WARPS * ROWS;
        t.key_of_bias = t.key_at + padded * p.units;
        t.key_side = (uint8_t *)(t.key_of_bias + (EVEN ? 0 : padded));
    }

    __device__ __forceinline__ int biases() const {
        return (g.wh + g.kh - 1) * pitch_bias;
    }

    __device__ __forceinline__ float bias_of(int i) const {
        return p.bias != nullptr && i >= 0 && i < biases() ? p.bias[head * biases() + i] * p.over_scale : 0.0f;
    }

    // Even windows: the biases of two adjacent keys and of the query eight further, for each index
    __device__ __forceinline__ void fill_bias() {
        const int down = g.ww == 8 ? pitch_bias : 8;
        for (int i = threadIdx.x; i < biases(); i += THREADS) {
            if (EVEN) {
                ((float4 *)t.bias)[i] =
                    make_float4(bias_of(i), bias_of(i - 1), bias_of(i + down), bias_of(i + down - 1));
            } else {
                t.bias[i] = bias_of(i);
            }
        }
    }

    __device__ __forceinline__ void find_rows() {
        const int last = g.wh * g.ww - 1;
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int at = min(first_query + i / 2 * 16 + i % 2 * 8 + lane / 4, last), ty = at / g.ww,
                      tx = at - ty * g.ww;
            bias_at[i / 2][i % 2] = (ty + g.kh - 1) * pitch_bias + tx + g.kw - 1 - (EVEN ? (lane & 3) * 2 : 0);
            side[i / 2][i % 2] = query_side(g, ty, tx);
        }
    }

    __device__ __forceinline__ void find_keys() {
        for (int i = threadIdx.x; i < p.steps * KEYS; i += THREADS) {
            const int ty = i / g.kw, tx = i - ty * g.kw;
            t.key_side[i] = (uint8_t)key_side(g, ty, tx);
            if (!EVEN) {
                t.key_of_bias[i] = i < keys ? ty * pitch_bias + tx : 0;
            }
        }
    }

    // For the windows from `first` on
    __device__ __forceinline__ void find_places(int first) {
        const int rows = p.warps * ROWS, over_y = (g.kh - g.wh) / 2, over_x = (g.kw - g.ww) / 2;
        {
            const int i = threadIdx.x, u = i / rows; // one query per thread
            const int at = (int)blockIdx.y * THREADS + i % rows, ty = at / g.ww;
            const window w(g, min(first + u, g.windows - 1));
            t.query_at[i] = at < g.wh * g.ww && first + u < g.windows ? w.place(g, ty, at - ty * g.ww, 0, 0) : -1;
            if (i < p.units) {
                t.pictures[i] = window(g, min(first + i, g.windows - 1)).n;
            }
        }
        for (int u = 0; u < p.units; u++) {
            const window w(g, min(first + u, g.windows - 1));
            for (int i = threadIdx.x; i < p.steps * KEYS; i += THREADS) {
                const int ty = i / g.kw;
                t.key_at[u * p.steps * KEYS + i] = i < keys ? w.place(g, ty, i - ty * g.kw, over_y, over_x) : -1;
            }
        }
        cut = window(g, min(first + unit, g.windows - 1)).cut(g);
    }
};

} // namespace
