// plain_depthwise.cu - 1x1 and depthwise 3x3 convolution of 64 channels, each followed by GELU, by warps that process
// strips downwards: "plain" in norm_depthwise.h. Without a norm, intermediate values may have any size: they stay f32.
#include "kernels/cuda/conv/strip.cuh"

#if __CUDA_ARCH__ >= 800

using namespace pixel;

namespace {

enum { TAPS = DVK_PLAIN_DEPTH_TAPS, PIECE = DVK_NORM_DEPTH_PIECE };

// For two channels of a thread of four: nine taps, then biases of the depthwise and of the 1x1 convolution
template <int TYPE>
__device__ __forceinline__ void load_weights(const dvk_norm_depthwise_params &p, unsigned char *w_in, float2 *taps) {
    for (int i = threadIdx.x; i < C * 8; i += blockDim.x) {
        const int row = i / 8, octet = i % 8;
        float v[8];
        channel_values(p.w_in + channel_of(row) * C, octet * 8, 8, v, 0.0f);
        *(uint4 *)(w_in + place(row, row & 1, octet)) = pack<TYPE>(v, TYPE).a;
    }
    for (int i = threadIdx.x; i < C / 2 * TAPS; i += blockDim.x) {
        const int of = i / TAPS, tap = i % TAPS, tile = of / 4, c = tile / 4 * 32 + of % 4 * 8 + tile % 4 * 2;
        const float *from = tap < 9 ? p.w_depth + tap * C : tap == 9 ? p.b_depth : tap == 10 ? p.b_in : nullptr;
        taps[i] = from != nullptr ? make_float2(from[c], from[c + 1]) : make_float2(0.0f, 0.0f);
    }
}

template <int TYPE> struct walker : strip<TYPE> {
    using strip<TYPE>::p, strip<TYPE>::a, strip<TYPE>::q, strip<TYPE>::r, strip<TYPE>::outside, strip<TYPE>::of_thread;
    using strip<TYPE>::waiting, strip<TYPE>::written, strip<TYPE>::pixel_of, strip<TYPE>::step_to;
    const unsigned char *w_in;
    const float2 *taps;
    unsigned char *sums; // of each tile of eight channels, for the next two rows of output
    unsigned char *done; // of each tile, the rows of output

    __device__ __forceinline__ walker(const dvk_norm_depthwise_params &params, unsigned char *warps,
                                      const unsigned char *in, const float2 *t)
        : strip<TYPE>(params, warps), w_in(in), taps(t), sums(this->stage + DVK_NORM_DEPTH_STAGE),
          done(sums + 2 * TILES * PIECE) {
    }

    // To 5e-4 if the result is rounded to bf16
    static __device__ __forceinline__ float gelu_of(float v) {
        if (TYPE == DVK_F16) {
            return act_gelu_short(v);
        }
        float t = v * fmaf(v * v, 0.0356774081f, 0.797884561f);
        asm("tanh.approx.f32 %0, %0;" : "+f"(t));
        return fmaf(0.5f * v, t, 0.5f * v);
    }

    // For two rows of two pixels, two channels each
    __device__ __forceinline__ void make_hidden(int tile, const float2 &bias, float2 (&h)[2][2]) const {
        float d[2][4];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            d[i / 4][i % 4] = i % 2 ? bias.y : bias.x;
        }
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const uint4 b = *(const uint4 *)(w_in + place(tile * 8 + r, r & 1, u * 4 + q));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                multiply<TYPE>(d[m], a[m][2 * u], b.x, b.y);
                multiply<TYPE>(d[m], a[m][2 * u + 1], b.z, b.w);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *v = d[i / 2] + i % 2 * 2;
            h[i / 2][i % 2] = make_float2(gelu_of(v[0]), gelu_of(v[1]));
        }
        if (outside != 0) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                h[i / 2][i % 2] = of_thread >> i & 1 ? make_float2(0.0f, 0.0f) : h[i / 2][i % 2];
            }
        }
    }

    // Adds a row of taps over a hidden row to the sums of two pixels.
    static __device__ __forceinline__ void add_row(const float2 (&row)[4], const float2 *w, float2 (&sum)[2]) {
#pragma unroll
        for (int i = 0; i < 6; i++) {
            const float2 &v = row[i % 2 + i / 2];
            sum[i % 2].x = fmaf(w[i / 2].x, v.x, sum[i % 2].x);
            sum[i % 2].y = fmaf(w[i / 2].y, v.y, sum[i % 2].y);
        }
    }

    __device__ __forceinline__ void convolve(int tile) const {
        float2 w[TAPS], h[2][2], row[2][4], out[2][2], later[2][2];
#pragma unroll
        for (int i = 0; i < TAPS / 2; i++) {
            ((float4 *)w)[i] = ((const float4 *)(taps + (tile * 4 + q) * TAPS))[i];
        }
        make_hidden(tile, w[10], h);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            row[m][0].x = __shfl_up_sync(0xffffffffu, h[m][1].x, 4);
            row[m][0].y = __shfl_up_sync(0xffffffffu, h[m][1].y, 4);
            row[m][1] = h[m][0], row[m][2] = h[m][1];
            row[m][3].x = __shfl_down_sync(0xffffffffu, h[m][0].x, 4);
            row[m][3].y = __shfl_down_sync(0xffffffffu, h[m][0].y, 4);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            *(uint4 *)out[i] = *waiting(sums, 2 * tile + i);
            later[i][0] = later[i][1] = w[9];
        }
        add_row(row[0], w + 6, out[0]);
        add_row(row[0], w + 3, out[1]);
        add_row(row[1], w + 6, out[1]);
        add_row(row[0], w, later[0]);
        add_row(row[1], w + 3, later[0]);
        add_row(row[1], w, later[1]);
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = pack2<TYPE>(gelu_of(out[i / 2][i % 2].x), gelu_of(out[i / 2][i % 2].y));
        }
        *waiting(done, tile) = make_uint4(v[0], v[1], v[2], v[3]);
        *waiting(sums, 2 * tile) = *(const uint4 *)later[0];
        *waiting(sums, 2 * tile + 1) = *(const uint4 *)later[1];
    }

    __device__ __forceinline__ void store(const place_of_pair &at) const {
        uint16_t *to = pixel_of(p.y, at);
        const uint32_t bits = written(at);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            const uint4 v[4] = {*waiting(done, 4 * u), *waiting(done, 4 * u + 1), *waiting(done, 4 * u + 2),
                                *waiting(done, 4 * u + 3)};
            const uint4 pixels[4] = {{v[0].x, v[1].x, v[2].x, v[3].x},
                                     {v[0].y, v[1].y, v[2].y, v[3].y},
                                     {v[0].z, v[1].z, v[2].z, v[3].z},
                                     {v[0].w, v[1].w, v[2].w, v[3].w}};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (bits >> i & 1) {
                    *(uint4 *)(to + step_to(p.y, i) + u * 32) = pixels[i];
                }
            }
        }
    }

    __device__ __forceinline__ void run() {
        this->walk([&](const place_of_pair &at, bool complete) {
#pragma unroll 1
            for (int tile = 0; tile < TILES; tile++) {
                convolve(tile);
            }
            if (complete) {
                store(at);
            }
        });
    }
};

template <int TYPE> __device__ __forceinline__ void mix(const dvk_norm_depthwise_params &p) {
    extern __shared__ __align__(16) unsigned char shared[];
    float2 *taps = (float2 *)(shared + C * LINE);
    load_weights<TYPE>(p, shared, taps);
    __syncthreads();
    wait_for_launch_ahead();
    walker<TYPE> w(p, (unsigned char *)(taps + C / 2 * TAPS), shared, taps);
    w.run();
}

} // namespace

extern "C" __global__ void __launch_bounds__(32 * DVK_NORM_DEPTH_WARPS, 1)
    plain_depthwise_f16(const __grid_constant__ dvk_norm_depthwise_params p) {
    mix<DVK_F16>(p);
}

extern "C" __global__ void __launch_bounds__(32 * DVK_NORM_DEPTH_WARPS, 1)
    plain_depthwise_bf16(const __grid_constant__ dvk_norm_depthwise_params p) {
    mix<DVK_BF16>(p);
}

#endif
