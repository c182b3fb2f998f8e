// window_attention.cu - attention inside windows on mma.sync. Keys, values and queries are read directly from the
// picture, by a table of each token's place. A warp holds 32 queries, their scores against 32 keys, and their sums. The
// accumulator of a score is initialised with its bias (divided by the scale). In even windows, four biases of a thread
// are contiguous in shared memory.
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/window/window_attention_tables.cuh"

using namespace attention;

namespace {

template <typename T, int D, int BN, int WARPS, bool EVEN> struct attend : window_tables<WARPS, EVEN> {
    typedef window_tables<WARPS, EVEN> tables;
    using tables::bias_at, tables::cut, tables::first_query, tables::g, tables::head, tables::keys, tables::lane,
        tables::p;
    using tables::pitch_bias, tables::side, tables::t, tables::THREADS, tables::unit, tables::warp;
    enum {
        PITCH = D + 8,
        DEPTHS = D / 16,
        BLOCKS = BN / 8,
        PARTS = KEYS / BN, // of a step
        PIECES = D / 8,
        KEEP_Q = D <= 32
    };
    typedef float scores[MT][BLOCKS][4];

    T *q_tile, *ring;
    float o[MT][D / 8][4];
    float frame[MT][2], sum[MT][2];
    uint32_t q[KEEP_Q ? MT : 1][KEEP_Q ? DEPTHS : 1][4];
    int of_key, column; // first keys of the next part, as an index of biases, and their column

    __device__ __forceinline__ attend(const dvk_window_params &params, unsigned char *shared)
        : tables(params, shared + params.tables) {
        q_tile = (T *)shared;
        ring = q_tile + WARPS * ROWS * PITCH;
    }

    // ---- loads ----

    template <typename At>
    __device__ __forceinline__ void load_rows(T *to, const dvk_window_view &v, int rows, At at) const {
        const T *from = (const T *)v.data + head * g.dim;
        for (int i = threadIdx.x; i < rows * PIECES; i += THREADS) {
            const int row = i / PIECES, c = i % PIECES * 8;
            int of;
            const int32_t place = at(row, of);
            const bool there = place >= 0 && c < g.dim;
            const int64_t offset =
                there ? t.pictures[of] * v.sn + (place >> 16) * v.sh + (place & 0xffff) * v.sw + c : 0;
            copy16(shared_address(to + row * PITCH + c), from + offset, there);
        }
    }

    __device__ __forceinline__ void load_queries() const {
        load_rows(q_tile, p.q, p.units * p.warps * ROWS, [&](int row, int &of) {
            of = row / ROWS / p.warps;
            return t.query_at[row];
        });
    }

    __device__ __forceinline__ T *keys_of(int step) const {
        return ring + (p.steps <= p.stages ? step : step % p.stages) * 2 * p.units * KEYS * PITCH;
    }

    __device__ __forceinline__ void load_step(int step) const {
        T *to = keys_of(step);
        const auto key = [&](int row, int &of) {
            of = row / KEYS;
            return t.key_at[(of * p.steps + step) * KEYS + row % KEYS];
        };
        load_rows(to, p.k, p.units * KEYS, key);
        load_rows(to + p.units * KEYS * PITCH, p.v, p.units * KEYS, key);
    }

    // ---- products ----

    __device__ __forceinline__ void load_query(uint32_t (&a)[4], int m, int depth) const {
        ldmatrix4(a,
                  shared_address(q_tile + (warp * ROWS + m * 16 + (lane & 15)) * PITCH + (lane >> 4) * 8) + depth * 32);
    }

    // Initialises scores with their biases and, in a window that the picture's end cuts, their masks. Parts come in
    // order.
    __device__ __forceinline__ void begin(scores &s, int key) {
        const float *table = t.bias;
        if (EVEN) {
#pragma unroll
            for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    const float4 b = ((const float4 *)table)[bias_at[m][0] - of_key];
                    s[m][n][0] = b.x, s[m][n][1] = b.y, s[m][n][2] = b.z, s[m][n][3] = b.w;
                }
                of_key += 8, column += 8;
                if (column == g.kw) {
                    of_key += pitch_bias - g.kw, column = 0;
                }
            }
        } else {
#pragma unroll
            for (int n = 0; n < BLOCKS; n++) {
                const int2 of_key = *(const int2 *)(t.key_of_bias + key + n * 8 + (lane & 3) * 2);
#pragma unroll
                for (int i = 0; i < MT * 4; i++) {
                    s[i / 4][n][i % 4] = table[bias_at[i / 4][i % 4 / 2] - (i % 2 ? of_key.y : of_key.x)];
                }
            }
        }
        if (cut != 0) {
            const float minus = -100.0f * p.over_scale;
#pragma unroll
            for (int n = 0; n < BLOCKS; n++) {
                const uint32_t of_keys = *(const uint16_t *)(t.key_side + key + n * 8 + (lane & 3) * 2);
#pragma unroll
                for (int i = 0; i < MT * 4; i++) {
                    const uint32_t differ = (i % 2 ? of_keys >> 8 : of_keys) ^ side[i / 4][i % 4 / 2];
                    s[i / 4][n][i % 4] += (differ & cut) != 0 ? minus : 0.0f;
                }
            }
        }
    }

    // s += q k^T over 16 channels
    __device__ __forceinline__ void score(scores &s, const T *k, int depth) const {
        const uint32_t at =
            shared_address(k + ((lane & 7) + (lane >> 4) * 8) * PITCH + (lane >> 3 & 1) * 8) + depth * 32;
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            if constexpr (KEEP_Q) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    a[m][i] = q[m][depth][i];
                }
            } else {
                load_query(a[m], m, depth);
            }
        }
#pragma unroll
        for (int n = 0; n < BLOCKS; n += 2) {
            uint32_t b[4];
            ldmatrix4(b, at + n * 8 * PITCH * 2);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma<true>(T(), s[m][n], a[m], b[0], b[1]);
                mma<true>(T(), s[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }

    __device__ __forceinline__ void hide_beyond(scores &s, int keys_left) const {
#pragma unroll
        for (int i = 0; i < BLOCKS * 4; i++) {
            if (i / 4 * 8 + (lane & 3) * 2 + (i & 1) >= keys_left) {
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    s[m][i / 4][i % 4] = -INFINITY;
                }
            }
        }
    }

    // Updates frames only if some score of the warp exceeds one by far.
    __device__ __forceinline__ void find_frames(const scores &s) {
        float top[MT][2];
        bool rise = false;
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            float x = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
            for (int n = 1; n < BLOCKS; n++) {
                x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            }
            top[m][h] = x * p.scale_log2;
            rise = rise || top[m][h] > frame[m][h] + 8.0f;
        }
        if (!__any_sync(0xffffffffu, rise)) {
            return;
        }
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            const float to = raised(frame[m][h], quad_max(top[m][h])), shrink = exp2_fast(frame[m][h] - from(to));
            frame[m][h] = to;
            sum[m][h] *= shrink;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                o[m][n][2 * h] *= shrink;
                o[m][n][2 * h + 1] *= shrink;
            }
        }
    }

    __device__ __forceinline__ void exponentials(scores &s) {
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            const float minus = -from(frame[m][h]);
#pragma unroll
            for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    s[m][n][e] = exp2_fast(fmaf(s[m][n][e], p.scale_log2, minus));
                    sum[m][h] += s[m][n][e];
                }
            }
        }
    }

    // o += s v
    __device__ __forceinline__ void add_values(const scores &s, const T *v) {
        const uint32_t at = shared_address(v + (lane & 15) * PITCH + (lane >> 4) * 8);
#pragma unroll
        for (int k = 0; k < BN / 16; k++) {
            uint32_t a[MT][4];
#pragma unroll
            for (int i = 0; i < MT * 4; i++) {
                const float *pair = &s[i / 4][2 * k + i % 4 / 2][i % 2 * 2];
                a[i / 4][i % 4] = pack2(T(), pair[0], pair[1]);
            }
#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
                uint32_t b[4];
                ldmatrix4_trans(b, at + (k * 16 * PITCH + n * 8) * 2);
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma<true>(T(), o[m][n], a[m], b[0], b[1]);
                    mma<true>(T(), o[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    __device__ __forceinline__ const T *keys_at(int part) const {
        return keys_of(part / PARTS) + (unit * KEYS + part % PARTS * BN) * PITCH;
    }

    __device__ __forceinline__ void work(int part) {
        const T *k = keys_at(part);
        scores s;
        begin(s, part * BN);
#pragma unroll
        for (int d = 0; d < DEPTHS; d++) {
            score(s, k, d);
        }
        if (!EVEN && (part + 1) * BN > keys) {
            hide_beyond(s, keys - part * BN);
        }
        find_frames(s);
        exponentials(s);
        add_values(s, k + p.units * KEYS * PITCH);
    }

    // Stores through the warp's rows of queries, which are no longer in use
    __device__ __forceinline__ void store() {
        T *rows = q_tile + warp * ROWS * PITCH;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 2 * MT; i++) {
            const int m = i / 2, h = i % 2;
            const float share = 1.0f / quad_sum(sum[m][h]);
            T *row = rows + (m * 16 + h * 8 + lane / 4) * PITCH + (lane & 3) * 2;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                *(uint32_t *)(row + n * 8) = pack2(T(), o[m][n][2 * h] * share, o[m][n][2 * h + 1] * share);
            }
        }
        __syncwarp();
        T *y = (T *)p.y.data + t.pictures[unit] * p.y.sn + head * g.dim;
#pragma unroll
        for (int i = lane; i < ROWS * PIECES; i += 32) {
            const int row = i / PIECES, c = i % PIECES * 8;
            const int32_t place = t.query_at[warp * ROWS + row];
            if (place >= 0 && c < g.dim) {
                *(uint4 *)(y + (place >> 16) * p.y.sh + (place & 0xffff) * p.y.sw + c) =
                    *(const uint4 *)(rows + row * PITCH + c);
            }
        }
    }

    // Waits for step `step`. If not all steps fit, it starts to load a later one into the place of the last.
    __device__ __forceinline__ void bring(int step) const {
        if (p.steps <= p.stages) {
            if (step < 2) {
                step == 0 ? wait_copies<1>() : wait_copies<0>();
                __syncthreads();
            }
            return;
        }
        if (p.stages > 3) {
            wait_copies<2>();
        } else {
            wait_copies<1>();
        }
        __syncthreads();
        if (step > 0 && step - 1 + p.stages < p.steps) {
            load_step(step - 1 + p.stages);
        }
        commit_copies();
    }

    __device__ __forceinline__ void load_first() const {
        load_queries();
        load_step(0);
        commit_copies();
        for (int i = 1; i < p.stages; i++) {
            load_step(i);
            if (p.steps > p.stages) {
                commit_copies();
            }
        }
        if (p.steps <= p.stages) {
            commit_copies();
        }
    }

    __device__ __forceinline__ void clear() {
        of_key = column = 0;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            frame[m][0] = frame[m][1] = -INFINITY;
            sum[m][0] = sum[m][1] = 0.0f;
#pragma unroll
            for (int i = 0; i < D / 2; i++) {
                o[m][i / 4][i % 4] = 0.0f;
            }
        }
    }

    __device__ __forceinline__ void attend_windows(int first) {
        __syncthreads(); // tables and queries of the previous windows are no longer in use
        this->find_places(first);
        __syncthreads();
        load_first();
        clear();
        const bool idle = first_query >= g.wh * g.ww || first + unit >= g.windows;
        const int parts = EVEN ? p.steps * PARTS : (keys + BN - 1) / BN;
        for (int part = 0; part < parts; part++) {
            if (part % PARTS == 0) {
                bring(part / PARTS);
            }
            if (idle) {
                continue;
            }
            if constexpr (KEEP_Q) {
                if (part == 0) {
#pragma unroll
                    for (int i = 0; i < MT * DEPTHS; i++) {
                        load_query(q[i / DEPTHS][i % DEPTHS], i / DEPTHS, i % DEPTHS);
                    }
                }
            }
            work(part);
        }
        if (!idle) {
            store();
        }
    }

    __device__ __forceinline__ void run() {
        this->fill_bias();
        this->find_rows();
        this->find_keys();
        wait_for_launch_ahead(); // the code above does not depend on the preceding launch
        const int blocks = gridDim.x / g.heads;
        for (int i = blockIdx.x / g.heads; i * p.units < g.windows; i += blocks) {
            attend_windows(i * p.units);
        }
        wait_copies<0>();
    }
};

} // namespace

extern __shared__ __align__(16) unsigned char dynamic_shared[];

#define WINDOWS(NAME, T, D, BN, WARPS, EVEN, BLOCKS)                                                                   \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS)                                                   \
        NAME(const __grid_constant__ dvk_window_params p) {                                                            \
        attend<T, D, BN, WARPS, EVEN> a(p, dynamic_shared);                                                            \
        a.run();                                                                                                       \
    }
#define WINDOWS4(D, BN, WARPS, BLOCKS)                                                                                 \
    WINDOWS(window_attention_f16_##D##_even, __half, D, BN, WARPS, true, BLOCKS)                                       \
    WINDOWS(window_attention_f16_##D##_any, __half, D, 32, WARPS, false, BLOCKS)                                       \
    WINDOWS(window_attention_bf16_##D##_even, __nv_bfloat16, D, BN, WARPS, true, BLOCKS)                               \
    WINDOWS(window_attention_bf16_##D##_any, __nv_bfloat16, D, 32, WARPS, false, BLOCKS)

#ifndef WINDOW_EXPERIMENT // keep warps and blocks in step with window_attention.c
WINDOWS4(16, 32, 8, 2)
WINDOWS4(32, 32, 8, 2)
WINDOWS4(48, 32, 8, 2)
WINDOWS4(64, 32, 8, 2)
WINDOWS4(80, 32, 8, 1)
WINDOWS4(128, 32, 8, 1)
#endif
