// conv_linear_sm90.cu - 1x1 convolutions of many pixels on the tensor cores of Hopper. A block keeps the weights of
// WIDTH output channels in shared memory. It loops over tiles of 64 pixels, whose input channels arrive through a ring
// buffer: d[64 pixels][WIDTH] = x[64][k] * w[WIDTH][k]^T. Two warpgroups alternate: one multiplies while the other
// stores.
#include "kernels/cuda/conv/conv_linear_ring.cuh"

namespace {

enum { CONSUMER_REGISTERS = 208, HELPER_REGISTERS = 88 };

template <class T, int WIDTH> struct consumer {
    typedef layout<WIDTH> L;
    const dvk_conv_linear &p;
    const L at;
    const int group, warp = threadIdx.x / 32, lane = threadIdx.x & 31; // warp: of eight
    const int c0 = blockIdx.x % p.slices * WIDTH;

    __device__ __forceinline__ consumer(const dvk_conv_linear &params, const L &shared)
        : p(params), at(shared), group(threadIdx.x / 128) {
    }

    __device__ __forceinline__ void bring_residuals(int t) const {
        if (p.n_res == 0 || p.words || lane != 0) {
            return;
        }
        copy_out_read<0>();
        barrier_expect(at.residual(warp), 16 * WIDTH * 2);
        for (int i = 0; i < L::WHOLE; i++) {
            copy_in(at.piece(warp, i), &p.res, c0 + i * 64, t * ROWS + warp % 4 * 16, 0, 0, at.residual(warp));
        }
        if (L::LAST > 0) {
            copy_in(at.piece(warp, L::WHOLE), &p.res_last, c0 + L::WHOLE * 64, t * ROWS + warp % 4 * 16, 0, 0,
                    at.residual(warp));
        }
    }

    template <int K16>
    __device__ __forceinline__ void multiply(const ring &r, int chunk, float (&sum)[WIDTH / 2]) const {
        const uint64_t a = wgmma_operand(at.x + r.slot * SLOT, 1024);
        const uint64_t b = wgmma_operand(at.w + chunk * WIDTH * 128, 1024);
        barrier_wait(at.full(r.slot), r.parity);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < K16; k++) {
            wgmma<T, WIDTH>(sum, a + 2 * k, b + 2 * k, chunk + k > 0);
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void free_slot(int slot) const {
        if (lane == 0) {
            barrier_arrive(at.empty(slot));
        }
    }

    // Sums of a tile; advances the ring to its end. A warpgroup skips every other tile of the ring. It must not wait
    // for a slot before the other one has waited for that slot's previous filling.
    __device__ __forceinline__ void products(ring &r, int done, float (&sum)[WIDTH / 2]) const {
        int used = -1;
        if (group == 1 || done > 0) {
            barrier_wait(at.turn(group), (done - (group == 0)) & 1);
        }
        for (int chunk = 0; chunk + 1 < p.chunks; chunk++) {
            multiply<4>(r, chunk, sum);
            wgmma_wait<1>();
            if (used >= 0) {
                free_slot(used);
            }
            used = r.slot;
            r.advance(p.slots);
        }
        const int last = p.chunks - 1;
        if (p.last_k16 == 4) {
            multiply<4>(r, last, sum);
        } else if (p.last_k16 == 3) {
            multiply<3>(r, last, sum);
        } else if (p.last_k16 == 2) {
            multiply<2>(r, last, sum);
        } else {
            multiply<1>(r, last, sum);
        }
        if (threadIdx.x % 128 == 0) {
            barrier_arrive(at.turn(1 - group));
        }
        wgmma_wait<0>();
        wgmma_pin(sum);
        if (used >= 0) {
            free_slot(used);
        }
        free_slot(r.slot);
        r.advance(p.slots);
    }

    // Biases of two channels. The asm is not volatile, so the compiler may interleave the load with other instructions.
    // The caller hides `at` from it until the sums are complete.
    static __device__ __forceinline__ float2 biases(uint32_t at) {
        float2 x;
        asm("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at));
        return x;
    }

    template <int ACT> __device__ __forceinline__ float activated(float x) const {
        if (ACT == CONV_GELU) {
            return act_gelu_short(x);
        }
        if (ACT == CONV_SILU) {
            return conv_act_fast<CONV_SILU>(x);
        }
        return ACT == CONV_LRELU && x < 0.0f ? p.slope * x : x;
    }

    // Eight channels of one of the warp's pixels
    __device__ __forceinline__ uint32_t octet_at(int row, int octet) const {
        if (octet < L::WHOLE * 8) {
            return at.piece(warp, octet / 8) + row * 128 + (((octet & 7) ^ (row & 7)) * 16);
        }
        const int turned = L::LAST == 32 ? row >> 1 & 3 : L::LAST == 16 ? row >> 2 & 1 : 0;
        return at.piece(warp, L::WHOLE) + row * L::LAST * 2 + ((octet - L::WHOLE * 8) ^ turned) * 16;
    }

    // Address of this lane's row of four matrices: sixteen pixels of sixteen channels, from channel c of the slice on
    __device__ __forceinline__ uint32_t rows_at(int c) const {
        return octet_at(lane & 15, c / 8 + (lane >> 4));
    }

    // Stores pixels whose last piece is shared with another tensor.
    __device__ __forceinline__ void store_pieces(int t) const {
        const int pieces = (min(WIDTH, p.c_out - c0) + 7) / 8;
        for (int i = lane; i < 16 * pieces; i += 32) {
            const int row = i / pieces, octet = i - row * pieces, count = min(8, p.c_out - c0 - octet * 8);
            const int64_t pixel = (int64_t)t * ROWS + warp % 4 * 16 + row;
            uint4 u;
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(u.x), "=r"(u.y), "=r"(u.z), "=r"(u.w)
                         : "r"(octet_at(row, octet)));
            if (pixel >= p.pixels) {
                continue;
            }
            uint16_t *to = (uint16_t *)p.data + pixel * p.pitch + c0 + octet * 8;
            if (count == 8) {
                *(uint4 *)to = u;
                continue;
            }
            const uint32_t words[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (2 * k < count) {
                    *(uint32_t *)(to + 2 * k) = words[k];
                }
            }
        }
        fence_async(); // the next load overwrites this buffer
        __syncwarp();
    }

    template <int ACT, bool RES> __device__ __forceinline__ void write(const float (&sum)[WIDTH / 2]) const {
        uint32_t bias = at.bias, next[4] = {};
        asm volatile("" : "+r"(bias));
        if (RES) {
            matrices_load(rows_at(0), next);
        }
#pragma unroll
        for (int n = 0; n < WIDTH / 16; n++) {
            uint32_t m[4];
            const uint32_t r[4] = {next[0], next[1], next[2], next[3]};
            if (RES && n + 1 < WIDTH / 16) {
                matrices_load(rows_at(n * 16 + 16), next);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) { // pixels from i % 2 * 8 on, channels from i / 2 * 8 on
                const float2 b = biases(bias + (n * 16 + i / 2 * 8 + (lane & 3) * 2) * 4);
                const float *s = sum + n * 8 + i / 2 * 4 + i % 2 * 2;
                float2 v = {activated<ACT>(s[0] + b.x), activated<ACT>(s[1] + b.y)};
                if (RES) {
                    const float2 f = T::unpack(r[i]);
                    v.x = fmaf(p.times, f.x, v.x * p.alpha), v.y = fmaf(p.times, f.y, v.y * p.alpha);
                }
                m[i] = T::pack(v.x, v.y);
            }
            matrices_store(rows_at(n * 16), m);
        }
    }

    // Writes two channels at a time to the output buffer
    template <int ACT, bool RES>
    __device__ __forceinline__ void write_words(int t, const float (&sum)[WIDTH / 2]) const {
        const int64_t first = (int64_t)t * ROWS + warp % 4 * 16 + lane / 4;
        uint32_t bias = at.bias;
        asm volatile("" : "+r"(bias));
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
            const int c = n * 8 + (lane & 3) * 2;
            const float2 b = biases(bias + c * 4);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float *s = sum + n * 4 + h * 2;
                const int64_t pixel = first + h * 8;
                if (pixel < p.pixels && c0 + c < p.c_out) {
                    float2 v = {activated<ACT>(s[0] + b.x) * p.alpha, activated<ACT>(s[1] + b.y) * p.alpha};
                    if (RES) {
                        const float2 r =
                            T::unpack(*(const uint32_t *)((const uint16_t *)p.res_data + pixel * p.res_pitch + c0 + c));
                        v.x = fmaf(p.times, r.x, v.x), v.y = fmaf(p.times, r.y, v.y);
                    }
                    *(uint32_t *)((uint16_t *)p.data + pixel * p.pitch + c0 + c) = T::pack(v.x, v.y);
                }
            }
        }
    }

    __device__ __forceinline__ void store_words(int t, const float (&sum)[WIDTH / 2]) const {
        if (p.act == CONV_LRELU) {
            write_words<CONV_LRELU, false>(t, sum);
        } else if (p.n_res > 0) {
            write_words<0, true>(t, sum);
        } else {
            write_words<0, false>(t, sum);
        }
    }

    __device__ __forceinline__ void store(int t, int done, const float (&sum)[WIDTH / 2]) const {
        if (p.n_res > 0) {
            barrier_wait(at.residual(warp), done & 1);
        } else {
            if (lane == 0) {
                copy_out_read<0>();
            }
            __syncwarp();
        }
        switch (p.act) {
        case CONV_GELU:
            write<CONV_GELU, false>(sum);
            break;
        case CONV_SILU:
            write<CONV_SILU, false>(sum);
            break;
        case CONV_LRELU:
            write<CONV_LRELU, false>(sum);
            break;
        default:
            if (p.n_res > 0) {
                write<0, true>(sum);
            } else {
                write<0, false>(sum);
            }
        }
        if (p.data != nullptr) {
            __syncwarp();
            store_pieces(t);
            return;
        }
        fence_async();
        __syncwarp();
        if (lane == 0) {
            const int row = t * ROWS + warp % 4 * 16;
            for (int i = 0; i < L::WHOLE; i++) {
                copy_out(&p.y, c0 + i * 64, row, 0, 0, at.piece(warp, i));
            }
            if (L::LAST > 0) {
                copy_out(&p.y_last, c0 + L::WHOLE * 64, row, 0, 0, at.piece(warp, L::WHOLE));
            }
        }
    }

    __device__ __forceinline__ void run() const {
        ring r;
        int done = 0;
        wait_for_launch_before();
        barrier_wait(at.weights(), 0);
        r.advance(p.slots, group * p.chunks);
        for (int t = first_tile(p) + group * tile_step(p); t < p.tiles; t += 2 * tile_step(p)) {
            float sum[WIDTH / 2];
            bring_residuals(t);
            products(r, done, sum);
            if (p.words) {
                store_words(t, sum);
            } else {
                store(t, done, sum);
            }
            done++;
            r.advance(p.slots, p.chunks);
        }
        if (lane == 0) {
            copy_out_done();
        }
    }
};

template <int WIDTH> __device__ __forceinline__ void load_biases(const dvk_conv_linear &p, const layout<WIDTH> &at) {
    const int c0 = blockIdx.x % p.slices * WIDTH;
    for (int i = threadIdx.x; i < WIDTH; i += DVK_LINEAR1_THREADS) {
        const float b = p.bias != nullptr && c0 + i < p.c_out ? p.bias[c0 + i] : 0.0f;
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(at.bias + i * 4), "f"(b) : "memory");
    }
}

template <class T, int WIDTH> __device__ __forceinline__ void convolve(const dvk_conv_linear &p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const layout<WIDTH> at(p, (uint32_t)__cvta_generic_to_shared(shared));
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < p.slots; i++) {
            barrier_init(at.full(i), 1);
            barrier_init(at.empty(i), 4);
        }
        for (int i = 0; i < 8; i++) {
            barrier_init(at.residual(i), 1);
        }
        barrier_init(at.weights(), 1);
        for (int i = 0; i < 2; i++) {
            barrier_init(at.turn(i), 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        map_prefetch(&p.x);
    }
    load_biases(p, at);
    __syncthreads();
    let_next_launch_begin();
    if (group == 2) {
        set_registers_down<HELPER_REGISTERS>();
        if (threadIdx.x == 256) {
            bring(p, at);
        }
    } else {
        set_registers_up<CONSUMER_REGISTERS>();
        const consumer<T, WIDTH> c(p, at);
        c.run();
    }
}

} // namespace

#define LINEAR(WIDTH)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(DVK_LINEAR1_THREADS, 1)                                               \
        conv_linear_f16_##WIDTH(const __grid_constant__ dvk_conv_linear p) {                                           \
        convolve<wgmma_half, WIDTH>(p);                                                                                \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(DVK_LINEAR1_THREADS, 1)                                               \
        conv_linear_bf16_##WIDTH(const __grid_constant__ dvk_conv_linear p) {                                          \
        convolve<wgmma_bfloat, WIDTH>(p);                                                                              \
    }

LINEAR(32)
LINEAR(64)
LINEAR(96)
LINEAR(128)
LINEAR(144)
LINEAR(192)
LINEAR(256)
