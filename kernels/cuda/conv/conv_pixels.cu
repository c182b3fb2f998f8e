// conv_pixels.cu - 1x1 convolution from 64 to 64 channels, bias and residual, with independent warps: 32 pixels at a
// time go from memory to registers, through the product, and back. It is memory-bound, so the loads of all of a warp's
// pixels are in flight at once.
#include "kernels/cuda/conv/conv_pixels.h"
#include "kernels/cuda/pixels/pixel_mma.cuh"

#if __CUDA_ARCH__ >= 800

using namespace pixel;

namespace {

// The thread's four pixels, two rows of two products: 16 bytes of each 32 channels
struct quartet {
    uint4 v[2][2][2];

    __device__ __forceinline__ void load(const void *from, int64_t pitch, int first, int pixels) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int pixel = first + i * 8 + lane / 4;
            const uint16_t *at = (const uint16_t *)from + pixel * pitch + lane % 4 * 8;
            const bool there = from != nullptr && pixel < pixels;
            v[i / 2][i % 2][0] = there ? *(const uint4 *)at : uint4{};
            v[i / 2][i % 2][1] = there ? *(const uint4 *)(at + 32) : uint4{};
        }
    }
};

template <int TYPE>
__device__ __forceinline__ void convolve(const dvk_conv_pixels &p, const unsigned char *w, const float *bias,
                                         int first) {
    const int lane = threadIdx.x % 32, q = lane % 4, r = lane / 4;
    quartet x, res;
    uint32_t a[2][4][4];
    x.load(p.x, p.x_pitch, first, p.pixels);
    res.load(p.res, p.res_pitch, first, p.pixels);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        set_row(a[i / 4], i / 2 % 2, i % 2, x.v[i / 4][i / 2 % 2][i % 2]);
    }
#pragma unroll
    for (int u = 0; u < 2; u++) {
        float d[2][4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 b = *(const float2 *)(bias + u * 32 + q * 8 + i * 2);
            const float c[4] = {b.x, b.y, b.x, b.y};
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const uint4 m = *(const uint4 *)(w + place((u * 4 + i) * 8 + r, r & 1, k * 4 + q));
#pragma unroll
                for (int row = 0; row < 2; row++) {
                    if (k == 0) {
                        multiply<TYPE>(d[row][i], a[row][0], m.x, m.y, c);
                    } else {
                        multiply<TYPE>(d[row][i], a[row][2], m.x, m.y);
                    }
                    multiply<TYPE>(d[row][i], a[row][2 * k + 1], m.z, m.w);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int pixel = first + i * 8 + r;
            float v[8], add[8];
            unpack<TYPE>(raw8{res.v[i / 2][i % 2][u], {}}, TYPE, add);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                v[k] = d[i / 2][k / 2][i % 2 * 2 + k % 2] + add[k];
            }
            if (pixel < p.pixels) {
                *(uint4 *)((uint16_t *)p.y + pixel * p.y_pitch + u * 32 + q * 8) = pack<TYPE>(v, TYPE).a;
            }
        }
    }
}

template <int TYPE> __device__ __forceinline__ void convolve_all(const dvk_conv_pixels &p) {
    __shared__ __align__(16) unsigned char w[C * LINE];
    __shared__ __align__(16) float bias[C];
    enum { WARPS = DVK_CONV_PIXELS_BLOCK / 32, AT_ONCE = DVK_CONV_PIXELS_AT_ONCE };
    for (int i = threadIdx.x; i < C * LINE / 16; i += DVK_CONV_PIXELS_BLOCK) {
        ((uint4 *)w)[i] = ((const uint4 *)p.w)[i];
    }
    if (threadIdx.x < C) {
        bias[threadIdx.x] = p.bias != nullptr ? p.bias[threadIdx.x] : 0.0f;
    }
    __syncthreads();
    wait_for_launch_ahead();
    const int groups = (p.pixels + AT_ONCE - 1) / AT_ONCE;
    for (int i = blockIdx.x * WARPS + threadIdx.x / 32; i < groups; i += gridDim.x * WARPS) {
        convolve<TYPE>(p, w, bias, i * AT_ONCE);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(DVK_CONV_PIXELS_BLOCK, 2)
    conv_pixels_f16(const __grid_constant__ dvk_conv_pixels p) {
    convolve_all<DVK_F16>(p);
}

extern "C" __global__ void __launch_bounds__(DVK_CONV_PIXELS_BLOCK, 2)
    conv_pixels_bf16(const __grid_constant__ dvk_conv_pixels p) {
    convolve_all<DVK_BF16>(p);
}

#endif
