// linear_few.cu - see linear_few.c. A warp multiplies R rows of W at a time; each lane reads 16 bytes of every 512.
// Several warps may share their rows. No preceding launch writes W, so a block loads its first weights before the
// launch waits.
// LARGE: W takes longer than the wait, and the number of bytes in flight matters most. There are more blocks with fewer
// registers, and no other data is fetched early.
// MORE: x is a sum of rows.
#include "kernels/cuda/linear/linear_few.cuh"

template <int KIND, int M, int R, bool LARGE, bool MORE> struct few {
    enum { U = R == 2 ? 4 : 2 }; // chunks of a row in flight

    const dvk_linear_few_params &p;
    int lane, part, group, step; // step: chunks from one of this lane's to the next
    int outputs, outputs_log;    // of a group of warps: a power of two
    int group_count;
    few_chunk w[U][R];
    float sum[R * M];
    few_extras extras;

    __device__ few(const dvk_linear_few_params &of) : p(of) {
        lane = threadIdx.x & 31;
        part = (threadIdx.x >> 5) & (p.split - 1);
        group = (threadIdx.x >> 5) / p.split;
        step = 32 * p.split;
        outputs_log = (R == 4 ? 2 : 1) - (p.glu ? 1 : 0);
        outputs = 1 << outputs_log;
        group_count = FEW_WARPS / p.split;
    }

    __device__ int groups() const {
        return group_count;
    }

    // Row r of this warp in a tile; beyond the end, the last row again.
    __device__ int64_t row_of(int tile, int r) const {
        const int o = (tile * groups() + group) * outputs + (p.glu ? r % (R / 2) : r);
        return (o < p.n ? o : p.n - 1) + (int64_t)(p.glu && r >= R / 2 ? p.n : 0);
    }

    __device__ void load(int tile, int at, int end) {
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int chunk = at + u * step;
#pragma unroll
            for (int r = 0; r < R; r++) {
                if (chunk < end) {
                    w[u][r] = load_chunk<KIND>(p, row_of(tile, r), chunk);
                }
            }
        }
    }

    __device__ void multiply(const uint4 *x, int at, int first, int end) {
        const int row = x_row<KIND>(p.phase);
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int chunk = at + u * step;
            if (chunk < end) {
                if constexpr (is_float<KIND>()) {
                    add_float<KIND, M, R>(w[u], x, row, p.phase, chunk - first, sum);
                } else {
                    add_blocks<KIND, M, R>(w[u], x, row, p.zero, chunk - first, sum);
                }
            }
        }
    }

    // Fetches the part of the first tile that is not in flight yet.
    __device__ void look_ahead_rest(int at) const {
        for (at += U * step; at < p.chunks; at += step) {
            if (lane % 8 == 0) {
#pragma unroll
                for (int r = 0; r < R; r++) {
                    look_ahead(p.w + row_of(blockIdx.x, r) * p.w_row + (int64_t)at * 16);
                }
            }
        }
    }

    __device__ void finish(int tile, float *sums, const float *squares) {
        const float mine = sum_lanes<R * M>(sum);
        constexpr int LANES = 32 / (R * M);
        if (lane % LANES == 0) {
            sums[(threadIdx.x >> 5) * 32 + lane / LANES] = mine;
        }
        __syncthreads();
        if (const int i = threadIdx.x; i < groups() * outputs * M) {
            const int t = i % M;
            const int at = i / M & (outputs - 1);
            const int of = i / M >> outputs_log;
            const int o = (tile * groups() + of) * outputs + at;
            if (o < p.n && t < p.m) {
                float a = 0.0f;
                float b = 0.0f;
                for (int s = 0; s < p.split; s++) {
                    const float *from = sums + (of * p.split + s) * 32;
                    a += from[at * M + t];
                    b += p.glu ? from[(at + R / 2) * M + t] : 0.0f;
                }
                const float scale = p.norm != nullptr ? scale_of(p, squares, t) : 1.0f;
                put_result(p, t, o, a * scale, b * scale, extras);
            }
        }
    }

    // A thread has at most one result of a tile; p.n: none.
    __device__ int output_of(int tile) const {
        const int of = threadIdx.x / M >> outputs_log;
        const int o = (tile * groups() + of) * outputs + (threadIdx.x / M & (outputs - 1));
        return of < groups() ? o : p.n;
    }

    __device__ void stage(uint4 *x, int first, int count, float (&squares)[M]) const {
        if (p.norm != nullptr || p.rounded) {
            stage_changed<KIND, M, MORE>(p, x, (const float4 *)((unsigned char *)x + p.norm_at), first, count, squares);
        } else if constexpr (is_float<KIND>()) {
            stage_float<KIND, M>(p, x, first, count);
        } else {
            stage_blocks<KIND, M>(p, x, first, count);
        }
        __syncthreads();
    }

    // Processes chunks [first, end) of a tile. The first of them are in flight; at the end the first ones of the next
    // tile are.
    __device__ void go_through(const uint4 *x, int tile, int first, int end, int own) {
        for (int at = first + own; at < end; at += U * step) {
            multiply(x, at, first, end);
            if (at + U * step < end) {
                load(tile, at + U * step, end);
            }
        }
        if (end < p.chunks) {
            load(tile, end + own, min(end + p.phase, p.chunks));
        }
    }

    // Runs before the preceding launch has ended.
    __device__ void fetch_ahead(uint4 *x) {
        load(blockIdx.x, 32 * part + lane, p.chunks);
        look_ahead_rest(32 * part + lane);
        bring_norm(p, (uint4 *)((unsigned char *)x + p.norm_at));
        if (!LARGE) {
            extras = {};
            add_bias(p, output_of(blockIdx.x), extras);
        }
        if (!LARGE && p.norm != nullptr) {
            wait_until_brought();
            __syncthreads();
        }
    }

    __device__ void fetch_extras(int tile) {
        if (LARGE) {
            extras = {};
            if (p.bias != nullptr || p.res.data != nullptr) {
                extras = extras_of(p, threadIdx.x % M, output_of(tile));
            }
            return;
        }
        if (tile != (int)blockIdx.x) {
            extras = {};
            add_bias(p, output_of(tile), extras);
        }
        add_res(p, threadIdx.x % M, output_of(tile), extras);
    }

    // Processes tiles of rows one after the other; x is staged in phases if it does not fit.
    __device__ void run(uint4 *x, float (*sums)[FEW_WARPS * 32], float *kept) {
        const int tiles = (p.n + groups() * outputs - 1) / (groups() * outputs);
        const int own = 32 * part + lane;
        if (p.early) {
            let_launch_behind_begin();
        }
        fetch_ahead(x);
        wait_for_launch_ahead();
        int odd = 0;
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, odd ^= 1) {
            float squares[M] = {};
#pragma unroll
            for (int i = 0; i < R * M; i++) {
                sum[i] = 0.0f;
            }
            fetch_extras(tile);
            for (int first = 0; first < p.chunks; first += p.phase) {
                const int end = min(first + p.phase, p.chunks);
                if (p.phase < p.chunks || tile == (int)blockIdx.x) {
                    if (LARGE) {
                        wait_until_brought(); // the norm's factors
                    }
                    if (LARGE || first > 0 || tile != (int)blockIdx.x) {
                        __syncthreads(); // the previous phase of x is no longer in use
                    }
                    stage(x, first, end - first, squares);
                }
                go_through(x, tile, first, end, own);
            }
            if (tile + gridDim.x < tiles) {
                load(tile + gridDim.x, own, min(p.phase, p.chunks));
            }
            if (p.norm != nullptr && tile == (int)blockIdx.x) {
                keep_squares<M>(squares, kept);
            }
            finish(tile, sums[odd], kept);
        }
    }
};

template <int KIND, int M, int R, bool LARGE, bool MORE>
__device__ __forceinline__ void few_rows(const dvk_linear_few_params &p) {
    extern __shared__ uint4 x[];
    __shared__ float sums[2][FEW_WARPS * 32];
    __shared__ float kept[M * FEW_WARPS];
    few<KIND, M, R, LARGE, MORE> work(p);
    work.run(x, sums, kept);
}

#define FEW(NAME, KIND, M, R, LARGE, MORE)                                                                             \
    extern "C" __global__ void __launch_bounds__(FEW_WARPS * 32, FEW_RESIDENT(R * M, KIND > LIN_BF16, LARGE))          \
        linear_few_##NAME(const __grid_constant__ dvk_linear_few_params p) {                                           \
        few_rows<KIND, M, R, LARGE, MORE>(p);                                                                          \
    }
#define FEW_KIND(NAME, KIND, R)                                                                                        \
    FEW(NAME##_1, KIND, 1, R, false, false)                                                                            \
    FEW(NAME##_1_more, KIND, 1, R, false, true)                                                                        \
    FEW(NAME##_2, KIND, 2, R, false, false)                                                                            \
    FEW(NAME##_4, KIND, 4, 4, false, false)                                                                            \
    FEW(NAME##_8, KIND, 8, 4, false, false)

FEW_KIND(f32, LIN_F32, 2)
FEW_KIND(f16, LIN_F16, 2)
FEW_KIND(bf16, LIN_BF16, 2)
FEW_KIND(bytes, LIN_BYTES, 2)
FEW_KIND(bytes_min, LIN_BYTES_MIN, 2)
FEW_KIND(bytes_k, LIN_BYTES_K, 2)
FEW_KIND(halves, LIN_HALVES, 2)
FEW_KIND(nibbles, LIN_NIBBLES, 4)
FEW_KIND(nibbles_min, LIN_NIBBLES_MIN, 4)
FEW_KIND(nibbles_k, LIN_NIBBLES_K, 4)
FEW(f32_large, LIN_F32, 1, 2, true, false)
FEW(f16_large, LIN_F16, 1, 2, true, false)
FEW(bf16_large, LIN_BF16, 1, 2, true, false)
