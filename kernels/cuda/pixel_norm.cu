// pixel_norm.cu - layer norms of very many short rows of 16-bit values, the pixels of a picture: a lane has eight channels,
// or twice eight, of four rows at a time, and their factors for good.
#include "kernels/cuda/elem.cuh"
#include "kernels/cuda/pixel_norm.h"

namespace {

enum { WARPS = DVK_PIXEL_NORM_WARPS, ROWS = DVK_PIXEL_NORM_ROWS };

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, i);
    }
    return x;
}

template <int TYPE, int OCTETS> struct pixel_norm {
    const dvk_pixel_norm_params &p;
    const int lane = threadIdx.x % 32;
    float gamma[OCTETS][8], beta[OCTETS][8];

    __device__ __forceinline__ pixel_norm(const dvk_pixel_norm_params &params) : p(params) {
#pragma unroll
        for (int i = 0; i < OCTETS * 8; i++) {
            const int c = channel(i / 8) + i % 8;
            gamma[i / 8][i % 8] = p.w != nullptr && c < p.dim ? p.w[c] : 1.0f;
            beta[i / 8][i % 8] = p.b != nullptr && c < p.dim ? p.b[c] : 0.0f;
        }
    }

    __device__ __forceinline__ int channel(int octet) const {
        return (octet * 32 + lane) * 8;
    }
    __device__ __forceinline__ int count(int octet) const {
        return min(max(p.dim - channel(octet), 0), 8);
    }

    __device__ __forceinline__ void rows(int64_t first) const {
        raw8 raw[ROWS][OCTETS];
#pragma unroll
        for (int i = 0; i < ROWS * OCTETS; i++) {
            const int64_t row = first + i / OCTETS;
            raw[i / OCTETS][i % OCTETS] =
                fetch<TYPE>(p.x, row * p.x_row + channel(i % OCTETS), row < p.rows ? count(i % OCTETS) : 0);
        }
        const float over = 1.0f / (float)p.dim;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float v[OCTETS][8], sum = 0.0f, squares = 0.0f;
#pragma unroll
            for (int i = 0; i < OCTETS; i++) {
                unpack<TYPE>(raw[r][i], TYPE, v[i]); // zeros behind the last
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    sum += v[i][k];
                }
            }
            const float mean = warp_sum(sum) * over;
#pragma unroll
            for (int i = 0; i < OCTETS * 8; i++) {
                const float t = i % 8 < count(i / 8) ? v[i / 8][i % 8] - mean : 0.0f;
                squares = fmaf(t, t, squares);
            }
            const float scale = 1.0f / sqrtf(warp_sum(squares) * over + p.eps);
#pragma unroll
            for (int i = 0; i < OCTETS; i++) {
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    v[i][k] = fmaf((v[i][k] - mean) * scale, gamma[i][k], beta[i][k]);
                }
                if (first + r < p.rows) {
                    put<TYPE>(p.y, (first + r) * p.y_row + channel(i), count(i), pack<TYPE>(v[i], TYPE));
                }
            }
        }
    }

    __device__ __forceinline__ void run() const {
        const int64_t step = (int64_t)gridDim.x * WARPS * ROWS;
        for (int64_t first = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * ROWS; first < p.rows; first += step) {
            rows(first);
        }
    }
};

} // namespace

// The factors are there before the launch ahead has ended.
#define PIXEL_NORM(NAME, TYPE, OCTETS)                                                                                 \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) NAME(const __grid_constant__ dvk_pixel_norm_params p) {   \
        const pixel_norm<TYPE, OCTETS> n(p);                                                                           \
        wait_for_launch_ahead();                                                                                       \
        n.run();                                                                                                       \
    }

PIXEL_NORM(pixel_norm_f16_1, DVK_F16, 1)
PIXEL_NORM(pixel_norm_f16_2, DVK_F16, 2)
PIXEL_NORM(pixel_norm_bf16_1, DVK_BF16, 1)
PIXEL_NORM(pixel_norm_bf16_2, DVK_BF16, 2)
