// linear_mma.cu - "linear" of many rows with mma.sync. A block multiplies BM rows of x by BN rows of W from a ring
// buffer of stages in shared memory. 16-byte pieces are swizzled within two rows of 64 bytes. With glu, rows of W of
// the two factors alternate by eights, so that a thread has both sums of a column.
#include "kernels/cuda/linear/linear_mma.h"

#include "kernels/cuda/common/elem.cuh"
#include "kernels/cuda/linear/linear_many.cuh"

namespace {

enum { BK = DVK_LINEAR_MMA_K, STAGES = DVK_LINEAR_MMA_STAGES, ROW = 2 * BK };

template <int BM_, int BN_, int WARPS_M_, int WARPS_N_> struct tile {
    enum {
        BM = BM_,
        BN = BN_,
        WARPS_M = WARPS_M_,
        WARPS_N = WARPS_N_,
        THREADS = 32 * WARPS_M * WARPS_N,
        MT = BM / WARPS_M / 16,
        NT = BN / WARPS_N / 8,
        STAGE = (BM + BN) * ROW,
        BLOCKS = MT * NT > 16 ? 2 : 4
    };
};

LINEAR_DEVICE uint32_t piece_at(int row, int piece) {
    return row * ROW + ((piece ^ (row >> 1 & 3)) << 4);
}

LINEAR_DEVICE void store_piece(uint32_t to, const uint4 &v) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// Copies 16 bytes, of which the first `bytes` are valid; zeros behind them.
LINEAR_DEVICE void copy_piece(uint32_t to, const uint16_t *from, int bytes) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
    uint4 v = make_uint4(0, 0, 0, 0);
    if (bytes == 16) {
        v = *(const uint4 *)from;
    } else if (bytes > 0) {
        uint32_t w[4] = {};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            w[i / 2] |= 2 * i < bytes ? (uint32_t)from[i] << (i % 2 * 16) : 0;
        }
        v = make_uint4(w[0], w[1], w[2], w[3]);
    }
    store_piece(to, v);
#endif
}

LINEAR_DEVICE void copy_elements(uint32_t to, const uint16_t *from, int bytes) {
    uint32_t w[4] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        w[i / 2] |= 2 * i < bytes ? (uint32_t)from[i] << (i % 2 * 16) : 0;
    }
    store_piece(to, make_uint4(w[0], w[1], w[2], w[3]));
}

LINEAR_DEVICE void commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int N> LINEAR_DEVICE void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

LINEAR_DEVICE void load_matrices(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

template <bool BF16> LINEAR_DEVICE void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    if constexpr (BF16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

struct place {
    int row, column, first, last; // of y; steps of k
};

// The tiles are ordered by groups along m for each n, so that concurrent blocks share W.
template <class K> LINEAR_DEVICE place place_of(const dvk_linear_mma &p) {
    const int share = blockIdx.y, i = blockIdx.x, each = p.together * p.n_tiles;
    const int stripe = i / each, within = i - stripe * each;
    const int high = min(p.together, p.m_tiles - stripe * p.together), n = within / high;
    return {(stripe * p.together + within - n * high) * K::BM, n * (p.out.glu ? K::BN / 2 : K::BN),
            (int)((int64_t)p.steps * share / p.shares), (int)((int64_t)p.steps * (share + 1) / p.shares)};
}

// Index of the tile's row r of W among all rows; w_rows or more: no such row.
LINEAR_DEVICE int w_row_of(const dvk_linear_mma &p, const place &t, int r) {
    if (!p.out.glu) {
        return t.column + r;
    }
    const int column = t.column + (r >> 4) * 8 + (r & 7);
    return column >= p.out.n ? p.w_rows : r & 8 ? p.out.n + column : column;
}

// The copies of a thread in every step: one of the four pieces of some rows of x and of W.
template <class K> struct mover {
    enum { APART = K::THREADS / 4, X = K::BM / APART, W = K::BN / APART };
    const dvk_linear_mma &p;
    const uint16_t *from[X + W];
    uint32_t there = 0; // a bit for each of them
    uint32_t to;

    __device__ __forceinline__ mover(const dvk_linear_mma &params, const place &t) : p(params) {
        const int row = threadIdx.x >> 2, piece = threadIdx.x & 3;
        to = piece_at(row, piece);
#pragma unroll
        for (int i = 0; i < X + W; i++) {
            const bool of_x = i < X;
            const int r = of_x ? t.row + row + i * APART : w_row_of(p, t, row + (i - X) * APART);
            const int rows = of_x ? p.out.m : p.w_rows;
            there |= r < rows ? 1u << i : 0;
            from[i] = (of_x ? p.x : p.w) + min(r, rows - 1) * (of_x ? p.x_row : p.w_row) + piece * 8;
        }
    }

    __device__ __forceinline__ void bring(int step, uint32_t at) const {
        const int k = step * BK, left = 2 * max(0, min(8, p.k - k - (int)(threadIdx.x & 3) * 8));
#pragma unroll
        for (int i = 0; i < X + W; i++) {
            const uint32_t spot = at + to + i * APART * ROW;                         // rows of W follow those of x
            const int bytes = there >> i & 1 ? (i < X || left == 0 ? left : 16) : 0; // values of W behind k are zero
            if (i >= X || (p.x_aligned && bytes % 16 == 0)) { /* a partial piece may be at the end of the memory */
                copy_piece(spot, from[i] + k, bytes);
            } else {
                copy_elements(spot, from[i] + k, bytes);
            }
        }
    }
};

template <bool BF16, class K> LINEAR_DEVICE void multiply(uint32_t at, float (&sum)[K::MT][K::NT][4]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int m = warp / K::WARPS_N * K::MT * 16 + (lane & 15),
              n = warp % K::WARPS_N * K::NT * 8 + (lane & 7) + (lane >> 4) * 8;
#pragma unroll
    for (int k = 0; k < BK / 16; k++) {
        uint32_t a[K::MT][4], b[K::NT / 2][4];
#pragma unroll
        for (int i = 0; i < K::MT; i++) {
            load_matrices(a[i], at + piece_at(m + i * 16, 2 * k + (lane >> 4)));
        }
#pragma unroll
        for (int j = 0; j < K::NT / 2; j++) {
            load_matrices(b[j], at + K::BM * ROW + piece_at(n + j * 16, 2 * k + (lane >> 3 & 1)));
        }
#pragma unroll
        for (int i = 0; i < K::MT; i++) {
#pragma unroll
            for (int j = 0; j < K::NT; j++) {
                mma<BF16>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
}

LINEAR_DEVICE void store_part(const dvk_linear_mma &p, int row, int column, float a, float b) {
    float *to = p.parts + ((int64_t)blockIdx.y * p.out.m + row) * p.w_rows + column;
    to[0] = a;
    if (column % p.out.n + 1 < p.out.n) { // if n is odd, the last column of a factor has no partner
        to[1] = b;
    }
}

// Writes sixteen rows of a warp's sums from shared memory: four pairs of columns per lane at a time.
template <class K> struct finisher {
    enum { PITCH = K::NT * 8 + 8, EACH = 4 };
    const dvk_linear_mma &p;
    const float *rows;
    int row0, column0; // of y

    __device__ __forceinline__ void finish() const {
        const int lane = threadIdx.x & 31, wide = p.out.glu ? K::NT * 2 : K::NT * 4; // pairs of a row
#pragma unroll 1
        for (int first = lane; first < 16 * wide; first += 32 * EACH) {
            linear_extras extras[EACH];
#pragma unroll
            for (int e = 0; e < EACH && p.parts == nullptr; e++) {
                const int i = first + e * 32;
                extras[e] = linear_fetch(p.out, row0 + i / wide, column0 + i % wide * 2);
            }
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const int i = first + e * 32, row = row0 + i / wide, c = i % wide * 2, column = column0 + c;
                const float *s = rows + i / wide * PITCH + (p.out.glu ? c / 8 * 16 + c % 8 : c);
                const float4 sums = make_float4(s[0], s[1], p.out.glu ? s[8] : 0.0f, p.out.glu ? s[9] : 0.0f);
                if (row >= p.out.m || column >= p.out.n) {
                    continue;
                }
                if (p.parts == nullptr) {
                    linear_finish(p.out, row, column, sums, extras[e]);
                    continue;
                }
                store_part(p, row, column, sums.x, sums.y);
                if (p.out.glu) {
                    store_part(p, row, column + p.out.n, sums.z, sums.w);
                }
            }
        }
    }
};

template <class K>
LINEAR_DEVICE void store(const dvk_linear_mma &p, const place &t, const float (&sum)[K::MT][K::NT][4], float *shared) {
    typedef finisher<K> F;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n = warp % K::WARPS_N * K::NT * 8;
    float *rows = shared + warp * 16 * F::PITCH, *mine = rows + (lane >> 2) * F::PITCH + 2 * (lane & 3);
#pragma unroll 1
    for (int mt = 0; mt < K::MT; mt++) {
        __syncwarp();
#pragma unroll
        for (int m = 0; m < K::MT; m++) { // registers cannot be indexed at run time
            if (m == mt) {
#pragma unroll
                for (int j = 0; j < K::NT; j++) {
                    *(float2 *)(mine + j * 8) = make_float2(sum[m][j][0], sum[m][j][1]);
                    *(float2 *)(mine + 8 * F::PITCH + j * 8) = make_float2(sum[m][j][2], sum[m][j][3]);
                }
            }
        }
        __syncwarp();
        const F f = {p, rows, t.row + (warp / K::WARPS_N * K::MT + mt) * 16, t.column + (p.out.glu ? n / 2 : n)};
        f.finish();
    }
}

template <bool BF16, class K> LINEAR_DEVICE void linear(const dvk_linear_mma &p) {
    extern __shared__ __align__(128) unsigned char shared[];
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
    const place t = place_of<K>(p);
    const mover<K> copies(p, t);
    float sum[K::MT][K::NT][4] = {};
    wait_for_launch_ahead();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (t.first + i < t.last) {
            copies.bring(t.first + i, base + i * K::STAGE);
        }
        commit();
    }
    int slot = 0;
#pragma unroll 1
    for (int step = t.first; step < t.last; step++) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < t.last) {
            copies.bring(step + STAGES - 1, base + (slot == 0 ? STAGES - 1 : slot - 1) * K::STAGE);
        }
        commit();
        multiply<BF16, K>(base + slot * K::STAGE, sum);
        slot = slot == STAGES - 1 ? 0 : slot + 1;
    }
    wait_for_copies<0>();
    __syncthreads();
    store<K>(p, t, sum, (float *)shared);
}

} // namespace

#define LINEAR_F16(M, N, ...)                                                                                          \
    extern "C" __global__ void __launch_bounds__(tile<M, N, __VA_ARGS__>::THREADS, tile<M, N, __VA_ARGS__>::BLOCKS)    \
        linear_mma_f16_##M##x##N(const __grid_constant__ dvk_linear_mma p) {                                           \
        linear<false, tile<M, N, __VA_ARGS__>>(p);                                                                     \
    }
#define LINEAR_BF16(M, N, ...)                                                                                         \
    extern "C" __global__ void __launch_bounds__(tile<M, N, __VA_ARGS__>::THREADS, tile<M, N, __VA_ARGS__>::BLOCKS)    \
        linear_mma_bf16_##M##x##N(const __grid_constant__ dvk_linear_mma p) {                                          \
        linear<true, tile<M, N, __VA_ARGS__>>(p);                                                                      \
    }

LINEAR_MMA_TILES(LINEAR_F16)
#if __CUDA_ARCH__ >= 800
LINEAR_MMA_TILES(LINEAR_BF16)
#endif
