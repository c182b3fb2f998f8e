// channel_window.cu - attention between the channels of a head inside small windows. A block has a window, a warp a
// head of 16 channels. The products q k^T over the window's pixels stay in registers until they become weights.
#include "kernels/cuda/window/channel_heads.cuh"
#include "kernels/cuda/window/channel_window.h"

using namespace attention;

namespace {

enum { TOKENS = HEAD_TOKENS, DIM = HEAD_DIM };

template <typename T> struct attend : channel_heads<T> {
    using channel_heads<T>::pitch, channel_heads<T>::lane, channel_heads<T>::head;
    const dvk_channel_window &p;
    T *tiles;
    const int channels;
    int n, y, x; // of the window

    __device__ __forceinline__ attend(const dvk_channel_window &params, T *shared)
        : channel_heads<T>(params.heads), p(params), tiles(shared), channels(params.heads * DIM) {
        const int window = blockIdx.x, row = window / p.across;
        n = row / p.down;
        y = (row - n * p.down) * p.wh;
        x = (window - row * p.across) * p.ww;
    }

    __device__ __forceinline__ T *tile(int i) const {
        return tiles + i * TOKENS * pitch;
    }

    // Calls f(view's element, shared memory, whether the pixel exists) for each eight channels
    template <typename F> __device__ __forceinline__ void each(const dvk_elem_view &v, T *to, F f) const {
        const int pieces = channels / 8;
        for (int i = threadIdx.x; i < TOKENS * pieces; i += blockDim.x) {
            const int token = i / pieces, c = (i - token * pieces) * 8, ty = token / p.ww;
            const bool there = token < p.wh * p.ww;
            const int64_t at = n * v.sn + (int64_t)(y + ty) * v.sh + (int64_t)(x + token - ty * p.ww) * v.sw + c;
            f((T *)v.data + (there ? at : 0), to + token * pitch + c, there);
        }
    }

    __device__ __forceinline__ void load() const {
        const auto copy = [](const T *from, T *to, bool there) { copy16(shared_address(to), from, there); };
        each(p.q, tile(0), copy);
        each(p.k, tile(1), copy);
        each(p.v, tile(2), copy);
        commit_copies();
        wait_copies<0>();
        __syncthreads();
    }

    __device__ __forceinline__ float over(float squares) const {
        return 1.0f / fmaxf(sqrtf(squares), p.eps);
    }

    // Products of channels over the pixels, divided by the norms of both
    __device__ __forceinline__ void scores(float (&s)[2][4]) const {
        float qq[2][4] = {}, kk[2][4] = {};
        this->add_products(tile(0), tile(1), s, qq, kk);
        const int d = lane / 4, of_d = (lane & ~3) | d / 2;
        const float q_low = over(__shfl_sync(0xffffffffu, d % 2 ? qq[0][1] : qq[0][0], of_d));
        const float q_high = over(__shfl_sync(0xffffffffu, d % 2 ? qq[1][3] : qq[1][2], of_d));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int of_e = ((lane & 3) * 2 + i) * 4 + (lane & 3);
            const float k_low = over(__shfl_sync(0xffffffffu, kk[0][i], of_e));
            const float k_high = over(__shfl_sync(0xffffffffu, kk[1][2 + i], of_e));
            s[0][i] *= q_low * k_low, s[0][2 + i] *= q_high * k_low;
            s[1][i] *= q_low * k_high, s[1][2 + i] *= q_high * k_high;
        }
    }

    // Softmax over e; padding channels of a head have no weight.
    __device__ __forceinline__ void weigh(float (&s)[2][4]) const {
        const float temperature = p.temperature[head];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = -INFINITY, sum = 0.0f;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int e = i / 2 * 8 + (lane & 3) * 2 + i % 2;
                float &v = s[i / 2][h * 2 + i % 2];
                v = e < p.dim ? v * temperature : -INFINITY;
                top = fmaxf(top, v);
            }
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &v = s[i / 2][h * 2 + i % 2];
                v = exp2_fast((v - top) * 1.44269504f);
                sum += v;
            }
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const float share = lane / 4 + h * 8 < p.dim ? 1.0f / sum : 0.0f;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[i / 2][h * 2 + i % 2] *= share;
            }
        }
    }

    // Overwrites the head's queries with the result
    __device__ __forceinline__ void add_values(const float (&s)[2][4]) const {
        uint32_t w[2][2];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            w[i / 2][i % 2] = pack2(T(), s[i % 2][i / 2 * 2], s[i % 2][i / 2 * 2 + 1]);
        }
        __syncwarp();
        this->apply(tile(2), w, tile(0));
        __syncthreads();
    }

    __device__ __forceinline__ void run() const {
        float s[2][4] = {};
        load();
        scores(s);
        weigh(s);
        add_values(s);
        each(p.y, tile(0), [](T *to, const T *from, bool there) {
            if (there) {
                *(uint4 *)to = *(const uint4 *)from;
            }
        });
    }
};

} // namespace

#define CHANNEL_WINDOW(NAME, T)                                                                                        \
    extern "C" __global__ void __launch_bounds__(32 * DVK_CHANNEL_WINDOW_HEADS)                                        \
        NAME(const __grid_constant__ dvk_channel_window p) {                                                           \
        extern __shared__ __align__(16) unsigned char shared[];                                                        \
        wait_for_launch_ahead();                                                                                       \
        const attend<T> a(p, (T *)shared);                                                                             \
        a.run();                                                                                                       \
    }

CHANNEL_WINDOW(channel_window_f16, __half)
CHANNEL_WINDOW(channel_window_bf16, __nv_bfloat16)
