// channel_heads.cu - the first and the last launch of channel_attention.h for heads of 16 channels in large groups. A
// block has all heads of its pixels, whose channels are contiguous.
#include "kernels/cuda/window/channel_attention.h"
#include "kernels/cuda/window/channel_heads.cuh"

using namespace attention;

namespace {

enum { CHUNK = DVK_CHANNEL_HEADS_PIXELS };

// A block's chunk of a group's pixels
template <typename T> struct chunk : channel_heads<T> {
    const dvk_channel_params &p;
    const int channels, group, begin, end;
    int n, y, x;

    __device__ __forceinline__ chunk(const dvk_channel_params &params)
        : channel_heads<T>(params.heads), p(params), channels(params.heads * HEAD_DIM), group(blockIdx.x),
          begin(blockIdx.y * CHUNK), end(min(begin + (int)CHUNK, params.h * params.w)) {
        n = group / p.groups;
        y = group % p.groups / p.across * p.first_y;
        x = group % p.groups % p.across * p.first_x;
    }

    __device__ __forceinline__ int tile() const { // elements
        return HEAD_TOKENS * this->pitch;
    }

    // Calls f(view's element, shared memory, whether the pixel exists) for each eight channels of a tile
    template <typename F> __device__ __forceinline__ void each(const dvk_elem_view &v, int first, T *to, F f) const {
        const int pieces = channels / 8;
        for (int i = threadIdx.x; i < HEAD_TOKENS * pieces; i += blockDim.x) {
            const int token = i / pieces, c = (i - token * pieces) * 8, pixel = first + token, row = pixel / p.w;
            const bool there = pixel < end;
            const int64_t at = n * v.sn + (int64_t)(y + row * p.step_y) * v.sh +
                               (int64_t)(x + (pixel - row * p.w) * p.step_x) * v.sw + c;
            f((T *)v.data + (there ? at : 0), to + token * this->pitch + c, there);
        }
    }

    __device__ __forceinline__ void load(const dvk_elem_view &v, int first, T *to) const {
        each(v, first, to, [](const T *from, T *at, bool there) { copy16(shared_address(at), from, there); });
    }

    __device__ __forceinline__ int unit() const {
        return group * p.heads + this->head;
    }

    __device__ __forceinline__ void sum(T *tiles) const {
        float qk[2][4] = {}, qq[2][4] = {}, kk[2][4] = {};
        load(p.q, begin, tiles);
        load(p.k, begin, tiles + tile());
        commit_copies();
        for (int first = begin, i = 0; first < end; first += HEAD_TOKENS, i ^= 1) {
            T *now = tiles + i * 2 * tile(), *next = tiles + (i ^ 1) * 2 * tile();
            wait_copies<0>();
            __syncthreads();
            load(p.q, first + HEAD_TOKENS, next);
            load(p.k, first + HEAD_TOKENS, next + tile());
            commit_copies();
            this->add_products(now, now + tile(), qk, qq, kk);
        }
        wait_copies<0>();
        float *to = p.partial + ((int64_t)unit() * p.chunks + blockIdx.y) * (HEAD_DIM * (HEAD_DIM + 2));
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int d = this->lane / 4 + i % 4 / 2 * 8, e = i / 4 * 8 + (this->lane & 3) * 2 + i % 2;
            to[d * HEAD_DIM + e] = qk[i / 4][i % 4];
            if (d == e) {
                to[HEAD_DIM * HEAD_DIM + d] = qq[i / 4][i % 4];
                to[HEAD_DIM * (HEAD_DIM + 1) + d] = kk[i / 4][i % 4];
            }
        }
    }

    __device__ __forceinline__ void mix(T *tiles) const {
        const float *weights = p.weights + (int64_t)unit() * HEAD_DIM * HEAD_DIM; // [e][d]
        uint32_t w[2][2];
        load(p.v, begin, tiles);
        commit_copies();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *at = weights + (i % 2 * 8 + (this->lane & 3) * 2) * HEAD_DIM + i / 2 * 8 + this->lane / 4;
            w[i / 2][i % 2] = pack2(T(), at[0], at[HEAD_DIM]);
        }
        for (int first = begin, i = 0; first < end; first += HEAD_TOKENS, i ^= 1) {
            T *now = tiles + i * tile();
            wait_copies<0>();
            __syncthreads(); // also: the previous tile has been stored
            load(p.v, first + HEAD_TOKENS, tiles + (i ^ 1) * tile());
            commit_copies();
            this->apply(now, w, now);
            __syncthreads();
            each(p.y, first, now, [](T *to, const T *from, bool there) {
                if (there) {
                    *(uint4 *)to = *(const uint4 *)from;
                }
            });
        }
        wait_copies<0>();
    }
};

} // namespace

#define CHANNEL_HEADS(NAME, T, WORK)                                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * DVK_CHANNEL_HEADS)                                               \
        NAME(const __grid_constant__ dvk_channel_params p) {                                                           \
        extern __shared__ __align__(16) unsigned char shared[];                                                        \
        wait_for_launch_ahead();                                                                                       \
        const chunk<T> c(p);                                                                                           \
        c.WORK((T *)shared);                                                                                           \
    }

CHANNEL_HEADS(channel_sums_f16, __half, sum)
CHANNEL_HEADS(channel_sums_bf16, __nv_bfloat16, sum)
CHANNEL_HEADS(channel_mix_f16, __half, mix)
CHANNEL_HEADS(channel_mix_bf16, __nv_bfloat16, mix)
