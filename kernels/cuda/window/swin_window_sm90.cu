// swin_window_sm90.cu - layer norm, queries, keys and values, attention in windows of 8 x 8, projection and residual,
// head by head. A warpgroup has a window. Queries, exponentials and weighted sums stay in registers between products.
// Keys and values go through shared memory, because all four warps read them.
#include "kernels/cuda/window/swin_wgmma.cuh"

using namespace swin;

namespace {

enum { WIDE = 3 * DIM, KEYS = 4096 /* bytes of a head's keys */ };

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <class T, class S> struct attend : pixels<T, S> {
    using pixels<T, S>::pixels;
    enum { C = S::C, DEPTHS = S::DEPTHS };
    using pixels<T, S>::p, pixels<T, S>::at, pixels<T, S>::lane, pixels<T, S>::warp, pixels<T, S>::group;

    __device__ __forceinline__ int pixel_of(int window, int token) const {
        const int column = window % p.across, rest = window / p.across, row = rest % p.down, n = rest / p.down;
        const int ty = token / SIDE, tx = token % SIDE;
        int y = row * SIDE + ty + p.shift_y, x = column * SIDE + tx + p.shift_x;
        y -= y >= p.h ? p.h : 0;
        x -= x >= p.w ? p.w : 0;
        if (p.grid) {
            y = ty * p.down + row;
            x = tx * p.across + column;
        }
        return (n * p.h + y) * p.w + x;
    }

    __device__ __forceinline__ void find_places(int window) const {
        if (lane < 16) {
            this->set_place(lane, window < p.tiles ? pixel_of(window, warp * 16 + lane) : -1);
        }
        __syncwarp();
    }

    // Whether the picture's end separates the window's queries and keys: 1 between rows, 2 between columns
    __device__ __forceinline__ int cut_of(int window) const {
        const int column = window % p.across, row = window / p.across % p.down;
        return (p.shift_y > 0 && row == p.down - 1) | (p.shift_x > 0 && column == p.across - 1) << 1;
    }

    __device__ __forceinline__ uint32_t keys() const {
        return at.keys + group * DVK_SWIN_KEYS;
    }

    __device__ __forceinline__ void meet() const {
        named_barrier(1 + group, 128);
    }

    __device__ __forceinline__ void project_in(const ring<S> &r, const uint32_t (&x)[DEPTHS][4],
                                               float (&qkv)[WIDE / 2]) const {
        const uint64_t b = wgmma_operand(at.stage(r.slot), 1024);
        r.wait(at);
        wgmma_fence();
#pragma unroll
        for (int d = 0; d < DEPTHS; d++) {
            product<T, WIDE>(qkv, x[d], b + d / 4 * (WIDE * 128 >> 4) + d % 4 * 2, d > 0);
        }
        wgmma_commit();
    }

    // Sixteen channels of sums with their biases as four matrices: pixels from i % 2 * 8 on, channels from i / 2 * 8 on
    __device__ __forceinline__ void packed(const float *sum, uint32_t bias, uint32_t (&m)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 b = get_pair(bias + (i / 2 * 8 + (lane & 3) * 2) * 4);
            const float *s = sum + i / 2 * 4 + i % 2 * 2;
            m[i] = T::pack(s[0] + b.x, s[1] + b.y);
        }
    }

    // Stores keys as rows of 64 bytes, values as columns: rows of 64 tokens
    __device__ __forceinline__ void share(const float (&qkv)[WIDE / 2], int head, uint32_t (&q)[2][4]) const {
        uint32_t bias = at.b_in + head * WIDE * 4;
        asm volatile("" : "+r"(bias));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t m[4];
            packed(qkv + i * 8, bias + i * 64, q[i]);
            packed(qkv + 16 + i * 8, bias + DIM * 4 + i * 64, m);
            const int row = warp * 16 + (lane & 15), octet = i * 2 + (lane >> 4);
            matrices_store(keys() + row * 64 + ((octet ^ (row >> 1)) & 3) * 16, m);
            packed(qkv + 32 + i * 8, bias + 2 * DIM * 4 + i * 64, m);
            const int c = i * 16 + (lane & 7) + (lane >> 4) * 8, tokens = warp * 2 + (lane >> 3 & 1);
            matrices_store_transposed(keys() + KEYS + c * 128 + ((tokens ^ c) & 7) * 16, m);
        }
    }

    __device__ __forceinline__ void score(uint32_t (&q)[2][4], float (&s)[32]) const {
        const uint64_t k = narrow_operand(keys());
        wgmma_fence();
        product<T, TOKENS>(s, q[0], k, 0);
        product<T, TOKENS>(s, q[1], k + 2, 1);
        wgmma_commit();
        wgmma_wait<0>();
        keep(q);
        wgmma_pin(s);
    }

    // Key n * 8 + tx is in row n. The bias of a pair of rows of queries depends only on the distance of the rows.
    __device__ __forceinline__ void add_positions(int head, int cut, float (&s)[32]) const {
        enum { ROW = 2 * SIDE - 1 };
        const int tx = lane / 4, key = (lane & 3) * 2;
        const uint32_t from =
            at.table + (head * DVK_SWIN_TABLE + (2 * warp + SIDE - 1) * ROW + tx - key + SIDE - 1) * 4;
        float2 bias[SIDE + 1]; // for keys n rows above the first of the queries, from -1 on
#pragma unroll
        for (int n = 0; n <= SIDE; n++) {
            bias[n] = make_float2(get_float(from + (1 - n) * ROW * 4), get_float(from + (1 - n) * ROW * 4 - 4));
        }
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const float2 &b = bias[i / 4 + 1 - i / 2 % 2];
            s[i] = fmaf(s[i], p.scale_log2, i % 2 ? b.y : b.x);
        }
        if (cut == 0) {
            return;
        }
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int differ = (((2 * warp + i / 2 % 2) >= SIDE - p.shift_y) != (i / 4 >= SIDE - p.shift_y)) |
                               ((tx >= SIDE - p.shift_x) != (key + i % 2 >= SIDE - p.shift_x)) << 1;
            s[i] += differ & cut ? -100.0f * 1.44269504f : 0.0f;
        }
    }

    // Returns the factors for the sums of both rows.
    __device__ __forceinline__ float2 exponentials(float (&s)[32]) const {
        float share[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = s[2 * h], sum = 0.0f;
#pragma unroll
            for (int i = 0; i < 16; i++) {
                top = fmaxf(top, s[i / 2 * 4 + 2 * h + i % 2]);
            }
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
#pragma unroll
            for (int i = 0; i < 16; i++) {
                float &e = s[i / 2 * 4 + 2 * h + i % 2];
                e = exp2_fast(e - top);
                sum += e;
            }
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            share[h] = 1.0f / sum;
        }
        return make_float2(share[0], share[1]);
    }

    __device__ __forceinline__ void add_values(const float (&s)[32], float (&o)[DIM / 2]) const {
        const uint64_t v = wgmma_operand(keys() + KEYS, 1024);
        uint32_t a[TOKENS / 16][4];
#pragma unroll
        for (int i = 0; i < TOKENS / 4; i++) {
            const float *e = s + i / 2 * 4 + i % 2 * 2;
            a[i / 4][i % 4] = T::pack(e[0], e[1]);
        }
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < TOKENS / 16; k++) {
            product<T, DIM>(o, a[k], v + k * 2, k > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        keep(a);
        wgmma_pin(o);
    }

    // `a` holds o until the products have ended.
    __device__ __forceinline__ void project_out(const ring<S> &r, const float (&o)[DIM / 2], float2 share, int head,
                                                uint32_t (&a)[DIM / 16][4], float (&sum)[C / 2]) const {
        const uint64_t b = narrow_operand(at.stage(r.slot) + DVK_SWIN_WINDOW_IN(C));
#pragma unroll
        for (int i = 0; i < DIM / 4; i++) {
            const float f = i % 2 ? share.y : share.x;
            a[i / 4][i % 4] = T::pack(o[i * 2] * f, o[i * 2 + 1] * f);
        }
        wgmma_fence();
#pragma unroll
        for (int d = 0; d < DIM / 16; d++) {
            product<T, C>(sum, a[d], b + d * 2, head + d > 0);
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void run() const {
        ring<S> r;
        for (turns<S> t; t.left(p); t.next()) {
            uint32_t x[DEPTHS][4], a[DIM / 16][4];
            float sum[C / 2];
            const int window = t.tile(group), cut = cut_of(window);
            find_places(window);
            this->load(x);
            this->bring_residual();
            for (int head = 0; head < p.stages; head++, r.next(at)) {
                float qkv[WIDE / 2], s[32], o[DIM / 2];
                uint32_t q[2][4];
                project_in(r, x, qkv);
                if (head > 0) { // the last product of the previous head
                    wgmma_wait<1>();
                    keep(a);
                    r.free_last(at);
                }
                wgmma_wait<0>();
                keep(x);
                wgmma_pin(qkv);
                meet(); // the previous keys and values are no longer in use
                share(qkv, head, q);
                fence_async();
                meet();
                score(q, s);
                add_positions(head, cut, s);
                const float2 part = exponentials(s);
                add_values(s, o);
                project_out(r, o, part, head, a, sum);
            }
            wgmma_wait<0>();
            keep(a);
            wgmma_pin(sum);
            r.free_last(at);
            this->store(sum);
        }
    }
};

// Loads the biases of the input in the order of the heads' weights, and positions in units of the exponent's logarithm
template <class S> __device__ __forceinline__ void load_tables(const dvk_swin_params &p, const layout<S> &at) {
    for (int i = threadIdx.x; i < p.stages * WIDE; i += S::THREADS) {
        const int d = i % DIM, from = i % WIDE / DIM * p.inner + i / WIDE * p.dim + d;
        put_float(at.b_in + i * 4, p.b_in != nullptr && d < p.dim ? p.b_in[from] : 0.0f);
    }
    for (int i = threadIdx.x; i < p.stages * DVK_SWIN_TABLE; i += S::THREADS) {
        put_float(at.table + i * 4, p.table != nullptr ? p.table[i] * 1.44269504f : 0.0f);
    }
}

template <class T, class S> __device__ __forceinline__ void attention(const dvk_swin_params &p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const layout<S> at(p, (uint32_t)__cvta_generic_to_shared(shared), true, p.stages * WIDE, p.stages);
    begin_barriers(at);
    load_factors(p, at);
    load_tables(p, at);
    __syncthreads();
    let_next_launch_begin();
    if (__shfl_sync(0xffffffffu, threadIdx.x / 128, 0) == S::GROUPS) {
        set_registers_down<S::FEW_REGISTERS>();
        if (threadIdx.x == S::GROUPS * 128) {
            bring(p, at, DVK_SWIN_WINDOW_IN(S::C));
        }
    } else {
        set_registers_up<S::MANY_REGISTERS>();
        wait_for_launch_before();
        const attend<T, S> a(p, at);
        a.run();
    }
}

} // namespace

#define WINDOW(CHANNELS, SIZE)                                                                                         \
    extern "C" __global__ void __launch_bounds__(SIZE::THREADS, 1)                                                     \
        swin_window_f16_##CHANNELS(const __grid_constant__ dvk_swin_params p) {                                        \
        attention<wgmma_half, SIZE>(p);                                                                                \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SIZE::THREADS, 1)                                                     \
        swin_window_bf16_##CHANNELS(const __grid_constant__ dvk_swin_params p) {                                       \
        attention<wgmma_bfloat, SIZE>(p);                                                                              \
    }

typedef size<64, 3, 160, true> small_size;
typedef size<192, 2, 240, false> large_size;

WINDOW(64, small_size)
WINDOW(192, large_size)
