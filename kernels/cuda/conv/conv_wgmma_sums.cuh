/* conv_wgmma_sums.cuh - parameters of a thread's two channels, and their sums over the pixels of a tile. */
#ifndef DVK_CUDA_CONV_WGMMA_SUMS_CUH
#define DVK_CUDA_CONV_WGMMA_SUMS_CUH

#include "kernels/cuda/conv/conv_wgmma_epilogue.cuh"

/* Bias and slope of a thread's two channels. */
struct conv_channels {
    float bias[2], slope[2];
    __device__ __forceinline__ conv_channels(const dvk_conv_epi &e, int c) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            bias[i] = bias_of(e, c + 8 * i);
            slope[i] = slope_of(e, c + 8 * i);
        }
    }
};

/* Count, mean and sum of squared differences of the values that a thread stores. They are sums of differences from a
 * value that all threads of a group share, the first stored value of the group. */
struct conv_sums {
    float pivot[2], s[2][2], q[2][2];
    int rows;        /* of the tile, inside the picture */
    bool columns[2]; /* 1 if this thread's columns are inside */

    __device__ __forceinline__ conv_sums(int high, int wide, int x) : rows(high) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            columns[i] = x + i < wide;
            s[i][0] = s[i][1] = q[i][0] = q[i][1] = 0;
        }
    }

    __device__ __forceinline__ void begin(float v, int i, int lane, int per) {
        pivot[i] = __shfl_sync(0xffffffffu, v, per < 8 ? lane / (4 * per) * (4 * per) : 0);
        if (per == 16 && i > 0) {
            pivot[1] = pivot[0];
        }
    }

    template <bool WHOLE> __device__ __forceinline__ void add_plain(float a, float b, int i, int row) {
        if (WHOLE || (row < rows && columns[0])) {
            s[i][0] += a;
        }
        if (WHOLE || (row < rows && columns[1])) {
            s[i][1] += b;
        }
    }

    template <bool WHOLE> __device__ __forceinline__ void add(const float2 &v, int i, int row) {
        const float d[2] = {v.x - pivot[i], v.y - pivot[i]};
#pragma unroll
        for (int k = 0; k < 2; k++) {
            if (WHOLE || (row < rows && columns[k])) {
                s[i][k] += d[k];
                q[i][k] = fmaf(d[k], d[k], q[i][k]);
            }
        }
    }
};

/* Statistics: none, of a tile inside of the picture, of any tile; only sums, of such tiles. */
enum { COUNT_NONE, COUNT_WHOLE, COUNT_EDGE, SUM_WHOLE, SUM_EDGE };

#endif
