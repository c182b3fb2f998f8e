// norm_depthwise.cu - layer norm, 1x1 convolution and depthwise 3x3. For a gated feed-forward layer it adds the product
// of the halves, another 1x1 convolution and the residual. Warps are independent. Each processes a strip of 14 pixels
// downwards, two rows at a time, and the results of one product stay in registers for the next.
//
// Of a row's hidden channels, only the sums of the next two rows of output are kept, in shared memory that only their
// thread reads. Loops over tiles of eight channels must be short, because each warp is at a different instruction.
// Hidden channels are kept in f16 for every storage type and summed over the window, two at a time. Behind a norm they
// are in its range, and nine terms lose less than bf16 does.
#include "kernels/cuda/conv/strip.cuh"

#if __CUDA_ARCH__ >= 800

using namespace pixel;

namespace {

enum { TAPS = DVK_NORM_DEPTH_TAPS };

// Weights, loaded once per block.
template <int TYPE> struct weights {
    const dvk_norm_depthwise_params &p;
    unsigned char *w_in, *w_out;
    uint32_t *taps; // [hidden / 2][TAPS]
    float *bias;    // of the hidden channels

    // The norm's gamma is folded into the matrix, its beta into the bias. The deviations from the mean sum to zero, so
    // a constant may be subtracted from a row of weights to make it sum to zero. An error common to all channels of a
    // pixel then has no effect. Four threads per row.
    __device__ __forceinline__ void load_in() const {
        for (int i = threadIdx.x; i < p.hidden * 4; i += blockDim.x) {
            const int row = i / 4, q = i % 4, channel = channel_of(row);
            float v[2][8], sum = 0.0f, shift = 0.0f;
#pragma unroll
            for (int u = 0; u < 2; u++) {
                float gamma[8], beta[8];
                channel_values(p.w_in + channel * C, u * 32 + q * 8, 8, v[u], 0.0f);
                channel_values(p.gamma, u * 32 + q * 8, 8, gamma, 1.0f);
                channel_values(p.beta, u * 32 + q * 8, 8, beta, 0.0f);
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    shift = fmaf(v[u][k], beta[k], shift);
                    v[u][k] *= gamma[k];
                    sum += v[u][k];
                }
            }
#pragma unroll
            for (int lane = 1; lane < 4; lane *= 2) {
                sum += __shfl_xor_sync(0xffffffffu, sum, lane);
                shift += __shfl_xor_sync(0xffffffffu, shift, lane);
            }
#pragma unroll
            for (int u = 0; u < 2; u++) {
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    v[u][k] -= sum * (1.0f / C);
                }
                *(uint4 *)(w_in + place(row, row & 1, u * 4 + q)) = pack<TYPE>(v[u], TYPE).a;
            }
            if (q == 0) {
                bias[channel] = shift + (p.b_in != nullptr ? p.b_in[channel] : 0.0f);
            }
        }
    }

    __device__ __forceinline__ void load_out() const {
        for (int i = threadIdx.x; i < C * 8; i += blockDim.x) {
            const int row = i / 8, piece = i % 8;
            float v[8];
            channel_values(p.w_out + channel_of(row) * C, piece * 8, 8, v, 0.0f);
            *(uint4 *)(w_out + place(row, row & 1, piece)) = pack<TYPE>(v, TYPE).a;
        }
    }

    // Hidden channels enter the depthwise sums without their bias; the bias of the sums includes it. Outside the
    // picture, where hidden channels with bias are zero, they are set to minus the bias.
    __device__ __forceinline__ void load_taps() const {
        for (int i = threadIdx.x; i < p.hidden / 2; i += blockDim.x) {
            const int tile = i / 4, c = tile / 4 * 32 + i % 4 * 8 + tile % 4 * 2;
            const float2 b = *(const float2 *)(bias + c);
            float2 sum = make_float2(0.0f, 0.0f);
            if (p.b_depth != nullptr) {
                sum = make_float2(p.b_depth[c], p.b_depth[c + 1]);
            }
            uint32_t *to = taps + i * TAPS;
#pragma unroll
            for (int tap = 0; tap < 9; tap++) {
                const float2 w = *(const float2 *)(p.w_depth + tap * p.hidden + c);
                sum.x = fmaf(b.x, w.x, sum.x);
                sum.y = fmaf(b.y, w.y, sum.y);
                to[tap] = pack2<DVK_F16>(w.x, w.y);
            }
            to[9] = pack2<DVK_F16>(sum.x, sum.y);
            to[10] = pack2<DVK_F16>(-b.x, -b.y);
            to[11] = 0;
        }
    }
};

// ACT: the activation before the product of the halves; -1: no such product.
template <int TYPE, int ACT> struct walker : strip<TYPE> {
    enum { GATED = ACT >= 0 };
    using strip<TYPE>::p, strip<TYPE>::a, strip<TYPE>::q, strip<TYPE>::r, strip<TYPE>::outside, strip<TYPE>::of_thread;
    using strip<TYPE>::waiting, strip<TYPE>::written, strip<TYPE>::pixel_of, strip<TYPE>::step_to;
    const unsigned char *w_in, *w_out;
    const uint32_t *taps;
    unsigned char *sums;  // of each tile of eight hidden channels, for the next two rows of output
    unsigned char *mixed; // rows of the second product
    float scale[2][2];    // of each pixel, one over its standard deviation

    __device__ __forceinline__ walker(const dvk_norm_depthwise_params &params, unsigned char *warps,
                                      const unsigned char *in, const unsigned char *out, const uint32_t *t)
        : strip<TYPE>(params, warps), w_in(in), w_out(out), taps(t), sums(this->stage + DVK_NORM_DEPTH_STAGE),
          mixed(sums + params.hidden / 8 * DVK_NORM_DEPTH_PIECE) {
    }

    // Rows of weights sum to zero, so the rounding error of the means has no effect.
    __device__ __forceinline__ void normalise() {
        float left[2];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            deviations<TYPE>(a[m], p.eps, scale[m], left);
        }
    }

    // ---- hidden channels ----

    // Hidden channels of a tile: two rows of two pixels
    __device__ __forceinline__ void make_hidden(int tile, __half2 (&h)[2][2]) const {
        float d[2][4] = {};
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
            const float s = scale[i / 2][i % 2], *v = d[i / 2] + i % 2 * 2;
            h[i / 2][i % 2] = __floats2half2_rn(v[0] * s, v[1] * s);
        }
    }

    // Adds a row of taps over a hidden row to the sums of two pixels.
    static __device__ __forceinline__ void add_row(const __half2 (&row)[4], const __half2 *w, __half2 (&sum)[2]) {
#pragma unroll
        for (int i = 0; i < 6; i++) {
            sum[i % 2] = __hfma2(w[i / 2], row[i % 2 + i / 2], sum[i % 2]);
        }
    }

    // The tile's two rows of output, and the contributions of its hidden rows to later ones.
    __device__ __forceinline__ void convolve(int tile, int of, __half2 (&out)[2][2]) const {
        __half2 h[2][2], row[2][4], later[2][2];
        uint4 *const kept = waiting(sums, tile);
        uint4 words[3];
#pragma unroll
        for (int i = 0; i < 3; i++) {
            words[i] = ((const uint4 *)(taps + (of * 4 + q) * TAPS))[i];
        }
        const __half2 *w = (const __half2 *)words; // in registers, because all indices are constants
        make_hidden(of, h);
        if (outside != 0) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                h[i / 2][i % 2] = of_thread >> i & 1 ? w[10] : h[i / 2][i % 2];
            }
        }
#pragma unroll
        for (int m = 0; m < 2; m++) {
            row[m][0] = __shfl_up_sync(0xffffffffu, h[m][1], 4);
            row[m][1] = h[m][0], row[m][2] = h[m][1];
            row[m][3] = __shfl_down_sync(0xffffffffu, h[m][0], 4);
        }
        *(uint4 *)out = *kept;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            later[i / 2][i % 2] = w[9];
        }
        add_row(row[0], w + 6, out[0]);
        add_row(row[0], w + 3, out[1]);
        add_row(row[1], w + 6, out[1]);
        add_row(row[0], w, later[0]);
        add_row(row[1], w + 3, later[0]);
        add_row(row[1], w, later[1]);
        *kept = *(const uint4 *)later;
    }

    // ---- results ----

    static __device__ __forceinline__ uint32_t stored(__half2 v) {
        if (TYPE == DVK_F16) {
            return *(const uint32_t *)&v;
        }
        const float2 f = __half22float2(v);
        return pack2<TYPE>(f.x, f.y);
    }

    // Stores the job's hidden channels, 32 at a time
    __device__ __forceinline__ void store_sums(const place_of_pair &at, bool complete) const {
        const int before = at.chunk * p.at_once;
        uint16_t *to = pixel_of(p.y, at) + before;
        const uint32_t bits = complete ? written(at) : 0;
#pragma unroll 1
        for (int c = 0; c < p.at_once; c += 32, to += 32) {
            uint32_t v[2][2][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                __half2 out[2][2];
                convolve(c / 8 + i, (before + c) / 8 + i, out);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    v[k / 2][k % 2][i] = stored(out[k / 2][k % 2]);
                }
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint32_t *w = v[k / 2][k % 2];
                if (bits >> k & 1) {
                    *(uint4 *)(to + step_to(p.y, k)) = make_uint4(w[0], w[1], w[2], w[3]);
                }
            }
        }
    }

    // GELU by its tanh form, to 5e-4: for results that are rounded to bf16
    static __device__ __forceinline__ __half2 gelu_of(__half2 v) {
        const __half2 half = __hmul2(v, __float2half2_rn(0.5f));
        __half2 t = __hmul2(v, __hfma2(__hmul2(v, v), __float2half2_rn(0.0356774081f), __float2half2_rn(0.797884561f)));
        asm("tanh.approx.f16x2 %0, %0;" : "+r"(*(uint32_t *)&t));
        return __hfma2(half, t, half);
    }

    // act(first) * second
    static __device__ __forceinline__ uint32_t gated(__half2 first, __half2 second) {
        const bool curved = ACT == DVK_ACT_GELU;
        float2 f = __half22float2(curved && TYPE == DVK_BF16 ? gelu_of(first) : first);
        const float2 s = __half22float2(second);
        if (curved && TYPE == DVK_F16) {
            f = make_float2(act_gelu_short(f.x), act_gelu_short(f.y));
        }
        return pack2<TYPE>(f.x * s.x, f.y * s.y);
    }

    __device__ __forceinline__ void make_mixed() const {
#pragma unroll 1
        for (int tile = 0; tile < TILES; tile++) {
            __half2 first[2][2], second[2][2];
            convolve(tile, tile, first);
            convolve(tile + TILES, tile + TILES, second);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                ((uint2 *)waiting(mixed, m * 4 + tile / 2))[tile % 2] =
                    make_uint2(gated(first[m][0], second[m][0]), gated(first[m][1], second[m][1]));
            }
        }
    }

    // 16 rows of the second product, 16 of its columns at a time
    __device__ __forceinline__ void load_mixed(int m, int k, uint32_t (&rows)[4]) const {
        const uint4 v = *waiting(mixed, m * 4 + k);
        rows[0] = v.x, rows[1] = v.y, rows[2] = v.z, rows[3] = v.w;
    }

    __device__ __forceinline__ void begin_out(int c, float (&d)[2][4][4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 bias = p.b_out != nullptr ? *(const float2 *)(p.b_out + c + i * 2) : make_float2(0.0f, 0.0f);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                d[k / 2][i][k % 2 * 2] = bias.x, d[k / 2][i][k % 2 * 2 + 1] = bias.y;
            }
        }
    }

    __device__ __forceinline__ void store_mixed(const place_of_pair &at) const {
        const uint16_t *from = pixel_of(p.res, at);
        uint16_t *to = pixel_of(p.y, at);
        const uint32_t bits = written(at), added = p.res.data != nullptr ? bits : 0;
#pragma unroll 1
        for (int u = 0; u < 2; u++, from += 32, to += 32) {
            uint4 res[4];
            float d[2][4][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                res[i] = added >> i & 1 ? *(const uint4 *)(from + step_to(p.res, i)) : uint4{};
            }
            begin_out(u * 32 + q * 8, d);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                uint32_t rows[2][2][4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    load_mixed(i / 2, k * 2 + i % 2, rows[i / 2][i % 2]);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const uint4 b = *(const uint4 *)(w_out + place((u * 4 + i) * 8 + r, r & 1, k * 4 + q));
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        multiply<TYPE>(d[m][i], rows[m][0], b.x, b.y);
                        multiply<TYPE>(d[m][i], rows[m][1], b.z, b.w);
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float v[8], add[8];
                unpack<TYPE>(raw8{res[i], {}}, TYPE, add);
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    v[k] = d[i / 2][k / 2][i % 2 * 2 + k % 2] + add[k];
                }
                if (bits >> i & 1) {
                    *(uint4 *)(to + step_to(p.y, i)) = pack<TYPE>(v, TYPE).a;
                }
            }
        }
    }

    __device__ __forceinline__ void run() {
        this->walk([&](const place_of_pair &at, bool complete) {
            normalise();
            if constexpr (GATED) {
                make_mixed();
                if (complete) {
                    store_mixed(at);
                }
            } else {
                store_sums(at, complete);
            }
        });
    }
};

template <int TYPE, int ACT> __device__ __forceinline__ void mix(const dvk_norm_depthwise_params &p) {
    extern __shared__ __align__(16) unsigned char shared[];
    unsigned char *w_in = shared, *w_out = w_in + p.hidden * LINE, *behind = w_out + (ACT >= 0 ? C * LINE : 0);
    uint32_t *taps = (uint32_t *)behind;
    float *bias = (float *)(taps + p.hidden / 2 * TAPS);
    const weights<TYPE> matrices = {p, w_in, w_out, taps, bias};
    matrices.load_in();
    if (ACT >= 0) {
        matrices.load_out();
    }
    __syncthreads();
    matrices.load_taps();
    __syncthreads();
    wait_for_launch_ahead();
    walker<TYPE, ACT> w(p, (unsigned char *)(bias + p.hidden), w_in, w_out, taps);
    w.run();
}

} // namespace

#define NORM_DEPTHWISE(name, type, act)                                                                                \
    extern "C" __global__ void __launch_bounds__(32 * DVK_NORM_DEPTH_WARPS, 1)                                         \
        name(const __grid_constant__ dvk_norm_depthwise_params p) {                                                    \
        mix<type, act>(p);                                                                                             \
    }

NORM_DEPTHWISE(norm_depthwise_f16, DVK_F16, -1)
NORM_DEPTHWISE(norm_depthwise_bf16, DVK_BF16, -1)
NORM_DEPTHWISE(norm_depthwise_product_f16, DVK_F16, DVK_ACT_NONE)
NORM_DEPTHWISE(norm_depthwise_product_bf16, DVK_BF16, DVK_ACT_NONE)
NORM_DEPTHWISE(norm_depthwise_gelu_f16, DVK_F16, DVK_ACT_GELU)
NORM_DEPTHWISE(norm_depthwise_gelu_bf16, DVK_BF16, DVK_ACT_GELU)

#endif
