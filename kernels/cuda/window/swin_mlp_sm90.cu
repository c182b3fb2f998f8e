// swin_mlp_sm90.cu - layer norm, 1x1 convolution, GELU, 1x1 convolution and residual. It processes 64 hidden channels
// at a time, which stay in registers between the two products.
#include "kernels/cuda/window/swin_wgmma.cuh"

using namespace swin;

namespace {

// Normalised pixels stay in shared memory until the last stage.
template <class T, class S> struct mlp : pixels<T, S> {
    using pixels<T, S>::pixels;
    enum { C = S::C, DEPTHS = S::DEPTHS, HIDDEN = DVK_SWIN_HIDDEN };
    using pixels<T, S>::p, pixels<T, S>::at, pixels<T, S>::lane, pixels<T, S>::warp, pixels<T, S>::group;

    __device__ __forceinline__ void find_places(int tile) const {
        if (lane < 16) {
            const int pixel = tile * TOKENS + warp * 16 + lane;
            this->set_place(lane, pixel < p.pixels ? pixel : -1);
        }
        __syncwarp();
    }

    __device__ __forceinline__ void activate(int stage, const float (&h)[HIDDEN / 2],
                                             uint32_t (&a)[HIDDEN / 16][4]) const {
        uint32_t bias = at.b_in + (stage * HIDDEN + (lane & 3) * 2) * 4;
        asm volatile("" : "+r"(bias));
#pragma unroll
        for (int n = 0; n < HIDDEN / 8; n++) {
            const float2 b = get_pair(bias + n * 32);
            a[n / 2][n % 2 * 2] = T::pack(act_gelu_short(h[n * 4] + b.x), act_gelu_short(h[n * 4 + 1] + b.y));
            a[n / 2][n % 2 * 2 + 1] = T::pack(act_gelu_short(h[n * 4 + 2] + b.x), act_gelu_short(h[n * 4 + 3] + b.y));
        }
    }

    __device__ __forceinline__ void meet() const {
        named_barrier(1 + group, 128);
    }

    __device__ __forceinline__ void first(const ring<S> &r, float (&h)[HIDDEN / 2]) const {
        const uint64_t a = wgmma_operand(at.rows + group * S::ROWS, 1024), b = wgmma_operand(at.stage(r.slot), 1024);
        r.wait(at);
        wgmma_fence();
#pragma unroll
        for (int d = 0; d < DEPTHS; d++) {
            wgmma<T, HIDDEN>(h, a + d / 4 * (CHUNK >> 4) + d % 4 * 2, b + d / 4 * (HIDDEN * 128 >> 4) + d % 4 * 2,
                             d > 0);
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void second(const ring<S> &r, const uint32_t (&a)[HIDDEN / 16][4], int stage,
                                           float (&sum)[C / 2]) const {
        const uint64_t b = wgmma_operand(at.stage(r.slot) + DVK_SWIN_IN(HIDDEN, C), 1024);
        wgmma_fence();
#pragma unroll
        for (int d = 0; d < HIDDEN / 16; d++) {
            product<T, C>(sum, a[d], b + d * 2, stage + d > 0);
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void run() const {
        ring<S> r;
        for (turns<S> t; t.left(p); t.next()) {
            uint32_t a[HIDDEN / 16][4];
            float sum[C / 2], h[HIDDEN / 2];
            this->find_places(t.tile(group));
            this->load();
            fence_async();
            meet();
            for (int s = 0; s < p.stages; s++, r.next(at)) {
                first(r, h);
                if (s > 0) { // the second product of the previous stage
                    wgmma_wait<1>();
                    keep(a);
                    r.free_last(at);
                }
                wgmma_wait<0>();
                wgmma_pin(h);
                if (s + 1 == p.stages) {
                    meet(); // all warps have finished with the pixels
                    this->bring_residual();
                }
                this->activate(s, h, a);
                second(r, a, s, sum);
            }
            wgmma_wait<0>();
            keep(a);
            wgmma_pin(sum);
            r.free_last(at);
            this->store(sum);
        }
    }
};

template <class T, class S> __device__ __forceinline__ void mix(const dvk_swin_params &p) {
    enum { HIDDEN = DVK_SWIN_HIDDEN };
    extern __shared__ __align__(1024) unsigned char shared[];
    const layout<S> at(p, (uint32_t)__cvta_generic_to_shared(shared), false, p.stages * HIDDEN, 0);
    begin_barriers(at);
    load_factors(p, at);
    for (int i = threadIdx.x; i < p.stages * HIDDEN; i += S::THREADS) {
        put_float(at.b_in + i * 4, p.b_in != nullptr && i < p.inner ? p.b_in[i] : 0.0f);
    }
    __syncthreads();
    let_next_launch_begin();
    if (__shfl_sync(0xffffffffu, threadIdx.x / 128, 0) == S::GROUPS) {
        set_registers_down<S::FEW_REGISTERS>();
        if (threadIdx.x == S::GROUPS * 128) {
            bring(p, at, DVK_SWIN_IN(HIDDEN, S::C));
        }
    } else {
        set_registers_up<S::MANY_REGISTERS>();
        wait_for_launch_before();
        const mlp<T, S> m(p, at);
        m.run();
    }
}

} // namespace

#define MLP(CHANNELS, ...)                                                                                             \
    extern "C" __global__ void __launch_bounds__(size<CHANNELS, __VA_ARGS__>::THREADS, 1)                              \
        swin_mlp_f16_##CHANNELS(const __grid_constant__ dvk_swin_params p) {                                           \
        mix<wgmma_half, size<CHANNELS, __VA_ARGS__>>(p);                                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(size<CHANNELS, __VA_ARGS__>::THREADS, 1)                              \
        swin_mlp_bf16_##CHANNELS(const __grid_constant__ dvk_swin_params p) {                                          \
        mix<wgmma_bfloat, size<CHANNELS, __VA_ARGS__>>(p);                                                             \
    }

MLP(64, 3, 160, false)
MLP(192, 2, 240, false)
MLP(256, 2, 240, false)
