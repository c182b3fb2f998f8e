// window_attention.cuh - coordinates of the tokens of a window.
#pragma once

#include "kernels/cuda/window/window_attention.h"

namespace {

struct window {
    int n, row, column;
    __device__ __forceinline__ window(const dvk_window_geometry &g, int i) {
        column = i % g.across;
        i /= g.across;
        row = i % g.down;
        n = i / g.down;
    }
    // Pixel of the token (ty, tx); the window of keys extends beyond that of queries by `over`.
    __device__ __forceinline__ int32_t place(const dvk_window_geometry &g, int ty, int tx, int over_y,
                                             int over_x) const {
        int y, x;
        if (g.grid) {
            y = ty * g.down + row;
            x = tx * g.across + column;
        } else {
            y = row * g.wh + ty - over_y + g.shift_y;
            x = column * g.ww + tx - over_x + g.shift_x;
            y -= g.shift_y > 0 && y >= g.down * g.wh ? g.down * g.wh : 0;
            x -= g.shift_x > 0 && x >= g.across * g.ww ? g.across * g.ww : 0;
        }
        return y >= 0 && y < g.h && x >= 0 && x < g.w ? y << 16 | x : -1;
    }
    // Whether the rolled picture's end cuts the window: 1 between its rows, 2 between its columns
    __device__ __forceinline__ int cut(const dvk_window_geometry &g) const {
        return (g.shift_y > 0 && row == g.down - 1) | (g.shift_x > 0 && column == g.across - 1) << 1;
    }
};

// The side of the cut of a key, and of a query
__device__ __forceinline__ int key_side(const dvk_window_geometry &g, int ty, int tx) {
    return (ty >= g.wh - g.shift_y) | (tx >= g.ww - g.shift_x) << 1;
}
__device__ __forceinline__ int query_side(const dvk_window_geometry &g, int ty, int tx) {
    return (ty >= g.wh - g.cut_y) | (tx >= g.ww - g.cut_x) << 1;
}

} // namespace
