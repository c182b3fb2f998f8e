// pixel_norm.cu - layer norms of very many short rows of 16-bit values, the pixels of a picture. Eight lanes share a
// row, so that sums take three steps and serve four rows at a time. A lane has every eighth octet of channels.
#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/norm/pixel_norm.h"

namespace {

enum { WARPS = DVK_PIXEL_NORM_WARPS, LANES = DVK_PIXEL_NORM_LANES, ROWS = 32 / LANES };

__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
    for (int i = 1; i < LANES; i *= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, i);
    }
    return x;
}

template <int TYPE, int OCTETS> struct pixel_norm {
    const dvk_pixel_norm_params &p;
    const float4 *factors; // [gamma, beta][first, last four][octet], in shared memory
    const int lane = threadIdx.x % LANES;

    __device__ __forceinline__ int octet(int i) const {
        return i * LANES + lane;
    }
    __device__ __forceinline__ int count(int i) const {
        return min(p.dim - octet(i) * 8, 8);
    }

    __device__ __forceinline__ void scaled(int i, float mean, float scale, float (&v)[8]) const {
        enum { ALL = OCTETS * LANES };
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float4 gamma = factors[half * ALL + octet(i)], beta = factors[(2 + half) * ALL + octet(i)];
            float *u = v + half * 4;
            u[0] = fmaf((u[0] - mean) * scale, gamma.x, beta.x);
            u[1] = fmaf((u[1] - mean) * scale, gamma.y, beta.y);
            u[2] = fmaf((u[2] - mean) * scale, gamma.z, beta.z);
            u[3] = fmaf((u[3] - mean) * scale, gamma.w, beta.w);
        }
    }

    // Reads whole octets, including any padding behind the last channel.
    __device__ __forceinline__ void norm(int64_t row) const {
        const bool real = row < p.rows;
        const uint16_t *from = (const uint16_t *)p.x.data + row * p.x_row;
        raw8 raw[OCTETS];
#pragma unroll
        for (int i = 0; i < OCTETS; i++) {
            raw[i] = {};
            if (real && count(i) > 0) {
                raw[i].a = *(const uint4 *)(from + octet(i) * 8);
            }
        }
        const float over = 1.0f / (float)p.dim;
        float v[OCTETS][8], sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int i = 0; i < OCTETS; i++) {
            unpack<TYPE>(raw[i], TYPE, v[i]);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                v[i][k] = i + 1 < OCTETS || k < count(i) ? v[i][k] : 0.0f;
                sum += v[i][k];
            }
        }
        const float mean = row_sum(sum) * over;
#pragma unroll
        for (int i = 0; i < OCTETS * 8; i++) {
            const float t = i / 8 + 1 < OCTETS || i % 8 < count(i / 8) ? v[i / 8][i % 8] - mean : 0.0f;
            squares = fmaf(t, t, squares);
        }
        const float scale = 1.0f / sqrtf(row_sum(squares) * over + p.eps);
#pragma unroll
        for (int i = 0; i < OCTETS; i++) {
            scaled(i, mean, scale, v[i]);
            const int n = p.alone && count(i) > 0 ? 8 : count(i);
            if (real && n > 0) {
                put<TYPE>(p.y, row * p.y_row + octet(i) * 8, n, pack<TYPE>(v[i], TYPE));
            }
        }
    }

    __device__ __forceinline__ void run() const {
        const int64_t step = (int64_t)gridDim.x * WARPS * ROWS;
        const int64_t last = (p.rows + ROWS - 1) / ROWS * ROWS; // whole warps run every iteration
        for (int64_t row = (int64_t)blockIdx.x * WARPS * ROWS + threadIdx.x / LANES; row < last; row += step) {
            norm(row);
        }
    }
};

__device__ __forceinline__ void load_factors(const dvk_pixel_norm_params &p, int octets, float *to) {
    for (int i = threadIdx.x; i < octets * 16; i += WARPS * 32) {
        const int c = i % (octets * 8), at = ((c / 4 % 2) * octets + c / 8) * 4 + c % 4;
        const float *from = i < octets * 8 ? p.w : p.b;
        const float none = i < octets * 8 ? 1.0f : 0.0f;
        to[i / (octets * 8) * octets * 8 + at] = from != nullptr && c < p.dim ? from[c] : none;
    }
}

} // namespace

// Loads the factors before the preceding launch has ended.
#define PIXEL_NORM(NAME, TYPE, OCTETS)                                                                                 \
    extern "C" __global__ void __launch_bounds__(WARPS * 32)                                                           \
        NAME##_##OCTETS(const __grid_constant__ dvk_pixel_norm_params p) {                                             \
        __shared__ float4 factors[OCTETS * LANES * 4];                                                                 \
        load_factors(p, OCTETS *LANES, (float *)factors);                                                              \
        __syncthreads();                                                                                               \
        const pixel_norm<TYPE, OCTETS> n = {p, factors};                                                               \
        wait_for_launch_ahead();                                                                                       \
        n.run();                                                                                                       \
    }
#define PIXEL_NORMS(OCTETS)                                                                                            \
    PIXEL_NORM(pixel_norm_f16, DVK_F16, OCTETS)                                                                        \
    PIXEL_NORM(pixel_norm_bf16, DVK_BF16, OCTETS)

PIXEL_NORMS(1)
PIXEL_NORMS(2)
PIXEL_NORMS(3)
PIXEL_NORMS(4)
PIXEL_NORMS(5)
PIXEL_NORMS(6)
PIXEL_NORMS(7)
PIXEL_NORMS(8)
