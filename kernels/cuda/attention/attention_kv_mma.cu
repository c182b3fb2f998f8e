// attention_kv_mma.cu - attention of many queries over a cache on mma.sync. It is attention_mma.cu with a range of
// visible positions for each row. Warps skip keys that none of their rows sees. If a block has queries of several
// sequences, it processes one sequence after another.
#include "kernels/cuda/attention/attention_kv.cuh"
#include "kernels/cuda/attention/attention_mma_tiles.cuh"

using namespace attention;

namespace {

__device__ __forceinline__ int warp_min(int x) {
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        x = min(x, __shfl_xor_sync(0xffffffffu, x, i));
    }
    return x;
}

template <typename T, int D, int MT, int BN, int WARPS, bool KEEP_Q>
struct many : mma_tiles<T, D, MT, BN, WARPS, ASYNC_COPIES ? 2 : 1, KEEP_Q> {
    using tiles = mma_tiles<T, D, MT, BN, WARPS, ASYNC_COPIES ? 2 : 1, KEEP_Q>;
    using tiles::lane, tiles::q_tile, tiles::k_tiles, tiles::v_tiles, tiles::o, tiles::sum;
    using tiles::THREADS, tiles::BM, tiles::PITCH, tiles::STAGES, tiles::TILE, tiles::DEPTHS, tiles::BLOCKS;
    using typename tiles::scores;

    const dvk_attention_kv_params &p;
    const int warp_row = threadIdx.x / 32 * MT * 16;
    const int head, begin, rows; // queries begin .. begin + rows - 1
    const T *keys, *vals;
    int first[MT][2], last[MT][2]; // of a row

    // Later queries see more keys, so their blocks begin first.
    __device__ __forceinline__ many(const dvk_attention_kv_params &params, T *shared)
        : p(params), head(blockIdx.y), begin((gridDim.x - 1 - blockIdx.x) * BM), rows(min((int)BM, p.m - begin)) {
        const int64_t kv = head / (p.heads / p.kv_heads);
        keys = (const T *)p.k.data + kv * p.k.head;
        vals = (const T *)p.v.data + kv * p.v.head;
        this->place(shared);
        this->clear();
    }

    __device__ __forceinline__ void load_queries() {
        if (p.q.form == form_of(T()) && p.q.vector) {
            const T *from = (const T *)p.q.data + begin * p.q.row + head * p.q.head;
            load_tile<BM, D, PITCH, THREADS>(q_tile, from, (int)p.q.row, 0, rows, 0, p.dim);
            return;
        }
        for (int i = threadIdx.x; i < BM * (D / 4); i += THREADS) {
            const int r = i / (D / 4), c = i % (D / 4) * 4;
            float v[4];
            load4(p.q, r < rows ? (int64_t)(begin + r) * p.q.row + head * p.q.head + c : 0, r < rows ? p.dim - c : 0,
                  v);
            *(uint2 *)(q_tile + r * PITCH + c) = make_uint2(pack2(T(), v[0], v[1]), pack2(T(), v[2], v[3]));
        }
    }

    // Loads `count` keys and values of one page.
    __device__ __forceinline__ void load(int stage, int sequence, int key, int count) {
        const int64_t row = paged_row(p.in, sequence, key);
        load_tile<BN, D, PITCH, THREADS>(k_tiles + stage * TILE, keys + row * p.k.row, (int)p.k.row, 0, count, 0,
                                         p.dim);
        load_tile<BN, D, PITCH, THREADS>(v_tiles + stage * TILE, vals + row * p.v.row, (int)p.v.row, 0, count, 0,
                                         p.dim);
        commit_copies();
    }

    __device__ __forceinline__ void mask(scores &s, int key) {
#pragma unroll
        for (int i = 0; i < MT * BLOCKS * 4; i++) {
            const int m = i / (BLOCKS * 4), n = i / 4 % BLOCKS, e = i % 4;
            const int at = key + n * 8 + (lane & 3) * 2 + (e & 1);
            if (at < first[m][e / 2] || at >= last[m][e / 2]) {
                s[m][n][e] = -INFINITY;
            }
        }
    }

    __device__ __forceinline__ void store() {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            const float share = 1.0f / quad_sum(sum[m][h]);
            const int row = warp_row + m * 16 + h * 8 + lane / 4;
            if (row >= rows) {
                continue;
            }
            const int64_t at = (int64_t)(begin + row) * p.y.row + head * p.y.head + (lane & 3) * 2;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                const float a = o[m][n][2 * h] * share, b = o[m][n][2 * h + 1] * share;
                if (n * 8 >= p.dim) {
                    continue;
                }
                if (p.y.form == DVK_ROWS_F32) {
                    *(float2 *)((float *)p.y.data + at + n * 8) = make_float2(a, b);
                } else {
                    *(uint32_t *)((uint16_t *)p.y.data + at + n * 8) = bits_of(a, p.y.form) | bits_of(b, p.y.form)
                                                                                                  << 16;
                }
            }
        }
    }

    // Visible keys of this thread's rows among rows from .. to - 1
    __device__ __forceinline__ void look(int from_row, int to_row, int bound) {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int row = warp_row + i / 2 * 16 + i % 2 * 8 + lane / 4;
            span of = {0, 0};
            if (row >= from_row && row < to_row) {
                of = visible(p, begin + row, bound);
            }
            first[i / 2][i % 2] = of.first;
            last[i / 2][i % 2] = of.last;
        }
    }

    // Processes queries from .. to - 1 of the block, all of one sequence.
    __device__ __forceinline__ void run(int from_row, int to_row) {
        const int sequence = sequence_of(p.in, begin + from_row);
        const int bound = bound_before(p, begin + from_row);
        const int end = visible(p, begin + to_row - 1, bound).last; // both rise from row to row
        int start = visible(p, begin + from_row, bound).first;
        start = p.in.table != nullptr ? start / BN * BN : start; // a step stays within one page
        if (from_row > 0) {
            __syncthreads();
        }
        load(0, sequence, start, end - start);
        look(from_row, to_row, bound);
        int any_first = INT_MAX, any_last = 0, all_first = 0, all_last = INT_MAX;
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int f = first[i / 2][i % 2], l = last[i / 2][i % 2];
            any_first = l > 0 ? min(any_first, f) : any_first;
            any_last = max(any_last, l);
            all_first = max(all_first, f);
            all_last = min(all_last, l);
        }
        any_first = warp_min(any_first);
        any_last = -warp_min(-any_last);
        all_first = -warp_min(-all_first);
        all_last = warp_min(all_last);
        const int steps = (end - start + BN - 1) / BN;
        for (int j = 0; j < steps; j++) {
            wait_copies<0>();
            __syncthreads();
            const int key = start + j * BN;
            if (j == 0 && from_row == 0) {
                this->keep_queries();
            }
            if (STAGES == 2 && j + 1 < steps) {
                load((j + 1) % STAGES, sequence, key + BN, end - key - BN);
            }
            if (key < any_last && key + BN > any_first) {
                scores s;
#pragma unroll
                for (int d = 0; d < DEPTHS; d++) {
                    this->score(s, j % STAGES, d);
                }
                if (key < all_first || key + BN > all_last) {
                    mask(s, key);
                }
                this->find_frames(s, p.scale_log2);
                this->exponentials(s, p.scale_log2, 0, BLOCKS);
                this->add_values(s, j % STAGES);
            }
            if (STAGES == 1 && j + 1 < steps) {
                __syncthreads();
                load(0, sequence, key + BN, end - key - BN);
            }
        }
    }

    __device__ __forceinline__ void run_all() {
        load_queries();
        for (int row = 0; row < rows;) {
            const int sequence = sequence_of(p.in, begin + row);
            int to = p.in.sequence == nullptr ? rows : row + 1;
            while (to < rows && sequence_of(p.in, begin + to) == sequence) {
                to++;
            }
            run(row, to);
            row = to;
        }
        store();
    }
};

} // namespace

extern __shared__ __align__(16) unsigned char dynamic_shared[];

#define MANY(NAME, T, D, MT, BN, WARPS, KEEP_Q)                                                                        \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) NAME(const __grid_constant__ dvk_attention_kv_params p) { \
        wait_for_launch_ahead();                                                                                       \
        many<T, D, MT, BN, WARPS, KEEP_Q>(p, (T *)dynamic_shared).run_all();                                           \
    }
#define MANY2(D, MT, BN, WARPS, KEEP_Q)                                                                                \
    MANY(attention_kv_mma_f16_##D##_##MT, __half, D, MT, BN, WARPS, KEEP_Q)                                            \
    MANY(attention_kv_mma_bf16_##D##_##MT, __nv_bfloat16, D, MT, BN, WARPS, KEEP_Q)

// keep MT and BN in step with attention_kv_mma.c
MANY2(32, 2, 64, 4, true)
MANY2(64, 1, 64, 4, true)
MANY2(64, 2, 64, 4, true)
MANY2(80, 1, 64, 4, false)
MANY2(80, 2, 64, 4, false)
MANY2(96, 2, 64, 4, false)
MANY2(128, 1, 32, 4, false)
MANY2(128, 2, 32, 4, false)
