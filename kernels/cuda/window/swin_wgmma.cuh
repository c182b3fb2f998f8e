// swin_wgmma.cuh - shared code of both halves of a transformer block on Hopper. A warpgroup normalises and processes 64
// pixels. Weights arrive stage by stage through a ring buffer. The sums of all output channels stay in registers until
// the residual is added. sm_90a only.
#pragma once

#include "kernels/cuda/window/swin.h"
#include "kernels/cuda/window/swin_wgmma_ptx.cuh"

namespace swin {

enum {
    TOKENS = DVK_SWIN_TOKENS,
    CHUNK = TOKENS * 128, // bytes of 64 channels of a warpgroup's pixels
    SIDE = DVK_SWIN_WINDOW,
    DIM = DVK_SWIN_DIM
};

// CHANNELS: padded channels. TEAMS: consumer warpgroups, with REGISTERS registers per thread. KEPT: all stages stay in
// shared memory.
template <int CHANNELS, int TEAMS, int REGISTERS, bool KEPT> struct size {
    enum {
        C = CHANNELS,
        GROUPS = TEAMS,
        DEPTHS = C / 16,
        OCTETS = C / 64, // of a lane
        ROWS = DVK_SWIN_ROWS(C),
        STAGE = DVK_SWIN_STAGE(C),
        THREADS = DVK_SWIN_THREADS(TEAMS),
        MANY_REGISTERS = REGISTERS,
        FEW_REGISTERS = 24,
        STAYS = KEPT
    };
};

template <class S> struct layout { // shared memory addresses
    int slots;
    uint32_t ring, rows, keys, factors, b_in, table, places, barriers;
    __device__ __forceinline__ layout(const dvk_swin_params &p, uint32_t base, bool windows, int b_in_count,
                                      int tables) {
        slots = p.slots;
        ring = base;
        rows = ring + slots * S::STAGE;
        keys = rows + S::GROUPS * S::ROWS;
        factors = keys + (windows ? S::GROUPS * DVK_SWIN_KEYS : 0);
        b_in = factors + 3 * S::C * 4;
        table = b_in + b_in_count * 4;
        places = table + (tables * DVK_SWIN_TABLE + 1) / 2 * 8;
        barriers = places + S::GROUPS * TOKENS * 4;
    }
    __device__ __forceinline__ uint32_t stage(int slot) const {
        return ring + slot * S::STAGE;
    }
    __device__ __forceinline__ uint32_t full(int i) const {
        return barriers + 8 * i;
    }
    __device__ __forceinline__ uint32_t empty(int i) const {
        return barriers + 8 * (slots + i);
    }
};

__device__ __forceinline__ void put_float(uint32_t at, float v) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}

__device__ __forceinline__ float get_float(uint32_t at) {
    float v;
    asm("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
    return v;
}

__device__ __forceinline__ float2 get_pair(uint32_t at) {
    float2 v;
    asm("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
    return v;
}

template <class S> __device__ __forceinline__ void load_factors(const dvk_swin_params &p, const layout<S> &at) {
    enum { C = S::C };
    for (int i = threadIdx.x; i < C; i += S::THREADS) {
        const bool real = i < p.c;
        put_float(at.factors + i * 4, !real ? 0.0f : p.gamma != nullptr ? p.gamma[i] : 1.0f);
        put_float(at.factors + (C + i) * 4, real && p.beta != nullptr ? p.beta[i] : 0.0f);
        put_float(at.factors + (2 * C + i) * 4, real && p.b_out != nullptr ? p.b_out[i] : 0.0f);
    }
}

// The position in the ring. With KEPT, weights are loaded only once.
template <class S> struct ring {
    int slot = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void next(const layout<S> &at) {
        if (++slot == at.slots) {
            slot = 0;
            parity ^= !S::STAYS;
        }
    }
    __device__ __forceinline__ void wait(const layout<S> &at) const {
        barrier_wait(at.full(slot), parity);
    }
    // Releases the slot before; once per warp.
    __device__ __forceinline__ void free_last(const layout<S> &at) const {
        if (!S::STAYS && (threadIdx.x & 31) == 0) {
            barrier_arrive(at.empty(slot == 0 ? at.slots - 1 : slot - 1));
        }
    }
};

// One tile per warpgroup
template <class S> struct turns {
    int turn = blockIdx.x;
    __device__ __forceinline__ bool left(const dvk_swin_params &p) const {
        return turn * S::GROUPS < p.tiles;
    }
    __device__ __forceinline__ void next() {
        turn += gridDim.x;
    }
    __device__ __forceinline__ int tile(int group) const {
        return turn * S::GROUPS + group;
    }
};

// The producer thread: loads all stages, for each turn unless KEPT
template <class S> __device__ __forceinline__ void bring(const dvk_swin_params &p, const layout<S> &at, int in_bytes) {
    const int out_bytes = S::STAGE - in_bytes;
    ring<S> r;
    for (turns<S> t; t.left(p); t.next()) {
        for (int s = 0; s < p.stages; s++, r.next(at)) {
            const uint32_t to = at.stage(r.slot);
            if (!S::STAYS) {
                barrier_wait(at.empty(r.slot), r.parity ^ 1);
            }
            barrier_expect(at.full(r.slot), S::STAGE);
            copy_bulk(to, p.w_in + (int64_t)s * in_bytes, in_bytes, at.full(r.slot));
            copy_bulk(to + in_bytes, p.w_out + (int64_t)s * out_bytes, out_bytes, at.full(r.slot));
        }
        if (S::STAYS) {
            return;
        }
    }
}

// Sixteen pixels of a warp
template <class T, class S> struct pixels {
    enum { C = S::C, DEPTHS = S::DEPTHS, OCTETS = S::OCTETS };
    const dvk_swin_params &p;
    const layout<S> &at;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32 & 3, group = threadIdx.x / 128;

    __device__ __forceinline__ pixels(const dvk_swin_params &params, const layout<S> &shared) : p(params), at(shared) {
    }

    __device__ __forceinline__ int place(int row) const { // row of the warp's sixteen; -1: no pixel
        int v;
        asm volatile("ld.shared.s32 %0, [%1];" : "=r"(v) : "r"(at.places + (group * TOKENS + warp * 16 + row) * 4));
        return v;
    }
    __device__ __forceinline__ void set_place(int row, int pixel) const {
        asm volatile("st.shared.s32 [%0], %1;" ::"r"(at.places + (group * TOKENS + warp * 16 + row) * 4), "r"(pixel)
                     : "memory");
    }
    // Address of eight channels of a row of the warp
    __device__ __forceinline__ uint32_t piece(int row, int octet) const {
        const int of = warp * 16 + row;
        return at.rows + group * S::ROWS + octet / 8 * CHUNK + of * 128 + ((octet ^ of) & 7) * 16;
    }
    // Address of this lane's row of four matrices: sixteen pixels of sixteen channels
    __device__ __forceinline__ uint32_t matrices_at(int depth) const {
        return piece(lane & 15, depth * 2 + (lane >> 4));
    }

    static __device__ __forceinline__ float of_eight(float x) {
        x += __shfl_xor_sync(0xffffffffu, x, 1);
        x += __shfl_xor_sync(0xffffffffu, x, 2);
        return x + __shfl_xor_sync(0xffffffffu, x, 4);
    }

    // Eight lanes per row, each with every eighth octet
    __device__ __forceinline__ void norm_row(const uint4 (&raw)[OCTETS], int row) const {
        float v[OCTETS][8], sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int i = 0; i < OCTETS * 4; i++) {
            const uint4 &u = raw[i / 4];
            const float2 f = T::unpack(i % 4 == 0 ? u.x : i % 4 == 1 ? u.y : i % 4 == 2 ? u.z : u.w);
            v[i / 4][i % 4 * 2] = f.x, v[i / 4][i % 4 * 2 + 1] = f.y;
        }
#pragma unroll
        for (int i = 0; i < OCTETS * 8; i++) { // values behind the last channel are arbitrary
            v[i / 8][i % 8] = channel(i) < p.c ? v[i / 8][i % 8] : 0.0f;
            sum += v[i / 8][i % 8];
        }
        const float over = 1.0f / (float)p.c, mean = of_eight(sum) * over;
#pragma unroll
        for (int i = 0; i < OCTETS * 8; i++) {
            const float t = channel(i) < p.c ? v[i / 8][i % 8] - mean : 0.0f;
            squares = fmaf(t, t, squares);
        }
        const float scale = rsqrtf(of_eight(squares) * over + p.eps);
#pragma unroll
        for (int i = 0; i < OCTETS; i++) {
            uint32_t w[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint32_t c = at.factors + channel(i * 8 + 2 * k) * 4;
                const float2 gamma = get_pair(c), beta = get_pair(c + C * 4);
                w[k] = T::pack(fmaf((v[i][2 * k] - mean) * scale, gamma.x, beta.x),
                               fmaf((v[i][2 * k + 1] - mean) * scale, gamma.y, beta.y));
            }
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(piece(row, i * 8 + (lane & 7))), "r"(w[0]),
                         "r"(w[1]), "r"(w[2]), "r"(w[3])
                         : "memory");
        }
    }
    __device__ __forceinline__ int channel(int i) const {
        return (i / 8 * 8 + (lane & 7)) * 8 + i % 8;
    }

    // Writes normalised pixels to shared memory; missing pixels are zeros before the norm.
    __device__ __forceinline__ void load() const {
        uint4 raw[4][OCTETS];
#pragma unroll
        for (int i = 0; i < 4 * OCTETS; i++) {
            const int pixel = place(i / OCTETS * 4 + lane / 8), c = (i % OCTETS * 8 + (lane & 7)) * 8;
            raw[i / OCTETS][i % OCTETS] = make_uint4(0, 0, 0, 0);
            if (pixel >= 0 && c < p.c) {
                raw[i / OCTETS][i % OCTETS] = *(const uint4 *)((const uint16_t *)p.x + pixel * p.x_pitch + c);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            norm_row(raw[i], i * 4 + lane / 8);
        }
        __syncwarp();
    }

    // Returns normalised pixels as operands
    __device__ __forceinline__ void load(uint32_t (&a)[DEPTHS][4]) const {
        load();
#pragma unroll
        for (int i = 0; i < DEPTHS; i++) {
            matrices_load(matrices_at(i), a[i]);
        }
        __syncwarp();
    }

    // Loads the residual's pixels over those of x, which are no longer in use.
    __device__ __forceinline__ void bring_residual() const {
        if (p.res == nullptr) {
            return;
        }
#pragma unroll
        for (int i = 0; i < 4 * OCTETS; i++) {
            const int row = i / OCTETS * 4 + lane / 8, pixel = place(row), octet = i % OCTETS * 8 + (lane & 7);
            if (pixel >= 0 && octet * 8 < p.c) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(piece(row, octet)),
                             "l"((const uint16_t *)p.res + pixel * p.res_pitch + octet * 8)
                             : "memory");
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }

    __device__ __forceinline__ void store(const float (&sum)[C / 2]) const {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncwarp();
#pragma unroll
        for (int d = 0; d < DEPTHS; d++) {
            uint32_t m[4] = {};
            if (p.res != nullptr) {
                matrices_load(matrices_at(d), m);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) { // pixels from i % 2 * 8 on, channels from i / 2 * 8 on
                const float2 b = get_pair(at.factors + (2 * C + d * 16 + i / 2 * 8 + (lane & 3) * 2) * 4);
                const float *s = sum + d * 8 + i / 2 * 4 + i % 2 * 2;
                const float2 r = p.res != nullptr ? T::unpack(m[i]) : make_float2(0.0f, 0.0f);
                m[i] = T::pack(s[0] + b.x + r.x, s[1] + b.y + r.y);
            }
            matrices_store(matrices_at(d), m);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4 * OCTETS; i++) {
            const int row = i / OCTETS * 4 + lane / 8, pixel = place(row), octet = i % OCTETS * 8 + (lane & 7);
            uint4 u;
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(u.x), "=r"(u.y), "=r"(u.z), "=r"(u.w)
                         : "r"(piece(row, octet)));
            if (pixel >= 0 && octet * 8 < p.c) {
                *(uint4 *)((uint16_t *)p.y + pixel * p.y_pitch + octet * 8) = u;
            }
        }
        __syncwarp();
    }
};

template <class S> __device__ __forceinline__ void begin_barriers(const layout<S> &at) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < at.slots; i++) {
            barrier_init(at.full(i), 1);
            barrier_init(at.empty(i), 4 * S::GROUPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
}

} // namespace swin
