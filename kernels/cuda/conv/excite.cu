// excite.cu - "excite": from the sums of a picture's channels to the scaled weights of the convolution that reads it.
// Every block computes the scales, which is little work. Each block then scales its share of the weights.
#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/conv/excite.h"

namespace {

enum { WARPS = DVK_EXCITE_BLOCK / 32 };

struct excite_tables {
    float parts[DVK_EXCITE_BLOCK];
    float mean[DVK_EXCITE_CHANNELS], hidden[DVK_EXCITE_HIDDEN], scale[DVK_EXCITE_CHANNELS];
    float w_in[DVK_EXCITE_WEIGHTS], w_out[DVK_EXCITE_WEIGHTS]; // of the layers, in their original layout
};

// As many threads as possible share a channel's rows, with several loads in flight.
__device__ __forceinline__ void means(const dvk_excite_params &p, excite_tables &s) {
    enum { AT_ONCE = 16 };
    const int across = DVK_EXCITE_BLOCK / p.c, c = threadIdx.x % p.c, mine = threadIdx.x / p.c;
    float sum = 0.0f;
    for (int first = mine; first < p.rows && mine < across; first += AT_ONCE * across) {
        float v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int row = first + i * across;
            v[i] = row < p.rows ? p.sums[row * p.c + c] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            sum += v[i];
        }
    }
    s.parts[threadIdx.x] = sum;
    __syncthreads();
    if (mine == 0) {
        for (int i = 1; i < across; i++) {
            sum += s.parts[i * p.c + c];
        }
        s.mean[c] = sum * p.inverse;
    }
    __syncthreads();
}

__device__ __forceinline__ void scales(const dvk_excite_params &p, excite_tables &s) {
    for (int k = threadIdx.x / 32; k < p.hidden; k += WARPS) {
        float sum = 0.0f;
        for (int c = threadIdx.x % 32; c < p.c; c += 32) {
            sum = fmaf(s.w_in[k * p.c + c], s.mean[c], sum);
        }
#pragma unroll
        for (int d = 16; d > 0; d /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, d);
        }
        s.hidden[k] = fmaxf(sum + (p.b_in ? p.b_in[k] : 0.0f), 0.0f);
    }
    __syncthreads();
    const int c = threadIdx.x;
    if (c < p.c) {
        float sum = p.b_out ? p.b_out[c] : 0.0f;
        for (int k = 0; k < p.hidden; k++) {
            sum = fmaf(s.w_out[c * p.hidden + k], s.hidden[k], sum);
        }
        s.scale[c] = act_sigmoid(sum);
        if (blockIdx.x == 0) {
            p.scale[c] = s.scale[c];
        }
    }
    __syncthreads();
}

template <int TYPE> __device__ __forceinline__ void excite(const dvk_excite_params &p) {
    __shared__ excite_tables s;
    const int step = gridDim.x * DVK_EXCITE_BLOCK, first = blockIdx.x * DVK_EXCITE_BLOCK + threadIdx.x;
    raw8 w = {}, at = {}; // of the first piece; like the layers' weights, they are loaded before the wait
    if (first < p.pieces) {
        w.a = ((const uint4 *)p.w)[first];
        at.a = ((const uint4 *)p.channel)[first];
    }
    for (int i = threadIdx.x; i < p.c * p.hidden; i += DVK_EXCITE_BLOCK) {
        s.w_in[i] = p.w_in[i];
        s.w_out[i] = p.w_out[i];
    }
    wait_for_launch_ahead();
    means(p, s);
    scales(p, s);
    for (int i = first; i < p.pieces; i += step) {
        if (i != first) {
            w.a = ((const uint4 *)p.w)[i];
            at.a = ((const uint4 *)p.channel)[i];
        }
        float v[8], channel[8];
        unpack<TYPE>(w, TYPE, v);
        unpack<TYPE>(at, TYPE, channel);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            v[k] *= s.scale[(int)channel[k]];
        }
        ((uint4 *)p.scaled)[i] = pack<TYPE>(v, TYPE).a;
    }
}

} // namespace

#define EXCITE(name, type)                                                                                             \
    extern "C" __global__ void __launch_bounds__(DVK_EXCITE_BLOCK) name(const __grid_constant__ dvk_excite_params p) { \
        excite<type>(p);                                                                                               \
    }

EXCITE(excite_f16, DVK_F16)
EXCITE(excite_bf16, DVK_BF16)
