// linear_wgmma_sm90.cu - "linear" of many rows on the tensor cores of Hopper. All kernels have two consumer warpgroups
// and a producer thread. The producer fills a ring of stages, each 64 k of a tile's x and W. With glu, half of a tile's
// rows of W belong to each factor.
// - many: each warpgroup computes 64 rows of a tile of 128 by BN. Blocks are persistent.
// - turns: blocks are also persistent. A warpgroup computes a whole tile of 128 by 128, and its epilogue overlaps the
//   products of the other.
// - few: the blocks of a cluster share the k of one tile. They reduce the sums through shared memory, and each stores a
//   part.
#include "kernels/cuda/linear/linear_wgmma_ring.cuh"

namespace {

// ---- many ----

template <bool BF16, int BN, bool GLU, class L>
HOPPER_DEVICE void multiply_many(const dvk_linear_wgmma &p, const L &at, int group) {
    linear_outlet<BN, GLU, BN == 256 ? 3 : 4> outlet(p, at.out(group), at.biases(group), group);
    ring<L::SLOTS> r;
#pragma unroll 1
    for (int i = blockIdx.x; i < p.m_places * p.n_places; i += gridDim.x) {
        const share t = tile_of<BN, GLU>(p, i);
        const linear_spot spot = {t.row + group * 64, t.column};
        float sum[BN / 2];
        int used = -1;
        outlet.bring_bias(spot);
#pragma unroll 1
        for (int step = 0; step < p.steps; step++) {
            barrier_wait(at.full(r.slot), r.parity);
            wgmma_fence();
            multiply_step<BF16, BN>(at, r.slot, group * 64, sum, step);
            wgmma_commit();
            wgmma_wait<1>();
            if (used >= 0) {
                free_slot(at, used);
            }
            used = r.slot;
            r.advance();
        }
        outlet.prepare(spot);
        wgmma_wait<0>();
        wgmma_pin(sum);
        free_slot(at, used);
        outlet.store(spot, sum);
    }
}

template <bool BF16, int BN, bool GLU, bool TURNS> HOPPER_DEVICE void many(const dvk_linear_wgmma &p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    typedef layout<128, BN, LINEAR_OUT_BYTES> L;
    const L at = {(uint32_t)__cvta_generic_to_shared(shared)};
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        at.begin(TURNS ? 4 : 8);
    }
    __syncthreads();
    let_next_launch_begin();
    if (group == 2) {
        set_registers_down<LINEAR_BRING_REGISTERS>();
        if (threadIdx.x == 256) {
            ring<L::SLOTS> r;
            int i = blockIdx.x, done = bring_first<BN>(p, at, tile_of<BN, GLU>(p, i), r);
            for (; i < p.m_places * p.n_places; i += gridDim.x, done = 0) {
                bring<BN>(p, at, tile_of<BN, GLU>(p, i), done, r);
            }
        }
        return;
    }
    set_registers_up<LINEAR_MANY_REGISTERS>();
    wait_for_launch_before();
    if constexpr (TURNS) {
        multiply_in_turns<BF16, GLU>(p, at, group);
    } else {
        multiply_many<BF16, BN, GLU>(p, at, group);
    }
    if ((threadIdx.x & 127) == 0) {
        copy_out_done();
    }
}

// ---- few ----

// BM 128: 64 rows per warpgroup. BM 64: both warpgroups have all rows, and half of the k of every step.
template <bool BF16, int BM, int BN, class L>
HOPPER_DEVICE void multiply_few(const L &at, const share &t, int group, float (&sum)[BN / 2]) {
    ring<L::SLOTS> r;
    int used = -1;
#pragma unroll 1
    for (int step = t.first; step < t.last; step++) {
        const uint32_t rows = BM == 128 ? group * 8192 : 0, k0 = BM == 128 ? 0 : group * 4;
        const uint64_t a = wgmma_operand(at.x(r.slot) + rows, 1024) + k0, b = wgmma_operand(at.w(r.slot), 1024) + k0;
        barrier_wait(at.full(r.slot), r.parity);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < BM / 32; k++) {
            wgmma_product<BF16, BN>(sum, a + 2 * k, b + 2 * k, step - t.first + k);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (used >= 0) {
            free_slot(at, used);
        }
        used = r.slot;
        r.advance();
    }
    wgmma_wait<0>();
    wgmma_pin(sum);
}

template <int BM, int BN> struct meeting { // sums of a block in shared memory
    enum { PITCH = BN + 4, PARTS = BM == 64 ? 2 : 1 };
    const uint32_t base;
    __device__ __forceinline__ void put(int group, const float (&sum)[BN / 2]) const {
        const int lane = threadIdx.x & 31, row = group * 64 + (threadIdx.x >> 5 & 3) * 16 + lane / 4;
        const uint32_t to = base + (row * PITCH + 2 * (lane & 3)) * 4;
#pragma unroll
        for (int i = 0; i < BN / 4; i++) {
            const uint32_t spot = to + (i / 2 * 8 + (i & 1) * 8 * PITCH) * 4;
            asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(spot), "f"(sum[2 * i]), "f"(sum[2 * i + 1])
                         : "memory");
        }
    }
    // Adds two columns over all parts in fixed order.
    template <int N>
    __device__ __forceinline__ void sum_up(const uint32_t (&from)[N], int blocks, float2 (&sums)[N]) const {
#pragma unroll
        for (int e = 0; e < N; e++) {
            sums[e] = make_float2(0.0f, 0.0f);
        }
#pragma unroll 2
        for (int i = 0; i < blocks * PARTS; i++) {
            const uint32_t there = cluster_place(base, i / PARTS) + i % PARTS * (BM * PITCH * 4);
#pragma unroll
            for (int e = 0; e < N; e++) {
                const float2 v = load_in_cluster(there + from[e]);
                sums[e].x += v.x, sums[e].y += v.y;
            }
        }
    }
};

template <int BM, int BN>
HOPPER_DEVICE void store_few(const dvk_linear_wgmma &p, const share &t, const meeting<BM, BN> &m, int rank) {
    enum { EACH = 4 }; // pairs of columns in flight per thread
    const int high = min(BM, p.out.m - t.row), wide = (p.out.glu ? BN / 2 : BN) / 2, pairs = high * wide;
    const int first = (int)((int64_t)pairs * rank / p.blocks), last = (int)((int64_t)pairs * (rank + 1) / p.blocks);
#pragma unroll 1
    for (int i = first + threadIdx.x; i < last; i += EACH * DVK_LINEAR_THREADS) {
        linear_extras extras[EACH];
        uint32_t from[EACH];
        float2 sums[EACH], others[EACH] = {};
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int at = min(i + e * DVK_LINEAR_THREADS, last - 1), row = at / wide, column = 2 * (at - row * wide);
            from[e] = (row * m.PITCH + column) * 4;
            extras[e] = linear_fetch(p.out, t.row + row, t.column + column);
        }
        m.sum_up(from, p.blocks, sums);
        if (p.out.glu) {
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                from[e] += BN / 2 * 4;
            }
            m.sum_up(from, p.blocks, others);
        }
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int at = i + e * DVK_LINEAR_THREADS, row = at / wide, column = t.column + 2 * (at - row * wide);
            if (at < last) {
                linear_finish(p.out, t.row + row, column, make_float4(sums[e].x, sums[e].y, others[e].x, others[e].y),
                              extras[e]);
            }
        }
    }
}

template <bool BF16, int BM, int BN> HOPPER_DEVICE void few(const dvk_linear_wgmma &p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    typedef layout<BM, BN, 0> L;
    const L at = {(uint32_t)__cvta_generic_to_shared(shared)};
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), rank = (int)cluster_rank();
    const int place = blockIdx.x / p.blocks, n = place / p.m_places, m = place - n * p.m_places;
    const share t = {m * BM, n * (p.out.glu ? BN / 2 : BN), (int)((int64_t)p.steps * rank / p.blocks),
                     (int)((int64_t)p.steps * (rank + 1) / p.blocks)};
    const meeting<BM, BN> meet = {at.base};
    if (threadIdx.x == 0) {
        at.begin(8);
    }
    __syncthreads();
    let_next_launch_begin();
    if (group == 2) {
        if (threadIdx.x == 256) {
            ring<L::SLOTS> r;
            const int done = bring_first<BN>(p, at, t, r);
            bring<BN>(p, at, t, t.first + done, r);
        }
        __syncwarp();
    } else {
        float sum[BN / 2];
        multiply_few<BF16, BM, BN>(at, t, group, sum);
        named_barrier(1, 256); // the ring is no longer in use
        meet.put(group, sum);
    }
    wait_for_launch_before();
    cluster_meet();
    store_few<BM, BN>(p, t, meet, rank);
    cluster_meet(); // no block may exit while others read its memory
}

} // namespace

#define LINEAR_KERNEL(name, ...)                                                                                       \
    extern "C" __global__ void __launch_bounds__(DVK_LINEAR_THREADS, 1)                                                \
        name(const __grid_constant__ dvk_linear_wgmma p) {                                                             \
        __VA_ARGS__(p);                                                                                                \
    }
#define LINEAR_KERNELS(TYPE, BF16)                                                                                     \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_128, many<BF16, 128, false, false>)                                            \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_192, many<BF16, 192, false, false>)                                            \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_256, many<BF16, 256, false, false>)                                            \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_turns, many<BF16, 128, false, true>)                                           \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_glu_128, many<BF16, 128, true, false>)                                         \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_glu_192, many<BF16, 192, true, false>)                                         \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_glu_256, many<BF16, 256, true, false>)                                         \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_glu_turns, many<BF16, 128, true, true>)                                        \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_few_64x128, few<BF16, 64, 128>)                                                \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_few_64x192, few<BF16, 64, 192>)                                                \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_few_64x256, few<BF16, 64, 256>)                                                \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_few_128x128, few<BF16, 128, 128>)                                              \
    LINEAR_KERNEL(linear_wgmma_##TYPE##_few_128x256, few<BF16, 128, 256>)

LINEAR_KERNELS(f16, false)
LINEAR_KERNELS(bf16, true)
